package boltstore_test

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/boltstore"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "boltstore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file, err := bbolt.Open(filepath.Join(dir, "accounts.db"), 0o600, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	store, err := boltstore.Open(file, boltstore.Options{Name: "accounts"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	options := txn.Options{Stores: map[string]txn.Store{"accounts": store}}
	fmt.Println(options.Validate())
	// Output: <nil>
}
