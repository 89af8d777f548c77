package txn

import (
	"context"

	"github.com/isotone/isotone"
)

// Limits of a [Store]. The package checks them before it calls a store.
const (
	// KeySizeMax is the largest length of a key in bytes; the smallest is 1. An index of Postgres
	// holds keys of this length.
	KeySizeMax = 1024
	// ValueSizeMax is the largest length of a value in bytes.
	ValueSizeMax = 1 << 20
	// LockSizeMax is the largest length of a lock in bytes: a lock holds the value that it is going
	// to become, and the key of a primary.
	LockSizeMax = ValueSizeMax + 4096
	// ScanRowsMax is the largest [Range.Limit].
	ScanRowsMax = 1024
)

// Store holds rows for transactions. The protocol is in this package; a store only keeps what it is
// given and compares revisions. Run storetest.Run against every implementation.
//
// # Rows
//
// A row belongs to a key and consists of
//
//   - a revision, which changes with every write;
//   - a lock, which is bytes that the store does not interpret, or none;
//   - versions, each with a commit timestamp that is unique in the row;
//   - records, each with a start timestamp that is unique in the row.
//
// A row exists if and only if it has a lock, a version or a record. When a write takes the last of
// them, the row ceases to exist, and its revision is 0 from then on, as that of a row that never was.
//
// # What must be atomic
//
// Each row is linearizable: every call takes effect at one moment between its start and its end, or,
// for a write that failed, perhaps later. So a [Store.Read] by any client returns what an answered
// [Store.Write] of any other client left, and replicas that lag behind must not answer. A write takes
// effect as a whole or not at all, and its condition holds at the moment when it does. Nothing needs
// to be atomic over several rows; [Store.Scan] may read its rows at different moments.
//
// # What must be durable
//
// A write that was answered with true, and a raise that was answered without an error, survive every
// failure that the store claims to survive, failovers included. So does everything that [Store.Read],
// [Store.Scan] and [Store.Points] return, also if the write that it comes from has had no answer. For a
// reader acts on what it has read: it finds a record and reports its own commit as done, or rolls others
// forward or back in other stores. If a database shows a write before that is on the disk, or on the
// replica that a failover would promote, then a read waits until it is there, or fails. Nor is a row shown
// as absent, or an older state of it, while the write that made it so may still be lost.
//
// After a failed attempt to make something durable, such as an fsync with an error, a store must not go on
// as if a later one had made up for it. Nor may a server answer that was replaced in a failover.
//
// A store that may lose what it has answered, for instance by a failover to a replica that lags, may lose or
// tear transactions. storetest.RunDurable tests all of this.
//
// # Errors and unknown outcomes
//
// Any error of Write or Raise means that the outcome is unknown: the write has been applied, or never
// will be, or will be at any later time; only that of a fence says more ([Fenced]). The package copes with all of these. But a write must be
// applied at most once: a driver that repeats requests by itself after a lost answer must be told not
// to. Errors of the other methods have no effect. All methods return soon after ctx is done.
//
// # Arguments and results
//
// Keys have 1 to [KeySizeMax] bytes, any bytes, and are ordered as bytes.Compare orders them. Values
// have 0 to [ValueSizeMax] bytes; nil and empty are the same. Timestamps and revisions are below 2^63
// and use all bits, more than a floating-point number has. A store
// neither keeps nor changes the slices of its arguments, and the caller owns those of the results.
// Methods may be called concurrently. A store keeps [Points] beside its rows, one for all of them.
type Store interface {
	// Read returns the row of key as of one moment, with Version the newest at or before at, and
	// Record that of start. The points are those of the same moment or of a later one that is still
	// within the call. The row of a key without one is the zero Row.
	Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (Row, Points, error)

	// Scan returns rows of r in the order of their keys, each as Read(key, at, 0) returns it. It
	// begins with the first row of the range and leaves none out, whether a version is visible at at
	// or not. It may return fewer than r.Limit, to bound an answer in bytes, but returns at least one
	// row if there is one. More is true if the range may have rows after the last one returned.
	// Every row is returned that exists for the whole of the call and is not after the last one. The
	// points are those of a moment within the call at which all rows had been read, or of the same
	// moment as the rows if that is one.
	Scan(ctx context.Context, r Range, at isotone.Timestamp64) (Page, error)

	// Write applies c to the row of key if the row has the revision c.If, atomically. It returns true
	// if it did. False means that the row had another revision at some moment during the call, and
	// that the write was not and never will be applied.
	Write(ctx context.Context, key []byte, c Change) (bool, error)

	// Points returns the points of the store, at first zero.
	Points(ctx context.Context) (Points, error)

	// Raise sets each of the points to the larger of what it is and what p has, atomically.
	Raise(ctx context.Context, p Points) error
}

