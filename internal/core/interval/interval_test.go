package interval_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
)

// world has a cluster clock and an own steady clock, each with a rate of its own, in millionths. Both
// rates are constant, which is the worst case.
type world struct {
	t            float64 // true nanoseconds
	cluster, own float64 // rates
	start        uint64  // the cluster clock at 0
	origin       int64   // the own clock at 0
}

func (w *world) showsCluster() uint64 { return w.start + uint64(w.t*w.cluster) }
func (w *world) showsOwn() int64      { return w.origin + int64(w.t*w.own) }

// instant reads the own clock with an error.
func (w *world) instant(t *rapid.T) interval.Instant {
	width := rapid.Int64Range(0, 30_000).Draw(t, "width")
	below := rapid.Int64Range(0, width).Draw(t, "below")
	return interval.Instant{Lo: w.showsOwn() - below - 1, Hi: w.showsOwn() + width - below + 1}
}

func rate(t *rapid.T, name string, bound int) float64 {
	at := rapid.SampledFrom([]int{-bound, 0, bound}).Draw(t, name)
	if rapid.Bool().Draw(t, name+" any") {
		at = rapid.IntRange(-bound, bound).Draw(t, name+" of")
	}
	return 1 + float64(at)/1e6
}

// TestEstimate_ContainsTheClusterClock at every moment, whatever the rates within the bounds, the round
// trips, and the hops.
func TestEstimate_ContainsTheClusterClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			cluster: rate(t, "leader", interval.RateError) * rate(t, "slew", interval.Slew),
			own:     rate(t, "own", interval.RateError),
			start:   rapid.Uint64Range(0, 1<<61).Draw(t, "start"),
			origin:  rapid.Int64Range(-1<<50, 1<<50).Draw(t, "origin"),
		}
		var e interval.Estimate
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			sent := w.instant(t)
			w.t += rapid.Float64Range(0, 1e8).Draw(t, "there")
			c, wide := w.showsCluster(), rapid.Uint64Range(0, 1e6).Draw(t, "bounds of the teller")
			wide = min(wide, c)
			r := interval.Reading{Term: 1, Earliest: c - wide, Latest: c + wide/2 + 1, Limit: math.MaxInt64}
			w.t += rapid.Float64Range(0, 1e8).Draw(t, "back")
			received := w.instant(t)
			w.t += rapid.Float64Range(0, 1e9).Draw(t, "until it is taken in")
			if !e.Take(sent, received, r) {
				t.Fatal("clocks within the bounds contradict each other")
			}
			for range 3 {
				bounds, good := e.Bounds(w.instant(t))
				// A float64 has errors of some nanoseconds at these numbers.
				if c := w.showsCluster(); !good || bounds.Earliest > c+256 || bounds.Latest+256 < c {
					t.Fatalf("%d is not in %+v, good: %v", c, bounds, good)
				}
				w.t += rapid.Float64Range(0, 1e9).Draw(t, "later")
			}
		}
	})
}

// TestEstimate_TakesReadingsInAnyOrder: of two questions under way at once, the answer to the first may be
// taken in last. That is no contradiction.
func TestEstimate_TakesReadingsInAnyOrder(t *testing.T) {
	reading := func(at uint64) interval.Reading {
		return interval.Reading{Term: 1, Earliest: 1e18 + at, Latest: 1e18 + at, Limit: 2e18}
	}
	var e interval.Estimate
	if !e.Take(interval.At(50e6), interval.At(51e6), reading(50.5e6)) || !e.Take(interval.At(1e6), interval.At(2e6), reading(1.5e6)) {
		t.Fatal("an earlier reading contradicts a later one")
	}
	if r, _ := e.Bounds(interval.At(60e6)); r.Earliest != 1e18+59.5e6-9e3 || r.Latest != 1e18+60.5e6+10e3+1 || e.Age(interval.At(60e6)) != 9e6 {
		t.Errorf("%+v, age %d", r, e.Age(interval.At(60e6)))
	}
	if e.Take(interval.At(3e6), interval.At(4e6), reading(40e6)) {
		t.Error("a contradiction in an earlier reading is not found")
	}
}

