package interval_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/core/interval"
)

const (
	roundTrip = 100_000    // ns, of the own clock
	period    = 25_000_000 // between two questions
)

// follower feeds readings of a cluster clock with a rate to a Rate and an Estimate.
type follower struct {
	rate     interval.Rate
	estimate interval.Estimate
	term     uint64
	own      int64
	cluster  float64
}

// ask takes the next reading of a cluster clock that runs with a rate by the own one.
func (f *follower) ask(rate float64) (ok bool) {
	sent := interval.At(f.own)
	f.own += roundTrip / 2
	f.cluster += roundTrip / 2 * rate
	at := uint64(f.cluster)
	f.own += roundTrip / 2
	f.cluster += roundTrip / 2 * rate
	r := interval.Reading{Term: f.term, Earliest: at, Latest: at + 1, Limit: math.MaxInt64}
	received := interval.At(f.own)
	ok = f.rate.Take(received, r.Term, f.estimate.Take(sent, received, r))
	f.own += period - roundTrip
	f.cluster += (period - roundTrip) * rate
	return ok
}

// asks asks for that long, and returns after how long the clocks were not believed for the first time.
func (f *follower) asks(rate float64, d time.Duration) (after time.Duration, wrong bool) {
	begin := f.own
	for f.own-begin < int64(d) {
		if !f.ask(rate) {
			return time.Duration(f.own - begin), true
		}
	}
	return 0, false
}

func newFollower() *follower { return &follower{term: 1, cluster: 1e15} }

// TestRate_BelievesClocksWithinTheBounds, for ever.
func TestRate_BelievesClocksWithinTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFollower()
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			rate := rate(t, "leader", interval.RateError) * rate(t, "slew", interval.Slew) / rate(t, "own", interval.RateError)
			if after, wrong := f.asks(rate, 25*time.Second); wrong {
				t.Fatalf("rate %v is not believed after %v", rate, after)
			}
		}
	})
}

// TestRate_FindsAWrongRate: the sooner, the more it is off.
func TestRate_FindsAWrongRate(t *testing.T) {
	for _, c := range []struct {
		rate float64
		most time.Duration
	}{{1.05, 50 * time.Millisecond}, {0.95, 50 * time.Millisecond}, {1.002, 200 * time.Millisecond}, {0.998, 200 * time.Millisecond}, {1.00102, 10 * time.Second}, {0.99898, 10 * time.Second}} {
		f := newFollower()
		f.asks(1, 3*time.Second)
		if after, wrong := f.asks(c.rate, 30*time.Second); !wrong || after > c.most {
			t.Errorf("rate %v: found: %v, after %v", c.rate, wrong, after)
		}
	}
}

// TestRate_BelievesAgainAfterAWindow in which the clocks agree, whatever the term.
func TestRate_BelievesAgainAfterAWindow(t *testing.T) {
	f := newFollower()
	f.asks(1.05, time.Second)
	if f.rate.OK() {
		t.Fatal("5 % are believed")
	}
	f.asks(1, 8*time.Second)
	f.term = 2 // what was agreed on so far was about another clock
	begin := f.own
	for !f.ask(1) {
		if f.own-begin > int64(15*time.Second) {
			t.Fatal("not believed again")
		}
	}
	if after := time.Duration(f.own - begin); after < interval.RateWindow || after > interval.RateWindow+time.Second {
		t.Errorf("believed again after %v, want %v", after, interval.RateWindow)
	}
	// While the rate is wrong, it stays so.
	f.asks(1.002, time.Second)
	for range 4000 { // 100 s
		if f.ask(1.002) {
			t.Fatal("believed while the rate is wrong")
		}
	}
}

// TestRate_AnotherTermSaysNothing about the rate: clocks of terms are different ones.
func TestRate_AnotherTermSaysNothing(t *testing.T) {
	f := newFollower()
	f.asks(1, time.Second)
	f.term, f.cluster = 2, f.cluster+4e8
	if _, wrong := f.asks(1, time.Second); wrong {
		t.Error("a clock of a later term that is ahead is not believed")
	}
	if !f.rate.Take(interval.At(f.own), 1, false) {
		t.Error("a late reading of an earlier term counts")
	}
}
