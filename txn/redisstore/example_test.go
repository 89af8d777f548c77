package redisstore_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/redisstore"
)

func ExampleOpen() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	store, err := redisstore.Open(ctx, client, redisstore.Options{Name: "accounts"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	options := txn.Options{Stores: map[string]txn.Store{"accounts": store}}
	fmt.Println(options.Validate())
}