// TestEstimate_RoundsOutwards: one reading, and exact arithmetic.
func TestEstimate_RoundsOutwards(t *testing.T) {
	const sent, received, at = 100, 300, 5_000_000
	var e interval.Estimate
	e.Take(interval.At(sent), interval.At(received), interval.Reading{Term: 3, Earliest: at, Latest: at + 7, Limit: math.MaxInt64})
	for _, c := range []struct {
		own              int64
		earliest, latest uint64
	}{
		{received, at, at + 7 + 201},     // not even the time in between is known
		{received + 1, at, at + 7 + 202}, // 0.999 rounded down, 201.201 rounded up
		{received + 999, at + 998, at + 7 + 1199 + 2},
		{received + 1000, at + 999, at + 7 + 1200 + 2},
		{received + 1001, at + 999, at + 7 + 1201 + 2},
		{received + 1e9, at + 999e6, at + 7 + 1e9 + 200 + 1e6 + 1},
	} {
		bounds, good := e.Bounds(interval.At(c.own))
		if !good || bounds.Earliest != c.earliest || bounds.Latest != c.latest || bounds.Term != 3 {
			t.Errorf("at %d: %+v, want %d and %d", c.own, bounds, c.earliest, c.latest)
		}
	}
	// Before anything: no bound goes back.
	if bounds, _ := e.Bounds(interval.At(-1)); bounds.Earliest != at || bounds.Latest != at+8 {
		t.Errorf("before the reading: %+v", bounds)
	}
}

// TestEstimate_IsGoodUpToItsLimit, and not a nanosecond longer. The lower bound never passes it.
func TestEstimate_IsGoodUpToItsLimit(t *testing.T) {
	var e interval.Estimate
	if bounds, good := e.Bounds(interval.At(5)); good || bounds != (interval.Reading{}) || e.Term() != 0 {
		t.Errorf("nothing is known: %+v, %v", bounds, good)
	}
	e.Take(interval.At(0), interval.At(0), interval.Reading{Term: 1, Earliest: 1000, Latest: 1000, Limit: 1500})
	for own, want := range map[int64]bool{0: true, 498: true, 499: true, 500: false, 5000: false, math.MaxInt64: false} {
		bounds, good := e.Bounds(interval.At(own))
		if good != want || good != (bounds.Latest <= 1500) || bounds.Earliest > 1500 || bounds.Limit != 1500 {
			t.Errorf("at %d: %+v, good: %v", own, bounds, good)
		}
	}
}

// TestEstimate_SurvivesHugeNumbers: what is beyond 64 bits is not good, and never wraps around.
func TestEstimate_SurvivesHugeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		edge := rapid.OneOf(rapid.Int64(), rapid.Int64Range(math.MaxInt64-1000, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+1000))
		reading := rapid.OneOf(rapid.Uint64Range(0, math.MaxInt64), rapid.Uint64Range(math.MaxInt64-1000, math.MaxInt64))
		sent := edge.Draw(t, "sent")
		received := max(sent, edge.Draw(t, "received"))
		earliest := reading.Draw(t, "earliest")
		r := interval.Reading{Term: 1, Earliest: earliest, Latest: max(earliest, reading.Draw(t, "latest")), Limit: reading.Draw(t, "limit")}
		var e interval.Estimate
		e.Take(interval.At(sent), interval.At(received), r)
		now := max(received, edge.Draw(t, "now"))
		bounds, good := e.Bounds(interval.At(now))
		if bounds.Latest < r.Latest || good && (bounds.Earliest < r.Earliest || bounds.Earliest > bounds.Latest) || good != (bounds.Latest <= r.Limit) {
			t.Fatalf("%+v at %d became %+v at %d, good: %v", r, sent, bounds, now, good)
		}
		passed := uint64(now) - uint64(sent)
		if passed > math.MaxInt64 && good {
			t.Fatalf("good after %d ns", passed)
		}
	})
}

