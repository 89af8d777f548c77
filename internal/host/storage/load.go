package storage

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"
)

// load reads every record of the file and checks that they are those of one Save: none missing,
// unknown or misplaced.
func load(tx *bbolt.Tx) (Recovered, state, error) {
	if err := loadFormat(tx); err != nil {
		return Recovered{}, state{}, err
	}
	if err := checkNames(tx); err != nil {
		return Recovered{}, state{}, err
	}
	s, err := loadState(tx)
	if err != nil {
		return Recovered{}, state{}, err
	}
	r := Recovered{Format: FormatBolt, HardState: s.hardState()}
	if r.Identity, err = loadIdentity(tx, s); err != nil {
		return Recovered{}, state{}, err
	}
	if r.Snapshot, err = loadSnapshot(tx, s); err != nil {
		return Recovered{}, state{}, err
	}
	if r.Entries, err = loadLog(tx, s); err != nil {
		return Recovered{}, state{}, err
	}
	return r, s, nil
}

// loadFormat comes first: the rest of an unknown format cannot be interpreted.
func loadFormat(tx *bbolt.Tx) error {
	payload, _, err := loadRecord(tx, keyFormat)
	if err != nil {
		return err
	}
	format, err := decodeFormat(payload)
	if err != nil {
		return corrupt("the record format", "%v", err)
	}
	switch format {
	case FormatBolt:
		return nil
	case FormatJournal:
		return corrupt("the head of the file", "it is not exactly that of format %d", FormatJournal)
	}
	return &FormatError{Have: format, Reads: FormatNewest}
}

// checkNames refuses buckets and records that this format does not have.
func checkNames(tx *bbolt.Tx) error {
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if n := string(name); n != bucketMeta && n != bucketLog {
			return corrupt(fmt.Sprintf("bucket %q", n), "this format has no such bucket")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if tx.Bucket([]byte(bucketLog)) == nil {
		return corrupt("bucket \"log\"", "it is missing")
	}
	return tx.Bucket([]byte(bucketMeta)).ForEach(func(key, _ []byte) error {
		switch string(key) {
		case keyFormat, keyIdentity, keyState, keySnapshot:
			return nil
		}
		return corrupt(fmt.Sprintf("the record %q", key), "this format has no such record")
	})
}

// loadRecord returns the payload of a record that must be there, and its
// checksum. The payload shares the memory of the transaction.
func loadRecord(tx *bbolt.Tx, key string) (payload []byte, sum uint64, err error) {
	bucket := tx.Bucket([]byte(bucketMeta))
	if bucket == nil {
		return nil, 0, corrupt("bucket \"isotone\"", "it is missing")
	}
	record := bucket.Get([]byte(key))
	if record == nil {
		return nil, 0, corrupt("the record "+key, "it is missing")
	}
	if payload, err = decodeRecord(bucketMeta, []byte(key), record); err != nil {
		return nil, 0, corrupt("the record "+key, "%v", err)
	}
	return payload, recordSum(record), nil
}

func loadState(tx *bbolt.Tx) (state, error) {
	payload, _, err := loadRecord(tx, keyState)
	if err != nil {
		return state{}, err
	}
	s, err := decodeState(payload)
	if err != nil {
		return state{}, corrupt("the record state", "%v", err)
	}
	if now := uint64(tx.ID()); s.transaction != now {
		return state{}, corrupt("the record state", "it is that of transaction %d, and the last one was %d", s.transaction, now)
	}
	return s, nil
}

func loadIdentity(tx *bbolt.Tx, s state) (Identity, error) {
	payload, sum, err := loadRecord(tx, keyIdentity)
	if err != nil {
		return Identity{}, err
	}
	id, err := decodeIdentity(payload)
	if err != nil {
		return Identity{}, corrupt("the record identity", "%v", err)
	}
	if sum != s.identitySum {
		return Identity{}, corrupt("the record identity", "it is not the one written last")
	}
	return id, nil
}

// loadSnapshot returns the snapshot that the state names, nil for none.
func loadSnapshot(tx *bbolt.Tx, s state) (*raftpb.Snapshot, error) {
	if s.snapshot == (position{}) {
		if tx.Bucket([]byte(bucketMeta)).Get([]byte(keySnapshot)) != nil {
			return nil, corrupt("the record snapshot", "the state knows of none")
		}
		return nil, nil
	}
	payload, sum, err := loadRecord(tx, keySnapshot)
	if err != nil {
		return nil, err
	}
	snapshot, err := decodeSnapshot(payload)
	if err != nil {
		return nil, corrupt("the record snapshot", "%v", err)
	}
	if at := snapshotPosition(snapshot); at != s.snapshot {
		return nil, corrupt("the record snapshot", "it is at index %d, term %d, and should be at index %d, term %d",
			at.index, at.term, s.snapshot.index, s.snapshot.term)
	}
	if sum != s.snapshotSum {
		return nil, corrupt("the record snapshot", "it is not the one written last")
	}
	return snapshot, nil
}

// loadLog returns the entries after the snapshot, up to the end that the state names.
func loadLog(tx *bbolt.Tx, s state) ([]*raftpb.Entry, error) {
	var entries []*raftpb.Entry
	at, sum := s.snapshot, uint64(0)
	err := tx.Bucket([]byte(bucketLog)).ForEach(func(key, record []byte) error {
		entry, err := loadEntry(key, record, at)
		if err != nil {
			return err
		}
		at = position{entry.GetIndex(), entry.GetTerm()}
		sum ^= recordSum(record)
		entries = append(entries, entry)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if at != s.last {
		return nil, corrupt(fmt.Sprintf("log entry %d", at.index),
			"the log ends here, in term %d, and should end at index %d, term %d", at.term, s.last.index, s.last.term)
	}
	if sum != s.logSum {
		return nil, corrupt("the log", "its entries are not those written last")
	}
	return entries, nil
}

// loadEntry decodes the entry that must follow the one at previous.
func loadEntry(key, record []byte, previous position) (*raftpb.Entry, error) {
	if len(key) != logKeyBytes {
		return nil, corrupt(fmt.Sprintf("log entry %x", key), "its key is no index")
	}
	index := binary.BigEndian.Uint64(key)
	name := fmt.Sprintf("log entry %d", index)
	payload, err := decodeRecord(bucketLog, key, record)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	entry, err := decodeEntry(index, payload)
	switch {
	case err != nil:
		return nil, corrupt(name, "%v", err)
	case index != previous.index+1:
		return nil, corrupt(name, "it follows index %d, with a gap or an overlap", previous.index)
	case entry.GetTerm() < previous.term:
		return nil, corrupt(name, "its term %d is below the term %d before it", entry.GetTerm(), previous.term)
	}
	return entry, nil
}
