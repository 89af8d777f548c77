// Package decode explains what a timestamp, an ID or another value of Isotone says. It decides nothing by a clock of
// its own: the caller passes one, to rank what a number can mean.
//
// Sources: package isotone and package snowflake for the forms; the timestamps of PD, whose 64 bits are those of
// isotone.Timestamp64: https://tikv.org/deep-dive/distributed-transaction/timestamp-oracle/.
package decode

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// Reading is one meaning of a text.
type Reading struct {
	// Form says what the text is, such as "timestamp".
	Form string
	// Time is what it says about time, in UTC; zero if it says nothing.
	Time time.Time
	// Fields are what else it says, and its other forms, in the order in which people read them.
	Fields []Field
}

// Field is a named part of a reading. Numbers are decimal.
type Field struct{ Name, Value string }

// The forms of a reading.
const (
	FormTimestamp   = "timestamp"
	FormTimestamp64 = "64-bit timestamp"
	FormID          = "Snowflake ID"
	FormNanos       = "unix nanoseconds"
	FormTime        = "time"
	FormCluster     = "cluster ID"
)

// TextMax bounds a text, in bytes.
const TextMax = 100

const wanted = "want a timestamp in 32 hexadecimal digits or as TIME:INDEX, a 64-bit one or an ID in decimal, an ID in base 62, " +
	"an ID or a cluster ID in 16 hexadecimal digits, unix nanoseconds, or a time as in 2026-11-22T15:04:05Z"

// Text returns what a text can mean, the likeliest first: the one whose time is nearest to now, rather past than future. IDs have
// the given layout. There is at least one reading, unless the error, which matches isotone.ErrInvalidArgument, says
// that the text has none of the forms.
func Text(text string, layout snowflake.Layout, now time.Time) ([]Reading, error) {
	text = strings.TrimPrefix(text, "0x")
	var found []Reading
	add := func(r Reading, err error) {
		if err == nil {
			found = append(found, r)
		}
	}
	if len(text) > TextMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%.20q… has %d bytes: %s", text, len(text), wanted)
	}
	add(timestamp(text))
	add(pair(text))
	add(timestamp64(text))
	add(id(text, layout))
	add(nanos(text))
	add(moment(text, layout))
	add(cluster(text))
	if len(found) == 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%q is no timestamp and no ID: %s", text, wanted)
	}
	slices.SortStableFunc(found, func(a, b Reading) int { return cmp.Compare(a.distance(now), b.distance(now)) })
	return found, nil
}

// Binary returns the timestamps of a binary answer, of 16 bytes each or of 8: those whose times are nearer to now. Its error matches
// isotone.ErrInvalidArgument.
func Binary(b []byte, now time.Time) ([]Reading, error) {
	if len(b) == 0 || len(b)%isotone.Timestamp64Size != 0 {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%d bytes that are no text: want timestamps of %d or %d bytes", len(b), isotone.TimestampSize, isotone.Timestamp64Size)
	}
	var short, long []Reading
	for t := range slices.Chunk(b, isotone.Timestamp64Size) {
		short = append(short, of64(isotone.Timestamp64(binary.BigEndian.Uint64(t))))
	}
	if len(b)%isotone.TimestampSize != 0 {
		return short, nil
	}
	for t := range slices.Chunk(b, isotone.TimestampSize) {
		long = append(long, of(isotone.Timestamp{Time: binary.BigEndian.Uint64(t), Index: binary.BigEndian.Uint64(t[8:])}))
	}
	if short[0].distance(now) < long[0].distance(now) {
		return short, nil
	}
	return long, nil
}

// distance returns how far the time of r is from now. The future counts several times: nothing is issued there, but a
// floor may be. A cluster ID, which has no time, is likelier than a time that is further than unlikely.
func (r Reading) distance(now time.Time) time.Duration {
	switch d := r.Time.Sub(now); {
	case r.Time.IsZero():
		return unlikely
	case d > math.MaxInt64/futureWeight:
		return math.MaxInt64
	case d > 0:
		return d * futureWeight
	default:
		return d.Abs()
	}
}

// futureWeight is how many times as unlikely a time of the future is as one of the past.
const futureWeight = 8

// unlikely is ten years: values are rarely that old.
const unlikely = 10 * 365 * 24 * time.Hour

func timestamp(text string) (Reading, error) {
	t, err := isotone.ParseTimestamp(text)
	if err != nil {
		return Reading{}, err
	}
	return of(t), nil
}