// TestEstimate_TermsReplaceEachOther: a later one replaces everything, an earlier one is ignored, and
// one of the same term narrows the bounds and extends the limit.
func TestEstimate_TermsReplaceEachOther(t *testing.T) {
	var e interval.Estimate
	take := func(own int64, term, earliest, latest, limit uint64) bool {
		return e.Take(interval.At(own), interval.At(own), interval.Reading{Term: term, Earliest: earliest, Latest: latest, Limit: limit})
	}
	want := func(what string, own int64, term, earliest, latest, limit uint64) {
		t.Helper()
		got, _ := e.Bounds(interval.At(own))
		if want := (interval.Reading{Term: term, Earliest: earliest, Latest: latest, Limit: limit}); got != want || e.Limit() != limit {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	take(0, 5, 1000, 2000, 9000)
	take(0, 5, 900, 1900, 9500)
	want("largest earliest, smallest latest, largest limit", 0, 5, 1000, 1901, 9500)
	take(0, 5, 1100, 2100, 8000)
	want("no limit sinks", 0, 5, 1100, 1901, 9500)
	if !take(0, 4, 5000, 5000, 99999) {
		t.Error("an earlier term contradicts")
	}
	want("earlier term", 0, 5, 1100, 1901, 9500)
	if !take(10, 6, 9600, 9700, 9900) {
		t.Error("a later term contradicts")
	}
	want("later term", 10, 6, 9600, 9701, 9900)
	if age := e.Age(interval.At(25)); age != 15 {
		t.Errorf("age %d, want 15", age)
	}
	if take(10, 6, 9800, 9850, 9900) {
		t.Error("a contradiction within a term is not found")
	}
	if _, good := e.Bounds(interval.At(10)); good || e.Term() != 0 {
		t.Error("a contradicted estimate is still used")
	}
}

// TestEstimate_UntilIsExact: at that moment the lower bound is above the time, and not before.
func TestEstimate_UntilIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e interval.Estimate
		at := rapid.Int64Range(-1e9, 1e9).Draw(t, "at")
		earliest := rapid.Uint64Range(0, 1e9).Draw(t, "earliest")
		limit := earliest + rapid.Uint64Range(0, 1e9).Draw(t, "limit")
		e.Take(interval.At(at), interval.At(at), interval.Reading{Term: 1, Earliest: earliest, Latest: earliest, Limit: limit})
		now := interval.At(at + rapid.Int64Range(-1e6, 1e9).Draw(t, "now"))
		ts := isotone.Timestamp{Time: rapid.Uint64Range(0, limit+10).Draw(t, "time")}
		d, ok := e.Until(now, ts.Time)
		if ok != (ts.Time < limit) {
			t.Fatalf("ok: %v, with a limit of %d", ok, limit)
		}
		if !ok {
			return
		}
		isPast := func(later int64) bool {
			bounds, _ := e.Bounds(interval.At(now.Lo + later))
			return interval.IsPast(ts, bounds)
		}
		if !isPast(d) || d > 0 && isPast(d-1) {
			t.Fatalf("%v after %d: %v, and a nanosecond before: %v", ts, d, isPast(d), isPast(d-1))
		}
	})
	var e interval.Estimate
	if _, ok := e.Until(interval.At(0), 0); ok {
		t.Error("nothing is known")
	}
	e.Take(interval.At(math.MaxInt64), interval.At(math.MaxInt64), interval.Reading{Term: 1, Limit: math.MaxInt64})
	if d, ok := e.Until(interval.At(math.MinInt64), 5); !ok || d != math.MaxInt64 {
		t.Errorf("an eternity: %d, %v", d, ok)
	}
	if _, ok := e.Until(interval.At(0), math.MaxInt64-1); ok {
		t.Error("more than an eternity")
	}
}

// TestWait_OutlivesEveryLimit: a limit of length d that was begun on the slowest clock has passed when
// Wait(d) has passed on the fastest one.
func TestWait_OutlivesEveryLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(int64(interval.LimitMin), int64(interval.LimitMax)).Draw(t, "d")
		const slow, fast, slew = 1 - interval.RateError/1e6, 1 + interval.RateError/1e6, 1 - interval.Slew/1e6
		lasts := float64(d) / (slow * slew)
		if waits := float64(interval.Wait(d)) / fast; waits < lasts || waits > lasts+float64(d)/1000+2 {
			t.Fatalf("a limit of %v lasts up to %v, the wait %v at least", time.Duration(d), lasts, waits)
		}
	})
}

