// Package oracle is the state machine behind timestamps and ids: what the cluster
// agrees on ([State]) and how one leader hands timestamps out below it
// ([Allocator]).
//
// The replicated part is deliberately tiny. The cluster agrees on one number, the
// ceiling: no timestamp with a time at or above it has ever been issued (I1). A
// leader reserves some time ahead by raising the ceiling through Raft, and then
// issues from memory, without a commit per request. The next leader starts at the
// ceiling it finds, so that two terms never overlap (I2), whatever happened to
// the first. Beside the ceiling stand the cluster's name and the member records
// that keep a wiped or copied data directory out (I6).
//
// Beside that the state machine leases worker IDs (worker.go): whoever holds the lease
// of a worker makes snowflake ids of its milliseconds by itself, again without a commit
// per id, and the milliseconds leased for one worker never overlap (I9).
//
// Everything here is deterministic: no clock, goroutine, I/O or randomness. Only
// internal/core/replica applies commands; nothing here knows Raft. Values are not safe
// for concurrent use.
package oracle
