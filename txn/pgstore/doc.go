// Package pgstore keeps the rows of transactions in Postgres. It owns the tables and the statements,
// and knows nothing of the protocol of transactions.
//
//	config, err := pgxpool.ParseConfig("postgres://…")
//	...
//	config.ConnConfig.OnNotice = pgstore.OnNotice
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//	...
//	store, err := pgstore.New(pool, pgstore.Options{Schema: "accounts"})
//	...
//	err = store.Create(ctx)
//	...
//	db, err := txn.New(oracle, txn.Options{Stores: map[string]txn.Store{"postgres": store}})
//
// # Tables
//
// A store is a schema with five tables: rows (revision and lock by key), versions (by key and commit
// timestamp), records (by key and start timestamp), points and fence (one row each). Keys are bytea, which
// compares by bytes. Create adds the fence to a schema that is older.
//
// # Atomicity
//
// Reads and scans are one statement each; a second one may follow, which is about durability. In Postgres a
// statement sees one snapshot of all tables, taken after it has arrived, which contains everything that was
// committed by then. So a row and the points are those of one moment within the call.
//
// A write is one statement too, if it removes nothing and is not that of a commit. Its first part takes the lock of the table row:
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
// # Fence
//
// A write of a commit is a transaction that is sent at once:
//
//	BEGIN; LOCK TABLE fence IN ROW SHARE MODE; the write, unless the timestamp is sealed; COMMIT
//
// Commits hold this lock together, and it adds nothing to the write-ahead log. A seal takes it IN EXCLUSIVE MODE: it
// waits for the commits that were let in, and later ones wait for it. LOCK takes no snapshot, at any isolation level. So the
// snapshot of the write is one of a time when it has the lock, and a refusal says that in it the row had the
// revision and the timestamp was sealed. Reads and pg_dump do not meet these locks. The functions of
// package github.com/isotone/isotone/fence would need a schema of their own, and do not compare revisions.
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
// synchronous_commit off that is not even a crash, so every call refuses it ([ErrNotDurable]); with fsync
// off neither, which is for tests. For a failover to keep all answered writes, replication must be
// synchronous (synchronous_standby_names), and the failover must promote a replica that is in sync, and only
// when the former primary does not serve any more.
//
// Reads are as durable as answered writes. Postgres shows a commit before the replica has it if the wait of
// the commit was canceled, which the driver does when a context ends, and after a restart of the primary.
// So while synchronous_standby_names is set, a read also asks which transactions its snapshot has. If the
// replicas are not known to have them, because others have written since, the store commits a transaction
// with an empty message in the write-ahead log (pg_logical_emit_message), which waits for the replicas as
// every commit does. All reads of a Store that wait share one, and a write that was answered counts as well.
// Without synchronous replicas, reads are one statement.
//
// When somebody else cancels the wait of a write (pg_cancel_backend), Postgres reports success, with a
// warning. The store sees warnings only if the pool was made with [OnNotice]. It tries that on each connection,
// once, by a statement that does nothing but warn.
//
// # Statements
//
// pgx prepares each statement once per connection, unless the pool is configured otherwise.
package pgstore
