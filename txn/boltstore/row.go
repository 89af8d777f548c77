package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

var (
	rowsKey     = []byte("rows")
	versionsKey = []byte("versions")
	recordsKey  = []byte("records")
	pointsKey   = []byte("points")
	sealedKey   = []byte("sealed")
	formatKey   = []byte("format")
)

const (
	// scanBytesMax bounds the values and locks in one answer to a scan, together with the largest row.
	scanBytesMax = 4 << 20
	// numberSize is the length of an encoded number.
	numberSize = 8
	// The first byte of a version.
	valuePresent, valueDeleted = 0, 1
)

// buckets are the buckets of a store in one transaction of bbolt. What they return is copied: their
// memory is valid within the transaction only.
type buckets struct{ store, rows, versions, records *bbolt.Bucket }

// create creates the buckets, unless they exist.
func create(tx *bbolt.Tx, name []byte) error {
	store, err := tx.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	for _, key := range [][]byte{rowsKey, versionsKey, recordsKey} {
		if _, err := store.CreateBucketIfNotExists(key); err != nil {
			return err
		}
	}
	if found := store.Get(formatKey); found != nil && !bytes.Equal(found, []byte{format}) {
		return isotone.Errorf(isotone.CodeInvalidArgument, "the store has format %v: want %d", found, format)
	}
	return store.Put(formatKey, []byte{format})
}

func bucketsOf(tx *bbolt.Tx, name []byte) *buckets {
	store := tx.Bucket(name)
	return &buckets{store: store, rows: store.Bucket(rowsKey), versions: store.Bucket(versionsKey), records: store.Bucket(recordsKey)}
}

// prefix returns what the keys of versions and records of a row begin with. No such prefix begins
// with another one.
func prefix(key []byte) []byte {
	b := make([]byte, 0, 2+len(key)+numberSize)
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	return append(b, key...)
}

func stamped(prefix []byte, t isotone.Timestamp64) []byte {
	return binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], uint64(t))
}

func encode(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func errMalformed(what string) error {
	return isotone.Errorf(isotone.CodeInternal, "the file has a malformed %s", what)
}

// read returns a row, with the record of start if start is not 0.
func (b *buckets) read(key []byte, at, start isotone.Timestamp64) (txn.Row, error) {
	stored := b.rows.Get(key)
	if stored == nil {
		return txn.Row{}, nil
	}
	if len(stored) < numberSize {
		return txn.Row{}, errMalformed("row")
	}
	row := txn.Row{Revision: binary.BigEndian.Uint64(stored), Lock: bytes.Clone(stored[numberSize:])}
	p := prefix(key)
	row.OldestVersion, _ = first(b.versions, p)
	row.OldestRecord, _ = first(b.records, p)
	row.Newest, _ = last(b.versions, p, 1<<64-1)
	var value []byte
	row.Version.Commit, value = last(b.versions, p, at)
	if row.Version.Commit != 0 {
		if len(value) < 1 || value[0] > valueDeleted {
			return txn.Row{}, errMalformed("version")
		}
		row.Version.Deleted, row.Version.Value = value[0] == valueDeleted, bytes.Clone(value[1:])
	}
	if commit := b.records.Get(stamped(p, start)); commit != nil {
		if len(commit) != numberSize {
			return txn.Row{}, errMalformed("record")
		}
		row.Record = txn.Record{Start: start, Commit: isotone.Timestamp64(binary.BigEndian.Uint64(commit))}
	}
	return row, nil
}

// timestampOf returns the timestamp of a key of versions or records, or 0 if it is not one of the row.
func timestampOf(key, prefix []byte) isotone.Timestamp64 {
	if len(key) != len(prefix)+numberSize || !bytes.HasPrefix(key, prefix) {
		return 0
	}
	return isotone.Timestamp64(binary.BigEndian.Uint64(key[len(prefix):]))
}

// first returns what a row has with the smallest timestamp, or 0.
func first(bucket *bbolt.Bucket, prefix []byte) (isotone.Timestamp64, []byte) {
	key, value := bucket.Cursor().Seek(prefix)
	return timestampOf(key, prefix), value
}

// last returns what a row has with the largest timestamp at or before at, or 0.
func last(bucket *bbolt.Bucket, prefix []byte, at isotone.Timestamp64) (isotone.Timestamp64, []byte) {
	cursor := bucket.Cursor()
	seek := stamped(prefix, at)
	key, value := cursor.Seek(seek)
	switch {
	case key == nil:
		key, value = cursor.Last()
	case !bytes.Equal(key, seek):
		key, value = cursor.Prev()
	}
	return timestampOf(key, prefix), value
}

func (b *buckets) scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (page txn.Page, err error) {
	cursor := b.rows.Cursor()
	size := 0
	for key, _ := cursor.Seek(r.From); key != nil; key, _ = cursor.Next() {
		if len(r.To) > 0 && bytes.Compare(key, r.To) >= 0 {
			return page, nil
		}
		if len(page.Entries) == r.Limit || size > scanBytesMax {
			page.More = true
			return page, nil
		}
		row, err := b.read(key, at, 0)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return txn.Page{}, err
		}
		size += len(row.Lock) + len(row.Version.Value)
		page.Entries = append(page.Entries, txn.Entry{Key: bytes.Clone(key), Row: row})
	}
	return page, nil
}

