package txn_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

func Example() {
	ctx := context.Background()
	oracle := newOracle() // in production a client of a cluster
	db, err := txn.New(oracle, txn.Options{Stores: map[string]txn.Store{
		"euros": memory.New(), "dollars": memory.New(),
	}})
	if err != nil {
		panic(err)
	}
	defer db.Close()

	exchange := func(amount int) error {
		return db.Run(ctx, func(tx *txn.Tx) error {
			v, _, err := tx.Get(ctx, "euros", []byte("alice"))
			if err != nil {
				return err
			}
			have, _ := strconv.Atoi(string(v))
			if have < amount {
				return fmt.Errorf("alice has only %d euros", have)
			}
			if err := tx.Set("euros", []byte("alice"), []byte(strconv.Itoa(have-amount))); err != nil {
				return err
			}
			return tx.Set("dollars", []byte("alice"), []byte(strconv.Itoa(amount)))
		})
	}
	fmt.Println(exchange(10))
	_ = db.Run(ctx, func(tx *txn.Tx) error { return tx.Set("euros", []byte("alice"), []byte("50")) })
	fmt.Println(exchange(10))
	_ = db.View(ctx, func(tx *txn.Tx) error {
		for _, space := range []string{"euros", "dollars"} {
			for pair, err := range tx.All(ctx, space, nil, nil) {
				fmt.Println(space, string(pair.Key), string(pair.Value), err)
			}
		}
		return nil
	})
	// Output:
	// alice has only 0 euros
	// <nil>
	// euros alice 40 <nil>
	// dollars alice 10 <nil>
}