// Row is the state of a row, as far as it was asked for.
type Row struct {
	// Revision is 0 if and only if the row does not exist. Then all else is zero as well.
	Revision uint64
	// Lock is empty if the row is not locked.
	Lock []byte
	// Version is the newest version at or before the timestamp that was asked for; its Commit is 0
	// if there is none.
	Version Version
	// Newest is the largest commit timestamp of all versions, 0 if there is no version.
	Newest isotone.Timestamp64
	// Record is the record of the start timestamp that was asked for; its Start is 0 if there is
	// none, or none was asked for.
	Record Record
	// OldestVersion is the smallest commit timestamp of all versions, and OldestRecord the smallest
	// start timestamp of all records; 0 if there are none. They tell whether a row has garbage.
	OldestVersion, OldestRecord isotone.Timestamp64
}

// Version is what a committed transaction left in a row.
type Version struct {
	// Commit is the commit timestamp of the transaction; never 0 in a store.
	Commit isotone.Timestamp64
	// Deleted means that the key has no value from Commit on. Value is empty then.
	Deleted bool
	Value   []byte
}

// Record is the outcome of a transaction, kept in the row of its primary.
type Record struct {
	// Start is the start timestamp of the transaction; never 0 in a store.
	Start isotone.Timestamp64
	// Commit is its commit timestamp, or 0 if it was rolled back. A record with 0 is called a
	// rollback mark.
	Commit isotone.Timestamp64
}

// Change is a conditional write of one row.
type Change struct {
	// If is the condition: the revision that the row must have; 0 if it must not exist.
	If uint64
	// Next becomes the revision of the row, unless the row ceases to exist. It is from 1 to 2^63-1,
	// chosen at random, so that a row does not have the same revision twice. A write that arrives
	// late therefore never meets its condition by chance.
	Next uint64
	// Lock becomes the lock of the row, whatever that was; empty leaves the row without one.
	Lock []byte
	// Put is a version to add, unless its Commit is 0. A version with the same commit timestamp is
	// replaced.
	Put Version
	// Record is a record to add, unless its Start is 0. A record with the same start timestamp is
	// replaced.
	Record Record
	// DropVersions takes away all versions with a commit timestamp below it, DropRecords all records
	// with a start timestamp below it; 0 takes away nothing. A Change that drops adds nothing.
	DropVersions, DropRecords isotone.Timestamp64
}

// Points are the progress of garbage collection in a store. They only grow.
type Points struct {
	// Safe is the safe point: snapshots before it are no longer complete. Transactions that started
	// before it can neither read nor commit.
	Safe isotone.Timestamp64
	// Resolved, at most Safe, is the point before which all locks in all stores were resolved. A lock
	// that started before it and is there once it has been raised was written too late, and is void.
	Resolved isotone.Timestamp64
}

// Range selects rows. From and To have up to KeySizeMax+1 bytes: they need not be keys of rows.
type Range struct {
	// From is the smallest key; empty stands for the first of all.
	From []byte
	// To is the key after the largest; empty stands for the end of all.
	To []byte
	// Limit is the largest number of rows to return, 1 to [ScanRowsMax].
	Limit int
}

// Page is the answer to a scan.
type Page struct {
	Entries []Entry
	// More is true if the range may have rows after the last entry.
	More   bool
	Points Points
}

// Entry is a row with its key.
type Entry struct {
	Key []byte
	Row Row
}
