// Package storage keeps one node's raft log, hard state, snapshot and identity
// on disk, in a single file ([FileName]) in a data directory of its own.
//
// It owns the directory: its creation, its lock, the format of every record, and the check
// that its content can be trusted. It does not interpret entries, and knows neither the leader
// nor the time. internal/node calls [Open] once, then [Store.Save] from one goroutine, and
// [Store.Close] when that goroutine is done. The server and the commands also inspect and prepare
// directories on which no node runs.
//
// # Guarantees
//
// When Save returns nil, everything in it survives a crash. When it returns an error, the
// Store has failed for good (I8): it writes no more, and nothing of the failed call may be
// acknowledged.
//
// When Open returns a [Recovered], it holds exactly what the last Save wrote. In all other
// cases Open fails; it never repairs anything. A raft node that forgets a vote or an
// acknowledged entry can make the whole cluster issue a timestamp twice, so a damaged copy is
// worse than none.
//
// # The data file
//
// The data file is a journal: see internal/core/journal, which decides what is written and what may be
// believed, and says what is assumed of the disk. This package has the files.
package storage
