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
// apply a Write by the same code (draft.go).
//
// # The journal
//
// A journal has a head, sectors of 512 bytes that hold records, and empty sectors, which are zero.
// A Save appends one record, which has its changes and what they result in, in whole sectors of
// its own, with one write and one fdatasync. The empty sectors were written and synced when the
// file was made, so a Save changes neither its size nor its allocation, and the sync has nothing
// but data to write.
//
// When there is no room left, and at every Open, the whole state is written to a new file as one
// record. It is synced, its name is exchanged with that of the data file, and the directory is
// synced. The former file is kept as the spare one, whose blocks the next new file takes. Nothing
// ever reads it.
//
// Open reads the complete records from the first one on. Behind them it accepts two things: empty
// sectors only; or some, but not all, of the sectors of the one next record, and empty sectors
// otherwise. The latter was never acknowledged and is ignored. As Open goes on in a new file, it
// is never overwritten either, so no sector of it can be taken for part of a later record. All
// else is refused as damage.
// The checksum of a sector covers a random number of the file, the number of the sector, and the
// number, length and part of its record: a sector from another place or another file is not
// valid. Each record repeats the checksums of everything that it results in, and Open compares
// these with what it has read.
//
// What is assumed of the disk:
//
//   - It writes a sector of 512 bytes as a whole or not at all. A sector of 4 KiB, or a larger write,
//     may be torn anywhere between them.
//   - A write changes nothing outside of its range. Around the sectors of a Save, the kernel writes the
//     rest of the same page again, with the same content.
//   - What it confirmed in a sync survives.
//   - The file system renames and exchanges names in one step.
//
// What cannot be detected: the loss of the last record, or of sectors of it that become zero again,
// by a disk that broke the last but one of these promises. It looks like a write that was never
// confirmed. The next record, or the next start, ends that. With bbolt, the loss of the last
// meta page and of what it names has the same effect. An older copy of the whole file is valid,
// too: that is for the peers to notice (I6).
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