// of returns the reading of a timestamp.
func of(t isotone.Timestamp) Reading {
	return Reading{FormTimestamp, at(t.Time), []Field{
		{"unix nanoseconds", strconv.FormatUint(t.Time, 10)}, {"index", strconv.FormatUint(t.Index, 10)}, {"hexadecimal", t.String()},
	}}
}

// pair reads TIME:INDEX, both in decimal.
func pair(text string) (Reading, error) {
	left, right, _ := strings.Cut(text, ":")
	t, err := decimal(left)
	if err != nil {
		return Reading{}, err
	}
	index, err := decimal(right)
	return of(isotone.Timestamp{Time: t, Index: index}), err
}

func timestamp64(text string) (Reading, error) {
	t, err := isotone.ParseTimestamp64(text)
	if err != nil {
		return Reading{}, err
	}
	return of64(t), nil
}

func of64(t isotone.Timestamp64) Reading {
	milli := t.Milli()
	return Reading{FormTimestamp64, time.UnixMilli(int64(milli)).UTC(), []Field{
		{"unix milliseconds", strconv.FormatUint(milli, 10)}, {"counter", strconv.FormatUint(t.Counter(), 10)}, {"decimal", t.String()},
	}}
}

// base62SizeMin is the length from which a text is read as an ID in base 62. Shorter ones are words more often than
// IDs, which are that short in the first five weeks after their epoch.
const base62SizeMin = 10

// id reads an ID in any of its forms.
func id(text string, layout snowflake.Layout) (Reading, error) {
	id, err := snowflake.Parse(text)
	if err != nil {
		id, err = snowflake.ParseHex(text)
	}
	if err != nil && len(text) >= base62SizeMin {
		id, err = snowflake.ParseBase62(text)
	}
	if err != nil {
		return Reading{}, err
	}
	return ofID(id, layout), nil
}

func ofID(id snowflake.ID, layout snowflake.Layout) Reading {
	r := Reading{Form: FormID, Time: layout.Time(id).UTC()}
	worker := layout.Worker(id)
	r.Fields = append(r.Fields, Field{"unix milliseconds", strconv.FormatInt(layout.Millis(id), 10)})
	if layout.DatacenterBits > 0 {
		datacenter, in := layout.Split(worker)
		r.Fields = append(r.Fields, Field{"datacenter", strconv.Itoa(datacenter)}, Field{"worker of datacenter", strconv.Itoa(in)})
	}
	return Reading{r.Form, r.Time, append(r.Fields, Field{"worker", strconv.Itoa(worker)}, Field{"sequence", strconv.Itoa(layout.Sequence(id))},
		Field{"decimal", id.String()}, Field{"hexadecimal", id.Hex()}, Field{"base 62", id.Base62()}, Field{"layout", layout.String()})}
}

// nanos reads unix nanoseconds, the form of floors and of TIME in JSON.
func nanos(text string) (Reading, error) {
	n, err := decimal(text)
	return Reading{Form: FormNanos, Time: at(n), Fields: []Field{{"unix nanoseconds", text}}}, err
}

// moment reads a time, and returns the smallest values of it.
func moment(text string, layout snowflake.Layout) (Reading, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err == nil && (t.UTC().Year() < 1970 || t.UTC().Year() > 2261) { // which have unix nanoseconds
		err = fmt.Errorf("%q is out of range", text)
	}
	if err != nil {
		return Reading{}, err
	}
	ns := uint64(t.UnixNano())
	r := Reading{FormTime, t.UTC(), []Field{
		{"unix nanoseconds", strconv.FormatUint(ns, 10)}, {"first timestamp", isotone.Timestamp{Time: ns}.String()},
		{"first timestamp of 64 bits", isotone.Timestamp64From(isotone.Timestamp{Time: ns}).String()},
	}}
	if ms := t.UnixMilli(); ms >= layout.FirstMillis() && ms <= layout.LastMillis() {
		first := snowflake.ID((ms - layout.Epoch) << (layout.DatacenterBits + layout.WorkerBits + layout.SequenceBits))
		r.Fields = append(r.Fields, Field{"first ID", first.String()})
	}
	return r, nil
}

func cluster(text string) (Reading, error) {
	id, err := isotone.ParseClusterID(text)
	return Reading{Form: FormCluster, Fields: []Field{{"hexadecimal", id.String()}}}, err
}

// at returns a time in UTC. A number of nanoseconds that no time.Time of this kind has is returned by its seconds.
func at(ns uint64) time.Time { return time.Unix(int64(ns/1e9), int64(ns%1e9)).UTC() }

// decimal parses digits only.
func decimal(text string) (uint64, error) {
	if strings.HasPrefix(text, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(text, 10, 64)
}
