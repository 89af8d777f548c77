// Package journal decides what is written to the disk of one node, and what may be believed of what is
// found there: raft log, hard state, snapshot and identity, as the changes that a [Write] makes, as
// records with checksums, and as a file of such records, [Journal].
//
// It does no I/O of its own: it works on [Files], which are those of internal/host/storage, or those of
// the disk in internal/core/sim. It does not interpret entries, and knows neither the leader nor the
// time.
//
// # The file
//
// A journal has sectors of 512 bytes: the head, some that hold records, and empty ones, which are zero.
// A Save appends one record, which has its changes and what they result in, in whole sectors of
// its own, with one write and one fdatasync. The empty sectors were written and synced when the
// file was made, so a Save changes neither its size nor its allocation, and the sync has nothing
// but data to write.
//
// When there is no room left, and at every start ([Journal.Begin]), the whole state is written to a
// new file as one record. It is synced, its name is exchanged with that of the data file, and the
// directory is synced. The former file is kept as the spare one, whose blocks the next new file takes.
// Nothing ever reads it.
//
// Open reads the complete records from the first one on. Behind them it accepts two things: empty
// sectors only; or some, but not all, of the sectors of the one next record, and empty sectors
// otherwise. The latter was never acknowledged and is ignored. As Begin goes on in a new file, it
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
// confirmed. The next record, or the next start, ends that. An older copy of the whole file is
// valid, too: that is for the peers to notice (I6).
package journal
