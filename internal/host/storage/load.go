package storage

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/journal"
)

// load reads every record of the file and checks that they are those of one Save: none missing,
// unknown or misplaced.
func load(tx *bbolt.Tx) (Recovered, journal.State, error) {
	if err := loadFormat(tx); err != nil {
		return Recovered{}, journal.State{}, err
	}
	if err := checkNames(tx); err != nil {
		return Recovered{}, journal.State{}, err
	}
	s, err := loadState(tx)
	if err != nil {
		return Recovered{}, journal.State{}, err
	}
	r := Recovered{Format: FormatBolt, HardState: s.HardState()}
	if r.Identity, err = loadIdentity(tx, s); err != nil {
		return Recovered{}, journal.State{}, err
	}
	if r.Snapshot, err = loadSnapshot(tx, s); err != nil {
		return Recovered{}, journal.State{}, err
	}
	if r.Entries, err = loadLog(tx, s); err != nil {
		return Recovered{}, journal.State{}, err
	}
	return r, s, nil
}

// loadFormat comes first: the rest of an unknown format cannot be interpreted.
func loadFormat(tx *bbolt.Tx) error {
	payload, _, err := loadRecord(tx, journal.KeyFormat)
	if err != nil {
		return err
	}
	format, err := journal.DecodeFormat(payload)
	if err != nil {
		return journal.Corrupt("the record format", "%v", err)
	}
	switch format {
	case FormatBolt:
		return nil
	case FormatJournal:
		return journal.Corrupt("the head of the file", "it is not exactly that of format %d", FormatJournal)
	}
	return &FormatError{Have: format, Reads: FormatNewest}
}

// checkNames refuses buckets and records that this format does not have.
func checkNames(tx *bbolt.Tx) error {
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if n := string(name); n != journal.BucketMeta && n != journal.BucketLog {
			return journal.Corrupt(fmt.Sprintf("bucket %q", n), "this format has no such bucket")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if tx.Bucket([]byte(journal.BucketLog)) == nil {
		return journal.Corrupt("bucket \"log\"", "it is missing")
	}
	return tx.Bucket([]byte(journal.BucketMeta)).ForEach(func(key, _ []byte) error {
		switch string(key) {
		case journal.KeyFormat, journal.KeyIdentity, journal.KeyState, journal.KeySnapshot:
			return nil
		}
		return journal.Corrupt(fmt.Sprintf("the record %q", key), "this format has no such record")
	})
}

// loadRecord returns the payload of a record that must be there, and its
// checksum. The payload shares the memory of the transaction.
func loadRecord(tx *bbolt.Tx, key string) (payload []byte, sum uint64, err error) {
	bucket := tx.Bucket([]byte(journal.BucketMeta))
	if bucket == nil {
		return nil, 0, journal.Corrupt("bucket \"isotone\"", "it is missing")
	}
	record := bucket.Get([]byte(key))
	if record == nil {
		return nil, 0, journal.Corrupt("the record "+key, "it is missing")
	}
	if payload, err = journal.DecodeRecord(journal.BucketMeta, []byte(key), record); err != nil {
		return nil, 0, journal.Corrupt("the record "+key, "%v", err)
	}
	return payload, journal.RecordSum(record), nil
}

func loadState(tx *bbolt.Tx) (journal.State, error) {
	payload, _, err := loadRecord(tx, journal.KeyState)
	if err != nil {
		return journal.State{}, err
	}
	s, err := journal.DecodeState(payload)
	if err != nil {
		return journal.State{}, journal.Corrupt("the record state", "%v", err)
	}
	if now := uint64(tx.ID()); s.Transaction != now {
		return journal.State{}, journal.Corrupt("the record state", "it is that of transaction %d, and the last one was %d", s.Transaction, now)
	}
	return s, nil
}

func loadIdentity(tx *bbolt.Tx, s journal.State) (Identity, error) {
	payload, sum, err := loadRecord(tx, journal.KeyIdentity)
	if err != nil {
		return Identity{}, err
	}
	id, err := journal.DecodeIdentity(payload)
	if err != nil {
		return Identity{}, journal.Corrupt("the record identity", "%v", err)
	}
	if sum != s.IdentitySum {
		return Identity{}, journal.Corrupt("the record identity", "it is not the one written last")
	}
	return id, nil
}

// loadSnapshot returns the snapshot that the state names, nil for none.
func loadSnapshot(tx *bbolt.Tx, s journal.State) (*raftpb.Snapshot, error) {
	if s.Snapshot == (journal.Position{}) {
		if tx.Bucket([]byte(journal.BucketMeta)).Get([]byte(journal.KeySnapshot)) != nil {
			return nil, journal.Corrupt("the record snapshot", "the state knows of none")
		}
		return nil, nil
	}
	payload, sum, err := loadRecord(tx, journal.KeySnapshot)
	if err != nil {
		return nil, err
	}
	snapshot, err := journal.DecodeSnapshot(payload)
	if err != nil {
		return nil, journal.Corrupt("the record snapshot", "%v", err)
	}
	if at := journal.SnapshotPosition(snapshot); at != s.Snapshot {
		return nil, journal.Corrupt("the record snapshot", "it is at index %d, term %d, and should be at index %d, term %d",
			at.Index, at.Term, s.Snapshot.Index, s.Snapshot.Term)
	}
	if sum != s.SnapshotSum {
		return nil, journal.Corrupt("the record snapshot", "it is not the one written last")
	}
	return snapshot, nil
}

// loadLog returns the entries after the snapshot, up to the end that the state names.
func loadLog(tx *bbolt.Tx, s journal.State) ([]*raftpb.Entry, error) {
	var entries []*raftpb.Entry
	at, sum := s.Snapshot, uint64(0)
	err := tx.Bucket([]byte(journal.BucketLog)).ForEach(func(key, record []byte) error {
		entry, err := loadEntry(key, record, at)
		if err != nil {
			return err
		}
		at = journal.Position{Index: entry.GetIndex(), Term: entry.GetTerm()}
		sum ^= journal.RecordSum(record)
		entries = append(entries, entry)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if at != s.Last {
		return nil, journal.Corrupt(fmt.Sprintf("log entry %d", at.Index),
			"the log ends here, in term %d, and should end at index %d, term %d", at.Term, s.Last.Index, s.Last.Term)
	}
	if sum != s.LogSum {
		return nil, journal.Corrupt("the log", "its entries are not those written last")
	}
	return entries, nil
}

// loadEntry decodes the entry that must follow the one at previous.
func loadEntry(key, record []byte, previous journal.Position) (*raftpb.Entry, error) {
	if len(key) != journal.LogKeyBytes {
		return nil, journal.Corrupt(fmt.Sprintf("log entry %x", key), "its key is no index")
	}
	index := binary.BigEndian.Uint64(key)
	name := fmt.Sprintf("log entry %d", index)
	payload, err := journal.DecodeRecord(journal.BucketLog, key, record)
	if err != nil {
		return nil, journal.Corrupt(name, "%v", err)
	}
	entry, err := journal.DecodeEntry(index, payload)
	switch {
	case err != nil:
		return nil, journal.Corrupt(name, "%v", err)
	case index != previous.Index+1:
		return nil, journal.Corrupt(name, "it follows index %d, with a gap or an overlap", previous.Index)
	case entry.GetTerm() < previous.Term:
		return nil, journal.Corrupt(name, "its term %d is below the term %d before it", entry.GetTerm(), previous.Term)
	}
	return entry, nil
}
