// Package oracle is the state machine behind timestamps and ids: what the cluster agrees on
// ([State]), and how a leader issues timestamps below its ceiling ([Allocator]).
//
// The cluster agrees on a ceiling: no timestamp with a time at or above it was ever issued
// (I1). A leader raises the ceiling through Raft and then issues from memory, without a
// commit per request. The next leader starts at the ceiling that it finds, so two terms never
// overlap (I2). The idea is that of the timestamp oracle in Percolator (Peng and Dabek,
// "Large-scale Incremental Processing Using Distributed Transactions and Notifications",
// OSDI 2010).
//
// Timestamps of 64 bits ([isotone.Timestamp64]) come from the same allocator. Each stands for a time of
// its own, with index 0, and the allocator advances to that of the last one issued, so that whatever
// follows is larger. Hence a mixed sequence of both forms is a sequence of timestamps as any other: its
// times lie below the ceiling (I1), above all of earlier terms (I2) and increase strictly (I3), and
// requests for either form wait for the same rounds (I4) or the same lease (I5).
//
// The state also holds the cluster's ID, the member records by which wiped and copied data
// directories are refused (I6), and worker leases (worker.go): the holder of a worker makes
// snowflake ids in the milliseconds of its lease without a commit per id, and the leases of
// one worker never overlap (I9).
//
// Everything here is deterministic: no clock, goroutine, I/O or randomness. Only
// internal/core/replica applies commands; this package knows no Raft. Values are not safe for
// concurrent use.
package oracle
