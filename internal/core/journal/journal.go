package journal

import (
	"errors"
	"fmt"
	"io"

	"github.com/isotone/isotone/internal/core/mutant"
)

// File is an open file of a journal.
type File interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Truncate(size int64) error
	// SyncData makes durable what was written, and of the metadata what is needed to read it; Sync
	// makes all of both durable.
	SyncData() error
	Sync() error
	Close() error
}

// Files are those in the directory of a journal: the data file, and a spare one.
type Files interface {
	// Spare opens the spare file, and creates it if there is none.
	Spare() (File, error)
	// Exchange gives the spare file, which is f, the name of the data file, and the latter that of the
	// spare one, in one step. Where names cannot be exchanged, the data file is deleted, and the spare one
	// may be empty. The names may be as before after a crash, until Sync has returned nil.
	Exchange(f File) error
	// Sync makes the names durable.
	Sync() error
}

// Options are where a journal is kept, and how.
type Options struct {
	Files Files
	// Salt returns a random number.
	Salt func() uint64
	// SpareSectors is how many sectors a new file has beyond the state.
	SpareSectors int64
}

// Journal is a file of records, each in whole sectors one after the other. A Save appends one. A
// sector is written once: what a crash leaves of a record that was not complete is never
// overwritten, because Begin goes on in a new file. One goroutine at a time may use it.
type Journal struct {
	o       Options
	file    File
	salt    uint64 // random; no sector of another file is valid in this one
	sectors int64  // in the file, the head included
	next    int64  // the first empty sector
	record  uint64 // number of the last record
	table   *table

	identity Identity
	state    State
}

// Open reads a journal, without changing it, and returns what its complete records result in.
// Errors are those of readJournal. Before the first Save, Begin must be called.
func Open(o Options, file File) (*Journal, Recovered, error) {
	size, err := file.Size()
	if err != nil {
		return nil, Recovered{}, err
	}
	j, err := readJournal(o, file, size)
	if err != nil {
		return nil, Recovered{}, err
	}
	r, err := j.recovered()
	return j, r, err
}

// Identity returns whose data the journal holds.
func (j *Journal) Identity() Identity { return j.identity }

// Close closes the file. It writes nothing: whatever was saved is durable already.
func (j *Journal) Close() error { return j.file.Close() }

// at returns where a sector is in the file.
func (j *Journal) at(number int64) int64 { return number * SectorBytes }

// Size returns the size of the file in bytes.
func (j *Journal) Size() (int64, error) { return j.file.Size() }

// size returns the size that the file should have.
func (j *Journal) size() int64 { return j.at(j.sectors) }

// readJournal returns a journal of the given size in bytes. It returns a [FormatError] if another
// version wrote the file, and a [CorruptError] if a sector is anything but what Save wrote, or empty
// because the write that would have filled it never ended. Errors of file itself are returned as they
// are. It needs no more memory than some multiple of the size.
func readJournal(o Options, file File, size int64) (*Journal, error) {
	head := make([]byte, SectorBytes)
	if err := ReadAt(file, head, 0); err != nil {
		return nil, err
	}
	j := &Journal{o: o, file: file, next: 1, table: newTable()}
	var err error
	if j.salt, j.sectors, err = decodeHead(head); err != nil {
		return nil, err
	}
	if j.size() != size {
		return nil, Corrupt("the file", "it has %d bytes and should have %d", size, j.size())
	}
	d := &draft{table: j.table}
	r := &sectorReader{journal: j}
	for j.next < j.sectors {
		payload, err := j.readRecord(r)
		if payload == nil && err == nil {
			err = j.checkTail(r)
		}
		if err != nil && !mutant.On(mutant.DamageIsTail) {
			return nil, err
		}
		if payload == nil {
			break
		}
		if err := d.replay(j.record+1, payload); err != nil {
			return nil, Corrupt(fmt.Sprintf("record %d at sector %d", j.record+1, j.next), "%v", err)
		}
		j.record++
		j.next += sectorsFor(len(payload))
	}
	j.identity, j.state = d.identity, d.state
	return j, nil
}

// readRecord returns the record that begins at j.next, nil if it is not complete.
func (j *Journal) readRecord(r *sectorReader) (payload []byte, err error) {
	var length uint32
	for number := j.next; number < j.sectors; number++ {
		s, ok, err := r.at(number)
		if err != nil || !ok {
			return nil, err
		}
		if number == j.next {
			length = s.length
		}
		if err := j.checkPart(s, number, length); err != nil {
			return nil, err
		}
		if payload = append(payload, s.content...); len(payload) == int(length) {
			return payload, nil
		}
	}
	return nil, corruptSector(j.next, "its record goes on behind the end of the file")
}

// checkPart checks that a sector belongs to the record of the given length that begins at j.next.
func (j *Journal) checkPart(s sector, number int64, length uint32) error {
	place := uint32(number - j.next)
	if s.record != j.record+1 || s.place != place || s.length != length {
		return corruptSector(number, "it is part %d of record %d with %d bytes, and should be part %d of record %d with %d bytes",
			s.place, s.record, s.length, place, j.record+1, length)
	}
	return nil
}

// checkTail checks the sectors from j.next on, where there is no complete record: they are empty,
// but for some of the one record that was under way when the process or the machine stopped.
func (j *Journal) checkTail(r *sectorReader) error {
	if j.record == 0 {
		return Corrupt("record 1", "it is not complete, although the file was synced with it")
	}
	var length uint32
	for number := j.next; number < j.sectors; number++ {
		s, ok, err := r.at(number)
		switch {
		case err != nil:
			return err
		case !ok:
			continue
		case length == 0:
			length = s.length
		}
		if err := j.checkPart(s, number, length); err != nil {
			return err
		}
	}
	if j.next+sectorsFor(int(length)) > j.sectors {
		return corruptSector(j.next, "its record goes on behind the end of the file")
	}
	return nil
}

// replay applies a record, and checks that it results in what it says.
func (d *draft) replay(number uint64, payload []byte) error {
	r, err := decodeJournalRecord(payload)
	if err != nil {
		return err
	}
	if number > 1 {
		named := d.identity
		if named.ClusterID == 0 {
			named.ClusterID = r.identity.ClusterID
		}
		if r.identity != named {
			return errors.New("it has another identity than the record before it")
		}
	}
	if err := d.applyAll(r.changes); err != nil {
		return err
	}
	d.identity = r.identity
	if d.seal(number); d.state != r.state {
		return errors.New("it does not result in the state that it should")
	}
	return nil
}
