// Package pgstore keeps the rows of transactions in Postgres. It owns the tables and the statements,
// and knows nothing of the protocol of transactions.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	...
//	store, err := pgstore.New(pool, pgstore.Options{Schema: "accounts"})
//	...
//	err = store.Create(ctx)
//	...
//	db, err := txn.New(oracle, txn.Options{Stores: map[string]txn.Store{"postgres": store}})
//
// # Tables
//
// A store is a schema with four tables: rows (revision and lock by key), versions (by key and commit
// timestamp), records (by key and start timestamp), and points (one row). Keys are bytea, which
// compares by bytes.
//
// # Atomicity
//
// Reads and scans are one statement each. In Postgres a statement sees one snapshot of all tables, taken
// after it has arrived, which contains everything that was committed by then. So a row and the
// points are those of one moment within the call.
//
// A write is one statement too, if it removes nothing. Its first part takes the lock of the table row:
//
//	UPDATE rows SET revision = … WHERE key = … AND revision = …
//
// or, for a row that must not exist, INSERT … ON CONFLICT DO NOTHING. All else hangs on its result. In
// READ COMMITTED, an UPDATE that had to wait for another transaction compares the revision again, with
// what that one has committed. So the revision is the expected one when the lock is taken, and stays
// it until the write commits, since every other write needs the same lock. If the UPDATE finds nothing,
// the row had another revision either when the statement began or when the other transaction
// committed, and the write was not applied. An INSERT waits likewise for another one of the same key,
// and does nothing if that commits.
//
// A write that removes something also has to find out whether the row still exists. It is several
// statements that are sent at once and are one transaction. The first is the one above. Each of the
// others has a snapshot of its own, taken when the transaction has the lock, and so sees all of the row;
// and each does nothing unless the row has the revision that the first has written. Because all
// statements are sent at once, a client that stops in between holds no lock.
//
// With a stricter isolation level as its default, Postgres reports some conflicts as errors instead.
//
// # Replicas
//
// Every read asks whether the server is in recovery, and fails if so: a replica may lag.
//
// # At most once
//
// pgx does not repeat statements, nor must anything between it and the server.
//
// # Durability
//
// An answered write survives what a committed transaction of Postgres survives. With
// synchronous_commit off that is not even a crash, so Create refuses it; with fsync off neither, which
// is for tests. For a failover to keep all answered writes, replication must be synchronous
// (synchronous_standby_names) and the failover must promote a replica that is in sync.
//
// One thing remains even then. If a client goes away, or its context ends, while its commit waits for
// the replica, Postgres may end the wait, and shows the commit to others before the replica has it. A
// failover at that moment loses a write that others have seen. If the same transaction has rows in other
// stores, they may have become final by what was seen.
//
// # Statements
//
// pgx prepares each statement once per connection, unless the pool is configured otherwise.
package pgstore
