package conformance_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
	"github.com/isotone/isotone/snowflake"
)

// load reads a file of vectors.
func load[T any](t *testing.T, name string) (v T) {
	t.Helper()
	text, err := os.ReadFile("../../../conformance/vectors/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func timestamp(t *testing.T, text string) isotone.Timestamp {
	t.Helper()
	ts, err := isotone.ParseTimestamp(text)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func TestVectors_Timestamps(t *testing.T) {
	v := load[struct {
		Forms []struct {
			Hex      string
			Time     uint64              `json:",string"`
			Index    uint64              `json:",string"`
			U64      isotone.Timestamp64 `json:"u64"`
			Physical uint64              `json:",string"`
			Logical  uint64
		}
		Places []struct {
			U64      isotone.Timestamp64 `json:"u64"`
			Physical uint64              `json:",string"`
			Logical  uint64
			Hex      string
		}
		Order, Invalid, Invalid64 []string
		Ranges                    []struct {
			First, Last string
			Count       uint64 `json:",string"`
		}
	}](t, "timestamps")
	for _, c := range v.Forms {
		ts := timestamp(t, c.Hex)
		u := isotone.Timestamp64From(ts)
		bytes, _ := ts.MarshalBinary()
		if ts.Time != c.Time || ts.Index != c.Index || hex.EncodeToString(bytes) != c.Hex || u != c.U64 || u.Milli() != c.Physical || u.Counter() != c.Logical {
			t.Errorf("%+v: %+v, %v", c, ts, u)
		}
	}
	for _, c := range v.Places {
		if got := c.U64.Timestamp(); got.String() != c.Hex || c.U64.Milli() != c.Physical || c.U64.Counter() != c.Logical {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for i := range len(v.Order) - 1 {
		a, b := timestamp(t, v.Order[i]), timestamp(t, v.Order[i+1])
		if !a.Before(b) || b.Before(a) || a.Compare(b) != -1 || a.Compare(a) != 0 || v.Order[i] >= v.Order[i+1] {
			t.Errorf("%v is not before %v", a, b)
		}
	}
	for _, c := range v.Ranges {
		if got := (isotone.Range{First: timestamp(t, c.First), Count: c.Count}).Last(); got.String() != c.Last {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, text := range v.Invalid {
		if got, err := isotone.ParseTimestamp(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
	for _, text := range v.Invalid64 {
		if got, err := isotone.ParseTimestamp64(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestVectors_IDs(t *testing.T) {
	v := load[struct {
		Layouts []struct {
			Layout string
			Epoch  int64
			Valid  bool
		}
		IDs []struct {
			Decimal, Base62, Hex, Layout string
			Epoch, Millis                int64
			Worker, Datacenter, Sequence int
			InDatacenter                 int `json:"in_datacenter"`
		}
		Invalid []struct{ Form, Text string }
	}](t, "ids")
	for _, c := range v.Layouts {
		if got, err := snowflake.ParseLayout(c.Layout, c.Epoch); (err == nil) != c.Valid {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	parse := map[string]func(string) (snowflake.ID, error){"decimal": snowflake.Parse, "base62": snowflake.ParseBase62, "hex": snowflake.ParseHex}
	for _, c := range v.IDs {
		layout, err := snowflake.ParseLayout(c.Layout, c.Epoch)
		if err != nil {
			t.Fatal(err)
		}
		for form, text := range map[string]string{"decimal": c.Decimal, "base62": c.Base62, "hex": c.Hex} {
			id, err := parse[form](text)
			if err != nil || id.String() != c.Decimal || id.Base62() != c.Base62 || id.Hex() != c.Hex ||
				layout.Millis(id) != c.Millis || layout.Worker(id) != c.Worker || layout.Datacenter(id) != c.Datacenter ||
				layout.InDatacenter(id) != c.InDatacenter || layout.Sequence(id) != c.Sequence {
				t.Errorf("%s: %+v: %v, %v", form, c, id, err)
			}
		}
	}
	for _, c := range v.Invalid {
		if got, err := parse[c.Form](c.Text); err == nil {
			t.Errorf("%+v is %v", c, got)
		}
	}
}

func TestVectors_Errors(t *testing.T) {
	v := load[struct {
		Lines []struct {
			Line, Code, Leader string
			RetryAfter         int64 `json:"retry_after_ms"`
		}
		Malformed []string
	}](t, "errors")
	for _, c := range v.Lines {
		got, err := reply.Error(c.Line).Decode()
		if err != nil || string(got.Code) != c.Code || got.Leader != c.Leader || got.RetryAfter.Milliseconds() != c.RetryAfter {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	for _, line := range v.Malformed {
		if got, err := reply.Error(line).Decode(); !errors.Is(err, reply.ErrMalformed) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

func TestVectors_Backoff(t *testing.T) {
	v := load[struct {
		Pauses []struct {
			Kind               string
			Failures, Min, Max int
		}
	}](t, "backoff")
	most := map[string]time.Duration{"retry": search.PauseMax, "search": search.EagerPauseMax, "search_later": search.PauseMax,
		"refused": search.RefusedPauseMax, "spare": 2 * time.Second}
	none, all := search.Jitter(func(time.Duration) time.Duration { return 0 }), search.Jitter(func(below time.Duration) time.Duration { return below })
	for _, c := range v.Pauses {
		least, longest := none.Pause(c.Failures, most[c.Kind]), all.Pause(c.Failures, most[c.Kind])
		if least != time.Duration(c.Min)*time.Microsecond || longest != time.Duration(c.Max)*time.Microsecond {
			t.Errorf("%+v: %v to %v", c, least, longest)
		}
	}
}

// step is one of a generator; see conformance/README.md.
type step struct {
	Now, Extend, Stop int64
	Take              int
	First, Last       snowflake.ID
	Refused           string
}

func TestVectors_Generators(t *testing.T) {
	v := load[struct {
		Generators []struct {
			About, Layout string
			Epoch         int64
			Worker        int
			Lease         []int64
			AheadMax      int64 `json:"ahead_max_ms"`
			Steps         []step
		}
	}](t, "generator")
	for _, c := range v.Generators {
		layout, err := snowflake.ParseLayout(c.Layout, c.Epoch)
		if err != nil {
			t.Fatal(err)
		}
		var now int64
		o := snowflake.Options{Layout: layout, Now: func() int64 { return now }, AheadMax: max(time.Duration(c.AheadMax)*time.Millisecond, 1)}
		if c.Lease != nil {
			o.Lease = snowflake.Lease{Start: c.Lease[0], End: c.Lease[1]}
		}
		g, err := snowflake.NewGenerator(c.Worker, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range c.Steps {
			now = s.Now
			if fault := s.play(g); fault != "" {
				t.Errorf("%s step %d: %+v: %s", c.About, i+1, s, fault)
			}
		}
	}
}

// play returns what is wrong, or "".
func (s step) play(g *snowflake.Generator) string {
	switch {
	case s.Extend != 0:
		g.Extend(s.Extend)
		return ""
	case s.Stop != 0:
		if got := g.Stop(); got != s.Stop {
			return time.UnixMilli(got).String()
		}
		return ""
	}
	ids := make([]snowflake.ID, s.Take)
	err := g.TryFill(ids)
	if err != nil || s.Refused != "" {
		if got := reasonOf(err); got != s.Refused {
			return got
		}
		return ""
	}
	if ids[0] != s.First || ids[len(ids)-1] != s.Last {
		return ids[0].String() + " to " + ids[len(ids)-1].String()
	}
	return ""
}

func reasonOf(err error) string {
	var clock *snowflake.InvalidSystemClock
	if errors.As(err, &clock) {
		return map[snowflake.ClockFault]string{snowflake.ClockBehind: "clock_behind", snowflake.ClockBeforeLayout: "clock_before_layout", snowflake.ClockAfterLayout: "clock_after_layout"}[clock.Fault]
	}
	for reason, known := range map[string]error{"exhausted": snowflake.ErrExhausted, "lease_ended": snowflake.ErrLeaseEnded, "lease_not_begun": snowflake.ErrLeaseNotBegun, "batch": snowflake.ErrBatch} {
		if err == known {
			return reason
		}
	}
	return "none"
}