// TestGenerator_TimesIncreaseBetweenLatestAndLimit, consecutive within a batch.
func TestGenerator_TimesIncreaseBetweenLatestAndLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := interval.NewGenerator(rapid.Uint64().Draw(t, "random"))
		var last isotone.Timestamp
		for range 30 {
			latest := rapid.Uint64Range(0, 2000).Draw(t, "latest")
			bounds := interval.Reading{Term: 1, Earliest: latest / 2, Latest: latest, Limit: latest + rapid.Uint64Range(0, 1000).Draw(t, "limit")}
			n := rapid.Uint64Range(1, 1500).Draw(t, "n")
			first, ok := g.Next(bounds, n)
			fits := max(latest, last.Time+1)+n-1 <= bounds.Limit
			if ok != fits {
				t.Fatalf("%d of %+v after %v: %v", n, bounds, last, ok)
			}
			if !ok {
				continue
			}
			if first.Time < latest || !last.Before(first) || first.Index < interval.IndexMin || last.Index != 0 && first.Index != last.Index {
				t.Fatalf("%v after %v, latest %d", first, last, latest)
			}
			last = isotone.Timestamp{Time: first.Time + n - 1, Index: first.Index}
			if interval.IsPast(last, bounds) {
				t.Fatalf("%v is past when it is made, by %+v", last, bounds)
			}
		}
	})
	g := interval.NewGenerator(1)
	if _, ok := g.Next(interval.Reading{Latest: 1, Limit: math.MaxInt64}, math.MaxUint64); ok {
		t.Error("more than there are")
	}
	if ts, ok := g.Next(interval.Reading{Latest: math.MaxInt64, Limit: math.MaxInt64}, 1); !ok || ts.Time != math.MaxInt64 {
		t.Errorf("the last one: %v, %v", ts, ok)
	}
	if ts, ok := g.Next(interval.Reading{Latest: math.MaxInt64, Limit: math.MaxInt64}, 1); ok {
		t.Errorf("after the last one: %v", ts)
	}
}

// TestReading_KeepsItsFormat, which clients of all versions read.
func TestReading_KeepsItsFormat(t *testing.T) {
	r := interval.Reading{Cluster: 0xc1, Term: 7, Earliest: 0x0102030405060708, Latest: 0x1112131415161718, Limit: 0x2122232425262728}
	b := r.Append([]byte("x"), 0xf1f2f3f4f5f6f7f8)
	want := "x\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x25\x26\x27\x28" +
		"\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\xc1\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8"
	if string(b) != want {
		t.Errorf("%x", b)
	}
	if got, nonce, err := interval.Decode(b[1:]); got != r || nonce != 0xf1f2f3f4f5f6f7f8 || err != nil {
		t.Errorf("%+v, %x, %v", got, nonce, err)
	}
	for what, bad := range map[string]interval.Reading{
		"no term":       {Earliest: 1, Latest: 2, Limit: 3},
		"upside down":   {Term: 1, Earliest: 3, Latest: 2, Limit: 4},
		"a huge latest": {Term: 1, Latest: 1 << 63, Limit: 1},
		"a huge limit":  {Term: 1, Latest: 1, Limit: 1 << 63},
	} {
		if got, nonce, err := interval.Decode(bad.Append(nil, 1)); !errors.Is(err, isotone.ErrInvalidArgument) || nonce != 0 || got != (interval.Reading{}) {
			t.Errorf("%s: %+v, %d, %v", what, got, nonce, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(interval.Reading{Cluster: 1, Term: 2, Earliest: 3, Latest: 4, Limit: 5}.Append(nil, 6))
	f.Add(interval.Reading{Term: 1, Latest: math.MaxUint64}.Append(nil, 6))
	f.Add(make([]byte, interval.ReadingSize-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, nonce, err := interval.Decode(b)
		if err != nil {
			if !errors.Is(err, isotone.ErrInvalidArgument) {
				t.Errorf("error %v", err)
			}
			return
		}
		if !slices.Equal(r.Append(nil, nonce), b) {
			t.Errorf("%x became %+v", b, r)
		}
		var e interval.Estimate
		if bounds, good := e.Bounds(interval.At(0)); good {
			t.Errorf("%+v", bounds)
		}
		e.Take(interval.At(1), interval.At(2), r)
		if bounds, good := e.Bounds(interval.At(3)); good && (bounds.Latest > r.Limit || bounds.Earliest > bounds.Latest) {
			t.Errorf("%+v became %+v", r, bounds)
		}
	})
}
