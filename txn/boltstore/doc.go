// Package boltstore keeps the rows of transactions in a file of bbolt, for programs that embed their
// database. It owns the layout of its buckets, and knows nothing of the protocol of transactions.
//
//	file, err := bbolt.Open("accounts.db", 0o600, nil)
//	...
//	store, err := boltstore.Open(file, boltstore.Options{Name: "accounts"})
//	...
//	db, err := txn.New(oracle, txn.Options{Stores: map[string]txn.Store{"bolt": store}})
//
// Only one process can have the file open, and all others that take part in transactions with it have
// to reach it through that one. If it is the only store, a transaction of bbolt itself does the
// same with less work. It is of use beside other stores, and for tests of programs that use those.
//
// # Layout
//
// A store is a bucket with the buckets "rows" (revision and lock by key), "versions" (by key and
// commit timestamp), "records" (by key and start timestamp), and the keys "points" and "format". In
// versions and records, the length of the key comes first, in 2 bytes, then the key, then the timestamp in
// 8 big-endian bytes.
//
// # Atomicity
//
// Reads and scans are one read transaction of bbolt each, and do not wait for each other. Writes are done by one goroutine, which
// takes all that wait, up to 128 of them, into one transaction. So they share an fsync, and take effect
// one after another.
//
// # Durability
//
// bbolt writes and syncs the file before a write is answered, unless its NoSync is set. Then a crash of
// the machine may lose answered writes and damage the file, so Open refuses that.
//
// Reads return only what is on the disk: bbolt shows a transaction while its last fsync is still under way,
// so reads wait for that, or until their contexts are done. A commit that fails is final: a page that could
// not be written may look as if it had been, and a later fsync would not say so. From then on all stores in
// the file fail with [ErrFailed]. A program that writes to the file by itself must stop as well when one of
// its own commits fails.
package boltstore
