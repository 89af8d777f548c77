// Package txn runs transactions with snapshot isolation over any store that can change one row
// atomically. It is the protocol of Percolator, with the timestamps of an Isotone cluster:
//
//	db, err := txn.New(oracle, txn.Options{Stores: map[string]txn.Store{"bank": store}})
//	...
//	err = db.Run(ctx, func(tx *txn.Tx) error {
//		v, found, err := tx.Get(ctx, "bank", []byte("alice"))
//		...
//		return tx.Set("bank", []byte("alice"), v)
//	})
//
// A transaction may span several stores, of different kinds. There is no server: the clients follow
// the protocol, and all that they share is the stores and the oracle. Stores implement [Store]: package
// memory is one; package storetest tests them.
//
// # The protocol
//
// A transaction has two timestamps of the oracle: start, and commit. A row has versions, each with the
// commit timestamp of the transaction that wrote it, and at most one lock.
//
// Begin requests the start timestamp. Get returns the newest version at or before it. If the row has
// a lock with an earlier start, its transaction may have a commit timestamp that belongs to the
// snapshot, so Get waits until that is decided. Set and Delete only keep their writes in memory. Commit
// has four steps:
//
//  1. Lock the row of each write. The lock has the start timestamp, the value to write, and the name
//     of the primary, which is one of the rows. A row is not locked if it has a version after the start
//     (a conflict), the lock of a transaction that is alive, or the mark that this transaction was
//     rolled back.
//  2. When all rows are locked, request the commit timestamp, and look at the safe points (see below).
//  3. In the row of the primary, replace the lock by the version, and add a record, which says that
//     the transaction with this start has this commit. That is one atomic write, on the condition
//     that the lock is still there. Until then the transaction has not committed, and after it, it has.
//  4. In the other rows, the secondaries, replace the locks by versions. That may take its time: it
//     goes on in the background after Commit has returned.
//
// Whoever meets a lock asks the row of its primary. If there is a record, the lock becomes a version,
// or vanishes. If the lock of the primary is there and has expired, or neither is there and the lock
// that was met has expired, the transaction is rolled back: one atomic write puts a rollback mark in
// the row of the primary, and takes the lock away. Otherwise the transaction is alive. A lock has
// expired when the oracle has issued a timestamp of a later millisecond than it says; clients that
// take long extend it. The oracle's time may stand still for long, so a lock has also expired for a client
// that has seen it unchanged for its TTL, by the client's own steady clock. No clock is compared with
// another one. Expiry decides only how long others wait; a transaction that is rolled back too early fails,
// and nothing else happens.
//
// All writes of rows have a condition: the revision that the row had when it was read. Each write
// gives it a new one, which it never had before. So a write that arrives late, when the row has
// changed, is refused by the store, whatever became of its transaction. Only a row that does not exist
// has the same revision again; garbage collection deals with that.
//
// # What it promises
//
// Snapshot isolation (Berenson et al. 1995), and with it a real-time order: a transaction that begins
// after another one was reported as committed sees its writes. The reasons:
//
// A snapshot does not change. Let T commit at c, and let R read a row of T with a start s > c. The
// oracle issued s after c, and c was requested after all rows of T were locked. So when R reads the
// row, it has T's lock or its version; with the lock, R waits for the outcome. And if s < c, R passes
// over both. So R sees either all writes of T or none (no fractured reads, no G1c), and none that did not
// commit (no G1a), and only the last of each key (no G1b).
//
// There is no lost update. Let T and U write one row, and T get the lock first. T's lock is replaced by
// its version without a moment between. U gets the lock after that, or T has not committed. If U's
// start is before T's commit, then U finds a version after its start, and fails. So of two transactions
// that write one key, one starts after the other has committed: there is no G0.
//
// There is no G-single, a cycle of dependencies of which exactly one is of a reader on the
// transaction that overwrites what it has read (an anti-dependency). By the two paragraphs above,
// every other dependency leads from a transaction to one that starts after its commit. An
// anti-dependency leads from R to a T that commits after R's start. In a cycle with one of them, R's
// start would be after T's commit, or at it, and also before. The same holds for every cycle in which
// no two anti-dependencies follow each other (Cerone and Gotsman 2018).
//
// A transaction that was rolled back stays so. It can commit only by the write that replaces the lock
// of its primary. That lock is gone after a rollback. If a prewrite of the primary comes after the
// rollback, because the secondaries were locked first, then either it was based on an earlier read,
// and its condition fails; or on a later one, which found the mark.
//
// A transaction commits once. If the write of the primary has no answer, Commit reads the row: a
// record says what happened, and a lock that is still there means that nothing has, yet; then the write
// is repeated, and its condition holds for one of the two at most. If this is not possible for long,
// Commit says so ([CodeUnknown]). It never reports a failure of which it is not sure.
//
// What it rests on: the oracle's order (I4 of Isotone), and what [Store] demands. Whoever reads a record acts
// on it: so it must not vanish again, whether or not its writer ever had an answer.
//
// # What it does not promise
//
// Write skew is possible: two transactions that read both x and y, and of which one writes x and the
// other y, both commit. Such transactions are not serializable. A transaction that must depend on what
// it has read can write it back: Set with the same value makes it a conflict. There is no
// serializable mode.
//
// A read may have to wait for a transaction that is committing, and for the expiry of the locks of a
// client that died. Writers never wait for readers. Of two writers of one row, one fails; nobody
// waits for a lock to write, so there are no deadlocks.
//
// # Garbage collection
//
// [DB.Collect] removes old versions and records. Somebody has to call it now and then; it may run
// anywhere. It works with two points that each store keeps:
//
//  1. It raises the safe point in every store. Every read returns the safe point; a transaction that
//     started before it fails, because its snapshot may not be complete any more ([CodeTooOld]).
//  2. It ends all transactions with a lock that started before the safe point, by their primaries.
//  3. It raises the point up to which locks are resolved, in every store.
//  4. It removes, in each row, the versions before the newest one at or before the safe point, that one
//     as well if it is a deletion, and the records of transactions that started before the safe point.
//
// After step 2 no transaction that has committed or is going to has a lock from before the safe point
// left. For step 2 of a commit looks at the safe points when all locks are there. Either it sees the
// raised point, and the transaction fails; or the locks were there before the point was raised, and
// step 2 of the collection has seen them. So records are removed only when nobody needs them to decide
// what a lock means.
//
// A row that has nothing left ceases to exist, and its revision with it. So a prewrite of a row that
// did not exist may be carried out much later, when the row has ceased to exist again. Such a lock is
// void: it started before the point up to which locks are resolved. Everybody ignores it, whatever its
// primary says, and the next garbage collection removes it. The point must have been known before the
// row was read. Otherwise the lock may be one that was resolved after it was read and before the
// point was raised, and that belongs to a transaction that has committed; so the row is read again.
//
// # Snapshots at the frontier
//
// With [Options.Frontier], the commit timestamp of a transaction is the stamp of a write in a group of writers, whose *frontier* F anybody can ask
// the cluster for: no write at or below it is accepted any more. The write with the stamp is the one that commits: that of the primary's row. So:
//
//   - The stamp is requested when all rows are locked, as commit timestamps always are.
//   - The store of the primary refuses that write at or below its fence ([Fenced]), which is raised before F passes the stamps of a client that died.
//   - The client says that the stamp is decided (Done) once it knows that its transaction has committed or never will, and that it is in doubt (Unknown) if it does
//     not get to know. It waits for the secondaries before that, so that readers seldom meet locks.
//
// The locks that a reader at F meets are of transactions that commit above F, if at all, or of clients that died. It asks the row of the primary once. A record
// tells the version. Without one, the transaction does not commit at or below F, so the row is read as if the lock were not there. The reader does not wait, and changes nothing.
//
// Why that is right: let T have the commit timestamp c ≤ F. When F was told, T's write of the primary had been applied, or it never will be (P5 of
// docs/decisions/0041-sessions-and-the-frontier.md, with that write for the write of its group). Whoever reads later, and knows F, finds the same, for ever. Before T requested c, it had locked all its rows. Each of
// them has T's lock or its version when it is read, or T was rolled back. So a reader at F sees all of T or nothing, and the same each time. If c > F, it passes over T's
// versions, and over its locks by either of the two answers. A record may have been collected, but only after the lock that told of it was gone (see DB.Collect): the reader then finds
// that the row has changed, and reads it again.
//
// # Limits
//
// Keys have up to [KeySizeMax] bytes and values up to [ValueSizeMax]; [Options] bounds the writes of a
// transaction, which are held in memory. Values are written twice, first into the lock. Commit makes
// four round trips one after the other: read the rows, lock them, request the timestamp and the safe
// points, write the primary. The first is left out for keys that the transaction has read with Get.
//
// # How it is tested
//
// Package internal/sim runs the clients under a scheduler that owns every step, with crashes, lost and
// late writes and failovers of the oracle, and package check looks for anomalies in what they saw. Snapshots at a frontier are read again later.
// Deliberate bugs (internal/mutant) show that it would find them.
//
// # Sources
//
//   - Peng and Dabek, "Large-scale Incremental Processing Using Distributed Transactions and
//     Notifications", OSDI 2010 (Percolator).
//   - Berenson, Bernstein, Gray, Melton, O'Neil and O'Neil, "A Critique of ANSI SQL Isolation Levels",
//     SIGMOD 1995.
//   - Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
//     Transactions", MIT 1999 (the names of the anomalies).
//   - Cerone and Gotsman, "Analysing Snapshot Isolation", JACM 65(2), 2018.
package txn
