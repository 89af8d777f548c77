package journal

import (
	"errors"
	"fmt"

	"github.com/isotone/isotone/internal/core/mutant"
)

// Create writes the first file of a journal, which has no more than an identity, and a spare file of the
// same size: where names can be exchanged, a start needs no more room on the disk from then on.
func Create(o Options, id Identity) (*Journal, error) {
	j := &Journal{o: o, table: newTable()}
	if err := j.replace(&draft{table: j.table, identity: id}); err != nil {
		return nil, err
	}
	if err := j.makeSpare(); err != nil {
		_ = j.file.Close()
		return nil, err
	}
	return j, nil
}

// makeSpare writes a spare file without records, which has the blocks of the next file.
func (j *Journal) makeSpare() error {
	f, err := j.o.Files.Spare()
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f, make([]byte, j.size())), f.Close()); err != nil {
		return err
	}
	return j.o.Files.Sync()
}

// Begin counts a start. It writes the journal anew: that leaves behind what is left of a record that
// was not complete, and makes durable what a failed sync left in memory only, which is read from there
// as if it were on the disk. After an error the journal must not be used.
func (j *Journal) Begin() error {
	// The last process may have ended before it could sync the names. Then the file that is the
	// spare one now is the data file after a power cut, and must not be overwritten.
	if !mutant.On(mutant.SpareBeforeNames) {
		if err := j.o.Files.Sync(); err != nil {
			return err
		}
	}
	d := j.draft()
	d.identity.Boot++
	if mutant.On(mutant.GoOnInTail) {
		return j.add(&d, nil)
	}
	return j.replace(&d)
}

// Save makes the writes durable, all or none: it appends one record, or writes a new file if there is
// no room. After an error the journal must not be used: how much of them is on the disk is unknown
// (I8).
func (j *Journal) Save(writes ...Write) error {
	changes, err := prepareAll(writes)
	if err != nil {
		return err
	}
	d := j.draft()
	if err := d.applyAll(changes); err != nil {
		return err
	}
	return j.add(&d, changes)
}

// add makes the changes that have resulted in d durable, and adopts them.
func (j *Journal) add(d *draft, changes []change) error {
	d.seal(j.record + 1)
	payload := encodeJournalRecord(d, changes)
	if sectorsFor(len(payload)) > j.sectors-j.next {
		return j.replace(d)
	}
	if err := j.append(payload); err != nil {
		return err
	}
	j.identity, j.state = d.identity, d.state
	return nil
}

func (j *Journal) draft() draft { return draft{table: j.table, identity: j.identity, state: j.state} }

// append writes a record and syncs it.
func (j *Journal) append(payload []byte) error {
	size, err := j.file.Size()
	if err != nil {
		return err
	}
	if size != j.size() {
		return fmt.Errorf("its size has changed from %d to %d", j.size(), size)
	}
	b := appendSectors(nil, j.salt, j.next, j.record+1, payload)
	if _, err := j.file.WriteAt(b, j.at(j.next)); err != nil {
		return err
	}
	if err := j.sync(); err != nil {
		return err
	}
	j.record++
	j.next += int64(len(b) / SectorBytes)
	return nil
}

// sync makes the last record durable. It is not tried again: after a failure, the kernel may count what
// it could not write as written (I8).
func (j *Journal) sync() error {
	if mutant.On(mutant.SaveUnsynced) {
		return nil
	}
	err := j.file.SyncData()
	if err != nil && mutant.On(mutant.RetryFailedSync) {
		err = j.file.SyncData()
	}
	return err
}

// replace goes on in a new file with the state d. It syncs twice: the file, and the directory.
func (j *Journal) replace(d *draft) error {
	d.seal(1)
	next := Journal{o: j.o, salt: j.o.Salt(), record: 1, table: j.table, identity: d.identity, state: d.state}
	content, err := next.encode(d)
	if err != nil {
		return err
	}
	if next.file, err = j.install(content); err != nil {
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // it is not needed any more
	}
	*j = next
	return nil
}

// encode returns the content of a new file, and sets what it follows from that in j.
func (j *Journal) encode(d *draft) ([]byte, error) {
	payload := encodeJournalRecord(d, j.table.whole(&d.state))
	if len(payload) > journalRecordBytesMax {
		return nil, &LimitError{What: "the state of the node", Size: len(payload), Max: journalRecordBytesMax}
	}
	j.next = 1 + sectorsFor(len(payload))
	j.sectors = j.next + j.o.SpareSectors
	content := make([]byte, 0, j.size())
	content = append(content, journalHead(j.salt, j.sectors)...)
	return appendSectors(content, j.salt, 1, 1, payload)[:j.size()], nil
}

// install writes a new data file beside the present one, syncs it, and exchanges their names. So
// the directory has one complete data file at any time. The former one becomes the spare file,
// which the next call overwrites: it has its blocks already, so a disk that others have filled
// does not stop a node. The empty sectors are written as well: a file system that allocates or
// initializes them later would have to sync more than the data of a Save then.
//
// The spare file may only be overwritten when the names are durable: until then it may be the
// data file after a power cut. See Begin.
func (j *Journal) install(content []byte) (File, error) {
	f, err := j.o.Files.Spare()
	if err != nil {
		return nil, err
	}
	if err = fill(f, content); err == nil {
		err = j.o.Files.Exchange(f)
	}
	if err == nil && !mutant.On(mutant.NamesUnsynced) {
		err = j.o.Files.Sync()
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// fill replaces the content of a file, and syncs it.
func fill(f File, content []byte) error {
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(content))); err != nil {
		return err
	}
	return f.Sync()
}
