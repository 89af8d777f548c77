package redisstore

import (
	"encoding/binary"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// The first byte of a version's value.
const (
	valueDeleted = 'd'
	valuePresent = 'v'
)

// stampVersion and stampRecord begin the stamps, which are followed by 8 bytes of timestamp.
const (
	stampVersion = "v"
	stampRecord  = "r"
)

// encode returns the 8 big-endian bytes of a timestamp or revision.
func encode[T ~uint64](n T) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// encodeUnless0 is encode, with "" for 0.
func encodeUnless0[T ~uint64](n T) string {
	if n == 0 {
		return ""
	}
	return encode(n)
}

// stamp returns the stamp of a timestamp, or "" for 0.
func stamp(kind string, t isotone.Timestamp64) string {
	if t == 0 {
		return ""
	}
	return kind + encode(t)
}

func encodeValue(v txn.Version) string {
	if v.Deleted {
		return string(valueDeleted)
	}
	return string(valuePresent) + string(v.Value)
}

// decoder decodes the parts of an answer. After a part that is not what it should be, bad is set and
// the results mean nothing.
type decoder struct{ bad bool }

func (d *decoder) err() error {
	if d.bad {
		return isotone.Errorf(isotone.CodeInternal, "redisstore: the answer of a script is malformed: does another program write its keys?")
	}
	return nil
}

// list decodes a list of n elements, or of any number if n is negative.
func (d *decoder) list(v any, n int) []any {
	list, ok := v.([]any)
	if !ok || n >= 0 && len(list) != n {
		d.bad = true
		return make([]any, max(n, 0))
	}
	return list
}

func (d *decoder) text(v any) string {
	text, ok := v.(string)
	d.bad = d.bad || !ok
	return text
}

// number decodes 8 bytes after the prefix, or 0 from "".
func (d *decoder) number(v any, prefix string) uint64 {
	text := d.text(v)
	switch {
	case text == "":
		return 0
	case len(text) != len(prefix)+8 || text[:len(prefix)] != prefix:
		d.bad = true
		return 0
	}
	return binary.BigEndian.Uint64([]byte(text[len(prefix):]))
}

func (d *decoder) timestamp(v any, prefix string) isotone.Timestamp64 {
	return isotone.Timestamp64(d.number(v, prefix))
}

func (d *decoder) points(v any) txn.Points {
	list := d.list(v, 2)
	return txn.Points{Safe: d.timestamp(list[0], ""), Resolved: d.timestamp(list[1], "")}
}

// row decodes the fields of a row, of which the record of start was asked for.
func (d *decoder) row(v any, start isotone.Timestamp64) txn.Row {
	list := d.list(v, 8)
	row := txn.Row{
		Revision:      d.number(list[0], ""),
		Lock:          []byte(d.text(list[1])),
		Version:       txn.Version{Commit: d.timestamp(list[2], stampVersion)},
		Newest:        d.timestamp(list[4], stampVersion),
		OldestVersion: d.timestamp(list[5], stampVersion),
		OldestRecord:  d.timestamp(list[7], stampRecord),
	}
	if row.Version.Commit != 0 {
		d.value(list[3], &row.Version)
	}
	if d.text(list[6]) != "" {
		row.Record = txn.Record{Start: start, Commit: d.timestamp(list[6], "")}
	}
	return row
}

func (d *decoder) value(v any, to *txn.Version) {
	text := d.text(v)
	switch {
	case text == string(valueDeleted):
		to.Deleted = true
	case text != "" && text[0] == valuePresent:
		to.Value = []byte(text[1:])
	default:
		d.bad = true
	}
}
