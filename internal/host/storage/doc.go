// Package storage keeps one node's raft log, hard state, snapshot and identity
// on disk, in a single file ([FileName]) in a data directory of its own.
//
// It owns the directory: its creation, its lock, the format of every record, and the check
// that its content can be trusted. It does not interpret entries, and knows neither the leader
// nor the time. internal/node is its only caller: it calls [Open] once, then [Store.Save] from
// one goroutine, and [Store.Close] when that goroutine is done.
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
// # Two formats
//
// A directory begins as a file of bbolt ([FormatBolt]). It becomes a journal ([FormatJournal])
// with the first [Write] that asks for it, which internal/node does when the feature level of
// the cluster excludes the versions that cannot read one. There is no way back. Both formats
// apply a Write by the same code: internal/core/journal, which has the journal itself and says what it
// assumes of the disk. This package has the files.
//
// # The file of bbolt
//
// The file has two buckets. The bucket "isotone" holds the records "format", "identity",
// "state" and "snapshot"; the bucket "log" holds one record for each entry, under its index as
// 8 big-endian bytes. A record is a CRC32C of bucket, key and payload, followed by the payload,
// so a damaged or misplaced record is detected. Every Save rewrites the state record, which
// has the checksums of the others, so a missing or outdated record is detected too.
//
// Below the records, Open checks the pages of the file before bbolt reads them (see pages.go):
// bbolt trusts its pages, and a damaged one makes it fault, recurse without end, or silently
// fall back to an older state.
package storage
