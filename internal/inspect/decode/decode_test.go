package decode_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/inspect/decode"
	"github.com/isotone/isotone/snowflake"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// field returns a field of a reading, or "".
func field(r decode.Reading, name string) string {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Whatever form a timestamp or an ID of the last two years is printed in, it is read as that first. (The digits of an ID that
// is older than two years are those of a recent time in nanoseconds.)
func TestText_ReadsWhatIsPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := now.Add(-time.Duration(rapid.Int64Range(0, int64(2*365*24*time.Hour)).Draw(t, "age")))
		ts := isotone.Timestamp{Time: uint64(at.UnixNano()), Index: rapid.Uint64().Draw(t, "index")}
		t64 := isotone.Timestamp64From(ts)
		id := snowflake.ID((at.UnixMilli()-snowflake.Twitter.Epoch)<<22 | rapid.Int64Range(0, 1<<22-1).Draw(t, "rest"))
		for text, want := range map[string]struct{ form, field, value string }{
			ts.String():                             {decode.FormTimestamp, "hexadecimal", ts.String()},
			strings.ToUpper(ts.String()):            {decode.FormTimestamp, "hexadecimal", ts.String()},
			fmt.Sprintf("%d:%d", ts.Time, ts.Index): {decode.FormTimestamp, "hexadecimal", ts.String()},
			fmt.Sprint(ts.Time):                     {decode.FormNanos, "unix nanoseconds", fmt.Sprint(ts.Time)},
			t64.String():                            {decode.FormTimestamp64, "decimal", t64.String()},
			id.String():                             {decode.FormID, "decimal", id.String()},
			id.Hex():                                {decode.FormID, "decimal", id.String()},
			id.Base62():                             {decode.FormID, "decimal", id.String()},
			at.Format(time.RFC3339Nano):             {decode.FormTime, "first timestamp", isotone.Timestamp{Time: ts.Time}.String()},
		} {
			found, err := decode.Text(text, snowflake.Twitter, now)
			if err != nil || found[0].Form != want.form || field(found[0], want.field) != want.value {
				t.Fatalf("%s: %+v, %v; want %+v", text, found, err, want)
			}
			if d := found[0].Time.Sub(at).Abs(); d >= time.Millisecond {
				t.Fatalf("%s: %v, not %v", text, found[0].Time, at)
			}
		}
	})
}

func TestText_Table(t *testing.T) {
	twoParts := snowflake.Layout{TimeBits: 42, WorkerBits: 10, SequenceBits: 11, Epoch: 1704067200000}
	for _, c := range []struct {
		text   string
		layout snowflake.Layout
		want   string // forms, the likeliest first, and a field of that
	}{
		{"470729569075200000", snowflake.Twitter, "64-bit timestamp, Snowflake ID, unix nanoseconds; unix milliseconds=1795690800000"},
		{"2125907415659446272", snowflake.Twitter, "Snowflake ID, unix nanoseconds, 64-bit timestamp; worker=0"},
		{"2126000000000008195", snowflake.Twitter, "Snowflake ID, unix nanoseconds, 64-bit timestamp; worker of datacenter=18"},
		{"1795360000000000000", snowflake.Twitter, "unix nanoseconds, Snowflake ID, 64-bit timestamp; unix nanoseconds=1795360000000000000"},
		{"18446744073709551615", snowflake.Twitter, "64-bit timestamp, unix nanoseconds; counter=262143"},
		{"0123456789abcdef", snowflake.Twitter, "cluster ID, Snowflake ID; hexadecimal=0123456789abcdef"},
		{"F123456789abcdef", snowflake.Twitter, "cluster ID; hexadecimal=f123456789abcdef"},
		{"0x18eb9344c46fe0000000000000000007", snowflake.Twitter, "timestamp; index=7"},
		{"ffffffffffffffffffffffffffffffff", snowflake.Twitter, "timestamp; index=18446744073709551615"},
		{"0", snowflake.Twitter, "Snowflake ID, 64-bit timestamp, unix nanoseconds; sequence=0"},
		{"188000000000526337", twoParts, "Snowflake ID, 64-bit timestamp, unix nanoseconds; worker=449"},
		{"1960-01-01T00:00:00Z", snowflake.Twitter, ""}, {"2500-01-01T00:00:00Z", snowflake.Twitter, ""},
		{"2009-01-01T00:00:00Z", snowflake.Twitter, "time; first ID="}, // before the epoch
		{"2010-11-04T01:42:54.657Z", snowflake.Twitter, "time; first ID=0"},
		{"", snowflake.Twitter, ""}, {"hello", snowflake.Twitter, ""}, {"-5", snowflake.Twitter, ""}, {"+5", snowflake.Twitter, ""},
		{"1:2:3", snowflake.Twitter, ""}, {"1:", snowflake.Twitter, ""}, {":1", snowflake.Twitter, ""}, {"1:-1", snowflake.Twitter, ""},
		{"18446744073709551616", snowflake.Twitter, ""}, {strings.Repeat("1", 10000), snowflake.Twitter, ""},
		{"zzzzzzzzzzz", snowflake.Twitter, ""}, // more than 63 bits
	} {
		found, err := decode.Text(c.text, c.layout, now)
		if c.want == "" {
			if !errors.Is(err, isotone.ErrInvalidArgument) || found != nil || len(err.Error()) > 500 {
				t.Errorf("%.40q: %+v, %v", c.text, found, err)
			}
			continue
		}
		forms, wanted, _ := strings.Cut(c.want, "; ")
		name, value, _ := strings.Cut(wanted, "=")
		var got []string
		for _, r := range found {
			got = append(got, r.Form)
		}
		if err != nil || strings.Join(got, ", ") != forms || field(found[0], name) != value {
			t.Errorf("%s: %+v, %v; want %s", c.text, found, err, c.want)
		}
	}
}

func TestBinary_IsTimestampsOfEitherForm(t *testing.T) {
	one, two := isotone.Timestamp{Time: uint64(now.UnixNano()), Index: 2}, isotone.Timestamp{Time: uint64(now.UnixNano()), Index: 3}
	b, _ := one.AppendBinary(nil)
	b, _ = two.AppendBinary(b)
	found, err := decode.Binary(b, now)
	if err != nil || len(found) != 2 || field(found[0], "index") != "2" || field(found[1], "hexadecimal") != two.String() {
		t.Errorf("%+v, %v", found, err)
	}
	for n := 1; n <= 3; n++ {
		var short []byte
		for i := range n {
			short = binary.BigEndian.AppendUint64(short, uint64(isotone.NewTimestamp64(uint64(now.UnixMilli()), uint64(i))))
		}
		found, err := decode.Binary(short, now)
		if err != nil || len(found) != n || found[0].Form != decode.FormTimestamp64 || field(found[n-1], "counter") != fmt.Sprint(n-1) {
			t.Errorf("%d of 8 bytes: %+v, %v", n, found, err)
		}
	}
	for _, size := range []int{0, 1, 7, 15, 17, 25} {
		if _, err := decode.Binary(make([]byte, size), now); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
