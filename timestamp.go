package isotone

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
)

// TimestampSize is the length in bytes of an encoded [Timestamp].
const TimestampSize = 16

// RangeSize is the length in bytes of an encoded [Range].
const RangeSize = TimestampSize + 8

// RangeCountMax is the largest number of timestamps that one request may ask
// for. An index has 64 bits, so a single epoch holds 2^32 such ranges.
const RangeCountMax = 1 << 32

// Timestamp is one point in the order that the oracle keeps. Timestamps compare
// by Time, then by Index; their encoded bytes compare the same way.
//
// Time is close to the wall clock but does not measure it: after a failover it
// may run ahead, and it stands still while the clock does. Only the order of
// timestamps is meaningful.
//
// The zero Timestamp is smaller than every timestamp ever issued.
type Timestamp struct {
	// Time is the epoch, in nanoseconds since 1970-01-01 UTC.
	Time uint64
	// Index counts the timestamps of one epoch, from 0.
	Index uint64
}

// Compare returns -1, 0 or +1 as t is before, equal to or after u.
func (t Timestamp) Compare(u Timestamp) int {
	if c := cmp.Compare(t.Time, u.Time); c != 0 {
		return c
	}
	return cmp.Compare(t.Index, u.Index)
}

// Before reports whether t is smaller than u.
func (t Timestamp) Before(u Timestamp) bool {
	return t.Time < u.Time || t.Time == u.Time && t.Index < u.Index
}

// AppendBinary appends the 16 big-endian bytes of t to b. The error is always
// nil; it is there to implement [encoding.BinaryAppender].
func (t Timestamp) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, t.Time)
	return binary.BigEndian.AppendUint64(b, t.Index), nil
}

// MarshalBinary returns the 16 big-endian bytes of t.
func (t Timestamp) MarshalBinary() ([]byte, error) {
	return t.AppendBinary(make([]byte, 0, TimestampSize))
}

// UnmarshalBinary sets t from exactly 16 bytes. Any other length gives an error
// that matches [ErrInvalidArgument] and leaves t as it was.
func (t *Timestamp) UnmarshalBinary(b []byte) error {
	if len(b) != TimestampSize {
		return Errorf(CodeInvalidArgument, "a timestamp has %d bytes, got %d", TimestampSize, len(b))
	}
	t.Time = binary.BigEndian.Uint64(b)
	t.Index = binary.BigEndian.Uint64(b[8:])
	return nil
}

// String returns the encoded timestamp as 32 lower-case hexadecimal digits.
// Strings compare as timestamps do.
func (t Timestamp) String() string {
	return fmt.Sprintf("%016x%016x", t.Time, t.Index)
}

// ParseTimestamp parses the form that [Timestamp.String] returns. Its errors match
// [ErrInvalidArgument].
func ParseTimestamp(s string) (Timestamp, error) {
	var b [TimestampSize]byte
	if len(s) != 2*TimestampSize {
		return Timestamp{}, Errorf(CodeInvalidArgument, "a timestamp has %d hexadecimal digits, got %d characters", 2*TimestampSize, len(s))
	}
	if _, err := hex.Decode(b[:], []byte(s)); err != nil {
		return Timestamp{}, Errorf(CodeInvalidArgument, "timestamp %q: %v", s, err)
	}
	var t Timestamp
	err := t.UnmarshalBinary(b[:])
	return t, err
}

// Range is a run of timestamps with one Time and consecutive indexes.
// The zero Range is empty.
type Range struct {
	First Timestamp
	// Count is the number of timestamps, 0 to [RangeCountMax].
	Count uint64
}

// At returns the i-th timestamp of the range. It panics unless i < r.Count.
func (r Range) At(i uint64) Timestamp {
	if i >= r.Count {
		panic(fmt.Sprintf("isotone: timestamp %d of a range of %d", i, r.Count))
	}
	return Timestamp{Time: r.First.Time, Index: r.First.Index + i}
}

// Last returns the largest timestamp of the range. It panics if the range is
// empty.
func (r Range) Last() Timestamp { return r.At(r.Count - 1) }

// All yields the timestamps of the range in increasing order.
func (r Range) All() iter.Seq[Timestamp] {
	return func(yield func(Timestamp) bool) {
		for i := range r.Count {
			if !yield(r.At(i)) {
				return
			}
		}
	}
}

// AppendBinary appends the 24 bytes of r to b: the first timestamp, then the
// count as 8 big-endian bytes. The error is always nil.
func (r Range) AppendBinary(b []byte) ([]byte, error) {
	b, _ = r.First.AppendBinary(b)
	return binary.BigEndian.AppendUint64(b, r.Count), nil
}

// UnmarshalBinary sets r from exactly 24 bytes. Any other length gives an error
// that matches [ErrInvalidArgument] and leaves r as it was.
func (r *Range) UnmarshalBinary(b []byte) error {
	if len(b) != RangeSize {
		return Errorf(CodeInvalidArgument, "a range has %d bytes, got %d", RangeSize, len(b))
	}
	_ = r.First.UnmarshalBinary(b[:TimestampSize])
	r.Count = binary.BigEndian.Uint64(b[TimestampSize:])
	return nil
}
