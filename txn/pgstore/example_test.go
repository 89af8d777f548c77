package pgstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/pgstore"
)

func ExampleNew() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("postgres://localhost/test?target_session_attrs=read-write")
	if err != nil {
		fmt.Println(err)
		return
	}
	config.ConnConfig.OnNotice = pgstore.OnNotice
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := pgstore.New(pool, pgstore.Options{Schema: "accounts"})
	if err == nil {
		err = store.Create(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	options := txn.Options{Stores: map[string]txn.Store{"accounts": store}}
	fmt.Println(options.Validate())
}