// write applies a change if the row has the revision.
func (b *buckets) write(key []byte, c *txn.Change) (ok bool, refused, err error) {
	stored := b.rows.Get(key)
	var revision uint64
	if stored != nil {
		if len(stored) < numberSize {
			return false, nil, errMalformed("row")
		}
		revision = binary.BigEndian.Uint64(stored)
	}
	if revision != c.If {
		return false, nil, nil
	}
	if sealed, err := b.sealed(); err != nil || c.Record.Commit != 0 && c.Record.Commit <= sealed {
		return false, isotone.Errorf(isotone.CodeFenced, "the commit timestamp %v comes too late: all up to %v are sealed", c.Record.Commit, sealed), err
	}
	p := prefix(key)
	if err := b.add(p, c); err != nil {
		return false, nil, err
	}
	if err := drop(b.versions, p, c.DropVersions); err != nil {
		return false, nil, err
	}
	if err := drop(b.records, p, c.DropRecords); err != nil {
		return false, nil, err
	}
	version, _ := first(b.versions, p)
	record, _ := first(b.records, p)
	if len(c.Lock) == 0 && version == 0 && record == 0 {
		return true, nil, b.rows.Delete(key)
	}
	return true, nil, b.rows.Put(key, append(encode(c.Next), c.Lock...))
}

func (b *buckets) add(prefix []byte, c *txn.Change) error {
	if c.Put.Commit != 0 {
		value := append([]byte{valuePresent}, c.Put.Value...)
		if c.Put.Deleted {
			value = []byte{valueDeleted}
		}
		if err := b.versions.Put(stamped(prefix, c.Put.Commit), value); err != nil {
			return err
		}
	}
	if c.Record.Start == 0 {
		return nil
	}
	return b.records.Put(stamped(prefix, c.Record.Start), encode(uint64(c.Record.Commit)))
}

// drop removes what a row has with timestamps below before.
func drop(bucket *bbolt.Bucket, prefix []byte, before isotone.Timestamp64) error {
	if before == 0 {
		return nil
	}
	for {
		// A cursor may skip a key after a deletion.
		t, _ := first(bucket, prefix)
		if t == 0 || t >= before {
			return nil
		}
		if err := bucket.Delete(stamped(prefix, t)); err != nil {
			return err
		}
	}
}

func (b *buckets) points() (txn.Points, error) {
	stored := b.store.Get(pointsKey)
	switch len(stored) {
	case 0:
		return txn.Points{}, nil
	case 2 * numberSize:
		return txn.Points{
			Safe:     isotone.Timestamp64(binary.BigEndian.Uint64(stored)),
			Resolved: isotone.Timestamp64(binary.BigEndian.Uint64(stored[numberSize:])),
		}, nil
	default:
		return txn.Points{}, errMalformed("record of points")
	}
}

func (b *buckets) raise(p txn.Points) error {
	now, err := b.points()
	if err != nil {
		return err
	}
	stored := encode(uint64(max(now.Safe, p.Safe)))
	return b.store.Put(pointsKey, binary.BigEndian.AppendUint64(stored, uint64(max(now.Resolved, p.Resolved))))
}

// sealed returns the timestamp up to which commits are refused.
func (b *buckets) sealed() (isotone.Timestamp64, error) {
	stored := b.store.Get(sealedKey)
	switch len(stored) {
	case 0:
		return 0, nil
	case numberSize:
		return isotone.Timestamp64(binary.BigEndian.Uint64(stored)), nil
	default:
		return 0, errMalformed("fence")
	}
}

func (b *buckets) seal(through isotone.Timestamp64) error {
	now, err := b.sealed()
	if err != nil {
		return err
	}
	return b.store.Put(sealedKey, encode(uint64(max(now, through))))
}
