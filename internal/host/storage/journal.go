package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// journal is a file of records, each in whole sectors one after the other. A Save appends one. A
// sector is written once: what a crash leaves of a record that was not complete is never
// overwritten, because Open goes on in a new file.
type journal struct {
	file    *os.File
	salt    uint64 // random; no sector of another file is valid in this one
	sectors int64  // in the file, the head included
	next    int64  // the first empty sector
	record  uint64 // number of the last record
	table   *memoryTable
}

// size returns the size of the file in bytes.
func (j *journal) size() int64 { return markerBytes + j.sectors*sectorBytes }

// isJournal reports whether a file has the head of a journal.
func isJournal(file io.ReaderAt) (bool, error) {
	b := make([]byte, markerBytes)
	n, err := file.ReadAt(b, 0)
	switch {
	case n == len(b):
		return bytes.Equal(b, marker()), nil
	case errors.Is(err, io.EOF):
		return false, nil
	}
	return false, fmt.Errorf("storage: %w", err)
}

// readJournal returns a journal of the given size in bytes, and what its complete records result
// in. It returns a [CorruptError] if a sector is anything but what Save wrote, or empty because
// the write that would have filled it never ended. Errors of file itself are returned as they
// are. It needs no more memory than some multiple of the size.
func readJournal(file io.ReaderAt, size int64) (*journal, *draft, error) {
	head := make([]byte, sectorBytes)
	if err := readAt(file, head, markerBytes); err != nil {
		return nil, nil, err
	}
	j := &journal{next: 1, table: newMemoryTable()}
	var err error
	if j.salt, j.sectors, err = decodeHead(head); err != nil {
		return nil, nil, corruptSector(0, "%v", err)
	}
	if j.size() != size {
		return nil, nil, corrupt("the file", "it has %d bytes and should have %d", size, j.size())
	}
	d := &draft{table: j.table}
	r := &sectorReader{file: file, salt: j.salt, sectors: j.sectors}
	for j.next < j.sectors {
		payload, err := j.readRecord(r)
		if err != nil {
			return nil, nil, err
		}
		if payload == nil {
			err = j.checkTail(r)
			return j, d, err
		}
		if err := d.replay(j.record+1, payload); err != nil {
			return nil, nil, corrupt(fmt.Sprintf("record %d at sector %d", j.record+1, j.next), "%v", err)
		}
		j.record++
		j.next += sectorsFor(len(payload))
	}
	return j, d, nil
}

// readRecord returns the record that begins at j.next, nil if it is not complete.
func (j *journal) readRecord(r *sectorReader) (payload []byte, err error) {
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
func (j *journal) checkPart(s sector, number int64, length uint32) error {
	place := uint32(number - j.next)
	if s.record != j.record+1 || s.place != place || s.length != length {
		return corruptSector(number, "it is part %d of record %d with %d bytes, and should be part %d of record %d with %d bytes",
			s.place, s.record, s.length, place, j.record+1, length)
	}
	return nil
}

// checkTail checks the sectors from j.next on, where there is no complete record: they are empty,
// but for some of the one record that was under way when the process or the machine stopped.
func (j *journal) checkTail(r *sectorReader) error {
	if j.record == 0 {
		return corrupt("record 1", "it is not complete, although the file was synced with it")
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
