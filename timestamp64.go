package isotone

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"
)

// Timestamp64 is a timestamp of 64 bits, for stores whose versions are numbers: the unix millisecond,
// followed by a counter of [Timestamp64CounterBits] bits. That is the layout of TiKV's placement
// driver (PD).
//
// Timestamps of both forms have one order: a Timestamp64 stands where its [Timestamp64.Timestamp]
// stands. So the 64-bit form is the same axis of time in steps of 3.8 ns, and an oracle that issues one
// has issued all of its axis up to there.
//
// As JSON it is a decimal string, because JavaScript's numbers have 53 bits; in SQL it is a BIGINT. The
// zero Timestamp64 is smaller than every one ever issued.
type Timestamp64 uint64

const (
	// Timestamp64Size is the length in bytes of an encoded [Timestamp64].
	Timestamp64Size = 8
	// Timestamp64CounterBits is the length of the counter: there are 262,144 timestamps in a millisecond.
	Timestamp64CounterBits = 18
	// Range64CountMax is the largest number of 64-bit timestamps that one request may ask for: those
	// of one millisecond.
	Range64CountMax = 1 << Timestamp64CounterBits

	nanosPerMilli = uint64(time.Millisecond)
	counterMask   = 1<<Timestamp64CounterBits - 1
)

// NewTimestamp64 returns the timestamp with that unix millisecond and counter. It panics unless milli has
// at most 46 bits and counter at most 18.
func NewTimestamp64(milli, counter uint64) Timestamp64 {
	if milli>>(64-Timestamp64CounterBits) != 0 || counter > counterMask {
		panic(fmt.Sprintf("isotone: no 64-bit timestamp has millisecond %d and counter %d", milli, counter))
	}
	return Timestamp64(milli<<Timestamp64CounterBits | counter)
}

// Timestamp64From returns the smallest Timestamp64 that is not before t.
func Timestamp64From(t Timestamp) Timestamp64 {
	if t == (Timestamp{}) {
		return 0
	}
	// The time of u is u·10^6/2^18, rounded up. It is later than before if u·10^6/2^18 is.
	before := t.Time
	if t.Index == 0 {
		before--
	}
	milli, rest := before/nanosPerMilli, before%nanosPerMilli
	u := milli<<Timestamp64CounterBits + rest<<Timestamp64CounterBits/nanosPerMilli + 1
	return Timestamp64(u)
}

// Timestamp returns the place of t in the order of all timestamps: the earliest nanosecond that is not
// before it, with index 0. Different 64-bit timestamps have different ones, in the same order; except
// those after the year 2553, which no Timestamp can have.
func (t Timestamp64) Timestamp() Timestamp {
	if t.Milli() >= math.MaxUint64/nanosPerMilli {
		return Timestamp{Time: math.MaxUint64}
	}
	fraction := t.Counter() * nanosPerMilli
	return Timestamp{Time: t.Milli()*nanosPerMilli + (fraction+counterMask)>>Timestamp64CounterBits}
}

// Milli returns the unix millisecond of t.
func (t Timestamp64) Milli() uint64 { return uint64(t) >> Timestamp64CounterBits }

// Counter returns the counter of t within its millisecond.
func (t Timestamp64) Counter() uint64 { return uint64(t) & counterMask }

// Time returns the millisecond of t as a time in UTC. It is close to that of a wall clock, but only the
// order of timestamps is meaningful.
func (t Timestamp64) Time() time.Time { return time.UnixMilli(int64(t.Milli())).UTC() }

// Before reports whether t is smaller than u.
func (t Timestamp64) Before(u Timestamp64) bool { return t < u }

// String returns t as a decimal number.
func (t Timestamp64) String() string { return strconv.FormatUint(uint64(t), 10) }

// ParseTimestamp64 parses a decimal number of 1 to 20 digits. Its errors match [ErrInvalidArgument].
func ParseTimestamp64(s string) (Timestamp64, error) {
	u, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '+' {
		return 0, Errorf(CodeInvalidArgument, "timestamp %q: want a decimal number of 64 bits", s)
	}
	return Timestamp64(u), nil
}

// AppendBinary appends the 8 big-endian bytes of t to b. The error is always nil; it is there to
// implement [encoding.BinaryAppender].
func (t Timestamp64) AppendBinary(b []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint64(b, uint64(t)), nil
}

// MarshalBinary returns the 8 big-endian bytes of t. They compare as timestamps do.
func (t Timestamp64) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// UnmarshalBinary sets t from exactly 8 bytes. Any other length gives an error that matches
// [ErrInvalidArgument] and leaves t as it was.
func (t *Timestamp64) UnmarshalBinary(b []byte) error {
	if len(b) != Timestamp64Size {
		return Errorf(CodeInvalidArgument, "a 64-bit timestamp has %d bytes, got %d", Timestamp64Size, len(b))
	}
	*t = Timestamp64(binary.BigEndian.Uint64(b))
	return nil
}

// MarshalText returns t as a decimal number; as JSON it is therefore a string.
func (t Timestamp64) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(t), 10), nil
}

// UnmarshalText sets t from a decimal number.
func (t *Timestamp64) UnmarshalText(b []byte) error {
	parsed, err := ParseTimestamp64(string(b))
	if err == nil {
		*t = parsed
	}
	return err
}

// UnmarshalJSON sets t from a string or a number with all its digits; null leaves it as it was.
func (t *Timestamp64) UnmarshalJSON(b []byte) error {
	s := string(b)
	switch {
	case s == "null":
		return nil
	case len(s) > 0 && s[0] == '"':
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	return t.UnmarshalText([]byte(s))
}

// Value implements [driver.Valuer]: a timestamp is an int64 in SQL. Timestamps before the year 3084
// fit, and compare there as here.
func (t Timestamp64) Value() (driver.Value, error) {
	if t > math.MaxInt64 {
		return nil, Errorf(CodeInvalidArgument, "timestamp %v does not fit a signed 64-bit number", t)
	}
	return int64(t), nil
}

// Scan implements [database/sql.Scanner]: it takes a number that is not negative, or its digits.
func (t *Timestamp64) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		if v < 0 {
			return Errorf(CodeInvalidArgument, "timestamp %d is negative", v)
		}
		*t = Timestamp64(v)
		return nil
	case []byte:
		return t.UnmarshalText(v)
	case string:
		return t.UnmarshalText([]byte(v))
	}
	return Errorf(CodeInvalidArgument, "a 64-bit timestamp is a number or a string, got %T", src)
}

// Range64 is a run of consecutive 64-bit timestamps. The zero Range64 is empty.
type Range64 struct {
	First Timestamp64
	// Count is the number of timestamps, 0 to [Range64CountMax].
	Count uint64
}

// At returns the i-th timestamp of the range. It panics unless i < r.Count.
func (r Range64) At(i uint64) Timestamp64 {
	if i >= r.Count {
		panic(fmt.Sprintf("isotone: timestamp %d of a range of %d", i, r.Count))
	}
	return r.First + Timestamp64(i)
}

// Last returns the largest timestamp of the range. It panics if the range is empty.
func (r Range64) Last() Timestamp64 { return r.At(r.Count - 1) }

// All yields the timestamps of the range in increasing order.
func (r Range64) All() iter.Seq[Timestamp64] {
	return func(yield func(Timestamp64) bool) {
		for i := range r.Count {
			if !yield(r.At(i)) {
				return
			}
		}
	}
}
