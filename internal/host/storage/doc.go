// Package storage keeps one node's raft log, hard state, snapshot and identity
// on disk, in a single bbolt file ([FileName]) in a data directory of its own.
//
// It owns the directory: its creation, its lock, the format of every record and
// the check whether its content can be trusted. It does not interpret entries, and knows
// neither the leader nor the time. internal/node is its
// only caller: it calls [Open] once, then [Store.Save] from one goroutine, and
// [Store.Close] when that goroutine is done.
//
// # What is promised
//
// When Save returns nil, everything it was given survives a crash. When it
// returns an error the Store has failed for good (I8): it writes no more, and
// nothing of the failed call may be acknowledged.
//
// When Open returns a [Recovered], it holds exactly what the last Save wrote.
// Everything else is an error, never a repair: a raft node that forgets a vote
// or an acknowledged entry can make the whole cluster issue a timestamp twice,
// so a damaged copy is worse than none.
//
// # The file
//
// Two buckets. The bucket "isotone" holds the records "format", "identity",
// "state" and "snapshot"; the bucket "log" holds one record for each entry,
// under its index as 8 big-endian bytes. A record is a CRC32C of bucket, key and
// payload, then the payload, so a record that is rotten or in the wrong place is
// noticed. The state record is rewritten by every Save and sums up the others, so
// a record that has vanished, or is an older one, is noticed too.
//
// Below the records, Open checks the pages of the file itself before bbolt sees
// them (see pages.go): bbolt trusts its pages, and a damaged one makes it
// fault, recurse without end or fall back to an older state in silence.
package storage
