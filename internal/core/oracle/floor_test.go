package oracle_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

func nanos(text string) uint64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return uint64(t.UnixNano())
}

var floorNow = nanos("2026-11-22T15:04:05Z")

// forms writes a time in every form in which it is printed, and how the form is called.
func forms(ns uint64) map[string]string {
	return map[string]string{
		"a timestamp in hexadecimal": isotone.Timestamp{Time: ns, Index: 77}.String(),
		"a time and an index":        fmt.Sprintf("%d:%d", ns, 77),
		"unix nanoseconds":           fmt.Sprint(ns),
		"a 64-bit timestamp":         isotone.Timestamp64From(isotone.Timestamp{Time: ns}).String(),
		"a time":                     time.Unix(0, int64(ns)).UTC().Format(time.RFC3339Nano),
	}
}

// Whatever form a timestamp is printed in, it is read as the same floor.
func TestParseFloor_ReadsWhatIsPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Uint64Range(nanos("2020-01-01T00:00:00Z"), nanos("2079-01-01T00:00:00Z")).Draw(t, "now")
		ns := rapid.Uint64Range(now-uint64(oracle.FloorPastMax), oracle.FloorMax-10).Draw(t, "floor")
		for form, text := range forms(ns) {
			f, err := oracle.ParseFloor(text, now)
			// A 64-bit timestamp stands on the first nanosecond that is not before it.
			if err != nil || f.Form != form || f.Time != ns && (form != "a 64-bit timestamp" || f.Time < ns || f.Time > ns+4) {
				t.Fatalf("%s %s at %d: %+v, %v; want %d", form, text, now, f, err, ns)
			}
		}
	})
}

// All later timestamps of either form are larger than the one that was named.
func TestParseFloor_LaterTimestampsAreLarger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := isotone.NewTimestamp64(rapid.Uint64Range(floorNow/1e6, oracle.FloorMax/1e6-1).Draw(t, "ms"), rapid.Uint64Range(0, 1<<18-1).Draw(t, "counter"))
		f, err := oracle.ParseFloor(u.String(), floorNow)
		later := isotone.Timestamp{Time: f.Time + 1}
		if err != nil || !u.Timestamp().Before(later) || !u.Before(isotone.Timestamp64From(later)) {
			t.Fatalf("%v: %+v, %v; later: %v, %v", u, f, err, later, isotone.Timestamp64From(later))
		}
	})
}

func TestParseFloor_Table(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  uint64 // 0: refused
		words string // of the form, or the error
	}{
		{"470642930142412800", nanos("2026-11-22T15:11:38.7Z"), "a 64-bit timestamp"}, // not 1984
		{"1795360000000000000", 1795360000000000000, "unix nanoseconds"},
		{"1795360000000000000:0", 1795360000000000000, "a time and an index"},
		{"1795360000000000000:18446744073709551615", 1795360000000000000, "a time and an index"},
		{"18ea66b3a5f1900000000000000000ff", 0x18ea66b3a5f19000, "a timestamp in hexadecimal"},
		{"18EA66B3A5F1900000000000000000FF", 0x18ea66b3a5f19000, "a timestamp in hexadecimal"},
		{"2026-11-22T15:04:05.123456789Z", nanos("2026-11-22T15:04:05.123456789Z"), "a time"},
		{"2026-11-22T16:04:05+01:00", floorNow, "a time"},
		{"2080-07-10T17:30:30Z", nanos("2080-07-10T17:30:30Z"), "a time"},
		{"2080-07-10T17:30:31Z", 0, "not after 2080-07-10T17:30:30Z"},
		{fmt.Sprint(oracle.FloorMax), oracle.FloorMax, "unix nanoseconds"},
		{fmt.Sprint(oracle.FloorMax + 1), 0, "as unix nanoseconds it is 2080-07-10T17:30:30Z, as a 64-bit timestamp it is after the year 2262"},
		{"9223372036854775805", 0, "as unix nanoseconds it is 2262-04-11"},
		{"18446744073709551615", 0, "after the year 2262"},
		{"18446744073709551616", 0, "is no timestamp"},
		{strings.Repeat("f", 32), 0, "after the year 2262"},
		{strings.Repeat("x", 32), 0, "is no timestamp"},
		{"2025-11-22T15:04:05Z", nanos("2025-11-22T15:04:05Z"), "a time"},
		{"2025-11-22T15:04:04Z", 0, "at most 365 days before that"},
		{"1795360000000", 0, "as unix nanoseconds it is 1970-01-01T00:29:55Z, as a 64-bit timestamp it is 1970-01-01"}, // milliseconds
		{"0", 0, "1970"}, {"5", 0, "1970"}, {"-5", 0, "is no timestamp: want"}, {"+5", 0, "is no timestamp"}, {"", 0, "is no timestamp"},
		{"1e18", 0, "is no timestamp"}, {"1:2:3", 0, "is no timestamp"}, {":", 0, "is no timestamp"}, {"1969-12-31T23:59:59Z", 0, "is no timestamp"},
		{"2026-11-22", 0, "is no timestamp"}, {"9999-01-01T00:00:00Z", 0, "is no timestamp"}, {"1970-01-01T00:30:00+01:00", 0, "is no timestamp"},
	} {
		f, err := oracle.ParseFloor(c.text, floorNow)
		switch {
		case c.want != 0 && (err != nil || f.Time != c.want || f.Form != c.words):
			t.Errorf("%q: %+v, %v; want %d, %s", c.text, f, err, c.want, c.words)
		case c.want == 0 && (err == nil || !strings.Contains(err.Error(), c.words)):
			t.Errorf("%q: %+v, %v; want %q", c.text, f, err, c.words)
		}
	}
}

// With a clock that is far off, a number can mean both.
func TestParseFloor_AsksWhereTheClockDoesNotDecide(t *testing.T) {
	text := isotone.Timestamp64From(isotone.Timestamp{Time: floorNow}).String()
	if f, err := oracle.ParseFloor(text, 0); err == nil || !strings.Contains(err.Error(), "is ambiguous: as unix nanoseconds it is 1984-") {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := oracle.ParseFloor(fmt.Sprint(floorNow), nanos("2050-01-01T00:00:00Z")); err == nil || !strings.Contains(err.Error(), "the clock shows 2050") {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := oracle.ParseFloor(fmt.Sprint(floorNow), math.MaxUint64); err == nil {
		t.Errorf("%+v", f)
	}
}

func FuzzParseFloor(f *testing.F) {
	for _, text := range forms(floorNow) {
		f.Add(text, floorNow)
		f.Add(text, uint64(0))
		f.Add(text[:len(text)-1], uint64(math.MaxUint64))
	}
	f.Add("-5", floorNow)
	f.Fuzz(func(t *testing.T, text string, now uint64) {
		got, err := oracle.ParseFloor(text, now)
		if err != nil {
			if got != (oracle.Floor{}) || len(err.Error()) > 1000 {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
			return
		}
		if got.Time > oracle.FloorMax || got.Time < now && now-got.Time > uint64(oracle.FloorPastMax) {
			t.Errorf("%q at %d: %+v", text, now, got)
		}
		// Written in the same form, it is the same.
		again, err := oracle.ParseFloor(forms(got.Time)[got.Form], now)
		if err != nil || again.Form != got.Form || again.Time != got.Time {
			t.Errorf("%q at %d: %+v, then %+v, %v", text, now, got, again, err)
		}
	})
}
