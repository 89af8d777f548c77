package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A record of a journal has the changes of one Save, and what they result in:
//
//	identity  32 bytes: cluster ID, node ID, incarnation, start
//	state     89 bytes, as in the record "state"; the transaction is the number of the record
//	changes   each a byte with the parts that follow:
//	          1  snapshot  4 bytes length, encoding
//	          2  entries   4 bytes count; each 8 bytes index, 4 bytes length, encoding
//	          4  hard state: term, vote, commit, 8 bytes each
//	          8  compact   as snapshot
//
// The first record of a file has all of the state as changes to an empty directory.

const (
	partSnapshot = 1 << iota
	partEntries
	partHard
	partCompact
	partAll = partSnapshot | partEntries | partHard | partCompact
)

// encodeJournalRecord returns the record of changes that resulted in d.
func encodeJournalRecord(d *draft, changes []change) []byte {
	b := make([]byte, 0, SectorBytes) // enough for most
	b = append(append(b, EncodeIdentity(d.identity)...), EncodeState(d.state)...)
	for i := range changes {
		b = appendChange(b, &changes[i])
	}
	return b
}

// appendChange appends what a change has beside the cluster ID, which is in the identity.
func appendChange(b []byte, c *change) []byte {
	parts := c.parts()
	if parts == 0 {
		return b
	}
	b = append(b, parts)
	if c.snapshot != nil {
		b = appendBytes(b, c.snapshot.payload)
	}
	if len(c.entries) > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(len(c.entries)))
	}
	for _, e := range c.entries {
		b = appendBytes(appendUint64s(b, e.at.Index), e.payload)
	}
	if h := c.hard; h != nil {
		b = appendUint64s(b, h.term, h.vote, h.commit)
	}
	if c.compact != nil {
		b = appendBytes(b, c.compact.payload)
	}
	return b
}

// parts says which parts a change has.
func (c *change) parts() (parts byte) {
	if c.snapshot != nil {
		parts |= partSnapshot
	}
	if len(c.entries) > 0 {
		parts |= partEntries
	}
	if c.hard != nil {
		parts |= partHard
	}
	if c.compact != nil {
		parts |= partCompact
	}
	return parts
}

func appendBytes(b, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

// journalRecord is a decoded record.
type journalRecord struct {
	identity Identity
	state    State
	changes  []change
}

// decodeJournalRecord is the reverse of encodeJournalRecord. The changes share memory with b.
func decodeJournalRecord(b []byte) (r journalRecord, err error) {
	if len(b) < identityBytes+stateBytes {
		return r, errLength
	}
	if r.identity, err = DecodeIdentity(b[:identityBytes]); err != nil {
		return r, fmt.Errorf("its identity: %w", err)
	}
	if r.state, err = DecodeState(b[identityBytes:][:stateBytes]); err != nil {
		return r, fmt.Errorf("its state: %w", err)
	}
	d := partDecoder{b[identityBytes+stateBytes:]}
	for len(d.b) > 0 {
		c, err := d.change()
		if err != nil {
			return r, err
		}
		r.changes = append(r.changes, c)
	}
	return r, nil
}

// partDecoder takes parts of changes from the front of b.
type partDecoder struct{ b []byte }

func (d *partDecoder) change() (c change, err error) {
	head, err := d.take(1)
	if err != nil {
		return c, err
	}
	parts := head[0]
	if parts == 0 || parts > partAll {
		return c, fmt.Errorf("it has a change of the unknown kind %#x", parts)
	}
	if parts&partSnapshot != 0 {
		if c.snapshot, err = d.snapshot(); err != nil {
			return c, err
		}
	}
	if parts&partEntries != 0 {
		if c.entries, err = d.entries(); err != nil {
			return c, err
		}
	}
	if parts&partHard != 0 {
		b, err := d.take(3 * 8)
		if err != nil {
			return c, err
		}
		c.hard = new(hardChange)
		readUint64s(b, &c.hard.term, &c.hard.vote, &c.hard.commit)
	}
	if parts&partCompact != 0 {
		c.compact, err = d.snapshot()
	}
	return c, err
}

func (d *partDecoder) take(n int) ([]byte, error) {
	if n > len(d.b) {
		return nil, errLength
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b, nil
}

func (d *partDecoder) bytes() ([]byte, error) {
	head, err := d.take(4)
	if err != nil {
		return nil, err
	}
	return d.take(int(binary.BigEndian.Uint32(head)))
}

func (d *partDecoder) snapshot() (*snapshotChange, error) {
	payload, err := d.bytes()
	if err != nil {
		return nil, err
	}
	s, err := DecodeSnapshot(payload)
	if err != nil {
		return nil, fmt.Errorf("its snapshot: %w", err)
	}
	if s.GetMetadata().GetIndex() == 0 {
		return nil, errors.New("its snapshot has no index")
	}
	return &snapshotChange{SnapshotPosition(s), payload}, nil
}

func (d *partDecoder) entries() (entries []entryChange, err error) {
	head, err := d.take(4)
	if err != nil {
		return nil, err
	}
	count := binary.BigEndian.Uint32(head)
	if count == 0 {
		return nil, errors.New("it has entries and counts none")
	}
	for range count {
		if head, err = d.take(8); err != nil {
			return nil, err
		}
		index := binary.BigEndian.Uint64(head)
		payload, err := d.bytes()
		if err != nil {
			return nil, err
		}
		e, err := DecodeEntry(index, payload)
		if err != nil {
			return nil, fmt.Errorf("its log entry %d: %w", index, err)
		}
		entries = append(entries, entryChange{Position{index, e.GetTerm()}, payload})
	}
	return entries, nil
}

// table is the log and the snapshot that the records result in, encoded.
type table struct {
	snapshot []byte // nil if there is none
	log      map[uint64][]byte
}

func newTable() *table { return &table{log: map[uint64][]byte{}} }

// whole returns the changes that lead from an empty directory to t and s.
func (t *table) whole(s *State) []change {
	first, second := change{}, change{}
	if t.snapshot != nil {
		first.snapshot = &snapshotChange{s.Snapshot, t.snapshot}
	}
	second.entries = make([]entryChange, 0, len(t.log))
	for _, index := range slices.Sorted(maps.Keys(t.log)) {
		// Its term is in the encoding, too, and is not needed here.
		second.entries = append(second.entries, entryChange{Position{Index: index}, t.log[index]})
	}
	if s.HasHard {
		second.hard = &hardChange{s.Term, s.Vote, s.Commit}
	}
	return []change{first, second}
}

// recovered returns what the records stand for.
func (j *Journal) recovered() (r Recovered, err error) {
	t := j.table
	r = Recovered{Identity: j.identity, HardState: j.state.HardState()}
	if t.snapshot != nil {
		if r.Snapshot, err = DecodeSnapshot(t.snapshot); err != nil {
			return Recovered{}, err
		}
	}
	for _, index := range slices.Sorted(maps.Keys(t.log)) {
		e, err := DecodeEntry(index, t.log[index])
		if err != nil {
			return Recovered{}, err
		}
		r.Entries = append(r.Entries, e)
	}
	return r, nil
}
