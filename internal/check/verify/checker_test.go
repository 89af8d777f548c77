package verify

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify/driver"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// numbers returns the range of count numbers from n on.
func numbers(n, count uint64) isotone.Range {
	return isotone.Range{First: isotone.Timestamp{Time: 1, Index: n}, Count: count}
}

// history returns calls of some clients, each with one under way at a time. Most get numbers in order, some do not.
func history(r *rand.Rand, clients, calls int, wrong float64) (list []op) {
	free := make([]int64, clients)
	next := uint64(1)
	for now := int64(1); len(list) < calls; now += r.Int64N(3) {
		client := r.IntN(clients)
		if free[client] > now {
			continue
		}
		o := op{client: client, node: r.IntN(3), began: now, ended: now + r.Int64N(20), numbers: numbers(next, 1+r.Uint64N(3))}
		free[client] = o.ended + 1
		switch next += o.numbers.Count; {
		case r.Float64() < wrong:
			o.numbers.First.Index = 1 + r.Uint64N(next)
		case r.IntN(4) == 0:
			next += r.Uint64N(5)
		}
		list = append(list, o)
	}
	return list
}

// judged has a checker judge a history as it becomes known: a call some time after its end, another one's later.
func judged(r *rand.Rand, list []op, clients int, promised Order) *checker {
	type arrival struct {
		op
		at int64
	}
	var arrivals []arrival
	for _, o := range list {
		arrivals = append(arrivals, arrival{o, o.ended + r.Int64N(15)})
	}
	slices.SortFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	c := newChecker(clients, 0, 0)
	c.intervals = promised == Intervals
	for i, a := range arrivals {
		c.add(a.op)
		known := a.at // nothing that began before it is to come
		for _, later := range arrivals[i+1:] {
			known = min(known, later.began)
		}
		c.settle(known, func(op) {})
	}
	c.settle(1<<62, func(op) {})
	return c
}

// TestChecker_AgreesWithTheDefinition: of random histories, in which calls become known in any order.
func TestChecker_AgreesWithTheDefinition(t *testing.T) {
	seen := map[Order]int{}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		clients, wrong := 1+r.IntN(6), []float64{0, 0.02, 0.3}[r.IntN(3)]
		list := history(r, clients, 1+r.IntN(60), wrong)
		c := judged(r, list, clients, RealTime)
		want := judgeAll(list)
		for _, order := range Orders {
			if c.verdicts[order] != want[order] {
				t.Fatalf("seed %d: %d violations of %s, want %d; %+v", seed, c.verdicts[order], order, want[order], list)
			}
			seen[order] += int(want[order])
		}
		if err := lincheck.Check(exact(list)); (err != nil) != (len(want) > 0) {
			t.Fatalf("seed %d: %v, but %v", seed, want, err)
		}
		if c.settled != uint64(len(list)) || len(c.pending) > 0 {
			t.Fatalf("seed %d: %d of %d calls are settled", seed, c.settled, len(list))
		}
		for _, a := range c.anomalies {
			if !a.Later.Known || !a.Earlier.Known {
				t.Fatalf("seed %d: a call is not named: %+v", seed, a)
			}
		}
	}
	for _, order := range Orders {
		if seen[order] < 100 {
			t.Errorf("only %d violations of %s in all histories", seen[order], order)
		}
	}
}

// judgeAll compares each call with all that ended before it, or overlap it and ended earlier.
func judgeAll(list []op) map[Order]uint64 {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b op) int {
		return cmp.Or(cmp.Compare(a.ended, b.ended), cmp.Compare(a.client, b.client))
	})
	violations := map[Order]uint64{}
	var added []op // without duplicates, as they add no number
	for i, b := range sorted {
		var duplicate, own, inverted bool
		for _, a := range added {
			duplicate = duplicate || !a.numbers.Last().Before(b.numbers.First) && !b.numbers.Last().Before(a.numbers.First)
		}
		for _, a := range sorted[:i] {
			behind := b.numbers.First.Compare(a.numbers.Last()) <= 0
			own = own || behind && a.client == b.client
			inverted = inverted || behind && a.ended < b.began
		}
		switch {
		case duplicate:
			violations[Unique]++
		case own:
			violations[PerClient]++
		case inverted:
			violations[RealTime]++
		}
		if !duplicate {
			added = append(added, b)
		}
	}
	return violations
}

func exact(list []op) (history []lincheck.Operation) {
	for _, o := range list {
		history = append(history, lincheck.Operation{
			Client: uint64(o.client), Invocation: o.began, Completion: o.ended, Answered: true, Range: o.numbers,
		})
	}
	return history
}

// TestChecker_OfIntervals agrees with a comparison of all pairs, of clocks that are off by more than they say now and then.
func TestChecker_OfIntervals(t *testing.T) {
	violations := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 3))
		clients, wrong := 1+r.IntN(6), []float64{0, 0.05}[r.IntN(2)]
		list := history(r, clients, 1+r.IntN(80), 0)
		for i := range list {
			o := &list[i]
			at := uint64(o.began + r.Int64N(o.ended-o.began+1)) // when the clock was read
			o.numbers = numbers(1000+at-r.Uint64N(9), 9+r.Uint64N(9))
			if r.Float64() < wrong {
				o.numbers.First.Index += r.Uint64N(60) - 30
			}
		}
		want := uint64(0)
		for _, b := range list {
			if slices.ContainsFunc(list, func(a op) bool { return a.ended < b.began && b.last().Before(a.numbers.First) }) {
				want++
			}
		}
		c := judged(r, list, clients, Intervals)
		if c.verdicts[Intervals] != want || len(c.verdicts) > 1 || wrong == 0 && want > 0 {
			t.Fatalf("seed %d: %v, want %d; %+v", seed, c.verdicts, want, list)
		}
		for _, a := range c.anomalies {
			if !a.Earlier.Known || a.Earlier.EndedS >= a.Later.BeganS {
				t.Fatalf("seed %d: %+v", seed, a)
			}
		}
		violations += int(want)
	}
	if violations < 100 {
		t.Errorf("only %d violations in all histories", violations)
	}
}

// TestGot_OfAnInterval: all of its times.
func TestGot_OfAnInterval(t *testing.T) {
	for _, test := range []struct {
		first, last string
		count       uint64 // 0: refused
	}{
		{"7", "7", 1}, {"7", "9", 3}, {"18446744073709551615", "18446744073709551616", 2}, {"1", "18446744073709551615", 1<<64 - 1},
		{"9", "8", 0}, {"0", "18446744073709551615", 0}, {"5", "18446744073709551700", 0}, {"18446744073709551616", "1", 0}, {"7", "x", 0},
	} {
		all, err := got(driver.Call{First: test.first, Last: test.last, Count: 1})
		if (err == nil) != (test.count > 0) || err == nil && (all.Count != test.count || decimal(op{numbers: all}.last()) != test.last) {
			t.Errorf("%s to %s: %+v, %v; want %d times", test.first, test.last, all, err, test.count)
		}
	}
}

var calls = flag.Int64("calls", 1_000_000, "how many calls TestChecker_IsBounded has judged")

// TestChecker_IsBounded: peaks do not add up, and a long run has no false alarm.
func TestChecker_IsBounded(t *testing.T) {
	const clients = 64
	c, calls := newChecker(clients, 0, 0), *calls
	for i := range calls {
		began := i
		c.add(op{client: int(i % clients), began: began, ended: began + 2, numbers: numbers(uint64(2*i+1), 2)})
		c.settle(began, func(op) {})
		if len(c.peaks) > 4096 || len(c.pending) > 4096 {
			t.Fatalf("%d peaks and %d pending after %d calls", len(c.peaks), len(c.pending), i)
		}
	}
	c.settle(calls+10, func(op) {})
	if v := c.report(RealTime); c.settled != uint64(calls) || v[0].Violations+v[1].Violations+v[2].Violations+v[0].Unverified > 0 {
		t.Errorf("%d settled, %+v", c.settled, v)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d calls, %d MB in use at the end", calls, m.Sys>>20)
}

func TestNumber_HasAFormThatIsNotZero(t *testing.T) {
	for _, text := range []string{"0", "1", "18446744073709551615", "18446744073709551616", "340282366920938463444927863358058659839"} {
		got, err := number(text)
		if err != nil || decimal(got) != text || got.Time == 0 {
			t.Errorf("%s: %v %v, back as %s", text, got, err, decimal(got))
		}
	}
	for _, text := range []string{"", "-1", "x", "340282366920938463444927863358058659840"} {
		if got, err := number(text); err == nil {
			t.Errorf("%q is accepted as %v", text, got)
		}
	}
}

// TestChecker_NamesBothParties of an anomaly, and says that it does not know one that is long gone.
func TestChecker_NamesBothParties(t *testing.T) {
	c := newChecker(2, 0, 1000)
	add := func(o op) {
		c.add(o)
		c.settle(o.ended+1, func(op) {})
	}
	add(op{client: 0, node: 2, began: 1000, ended: 2000, numbers: numbers(5, 3)})
	add(op{client: 1, node: 1, began: 3000, ended: 4000, numbers: numbers(7, 1)})
	want := Anomaly{
		Order:   Unique,
		Earlier: Call{Known: true, Client: 0, Node: 2, EndedS: 1e-6, First: "5", Count: 3},
		Later:   Call{Known: true, Client: 1, Node: 1, BeganS: 2e-6, EndedS: 3e-6, First: "7", Count: 1},
	}
	if len(c.anomalies) != 1 || c.anomalies[0] != want {
		t.Fatalf("got %+v\nwant %+v", c.anomalies, want)
	}
	for i := range uint64(recentMax) {
		add(op{client: 0, began: int64(i+10) * 1000, ended: int64(i+10)*1000 + 1, numbers: numbers(100+i, 1)})
	}
	add(op{client: 1, began: 1 << 40, ended: 1<<40 + 1, numbers: numbers(5, 1)})
	if a := c.anomalies[len(c.anomalies)-1]; a.Order != Unique || a.Earlier.Known || a.Earlier.First != "5" {
		t.Errorf("got %+v", a)
	}
}

// TestChecker_WhatIsForgottenIsNotVerified: a number out of order may have been handed out long before.
func TestChecker_WhatIsForgottenIsNotVerified(t *testing.T) {
	c := newChecker(1, 2, 0)
	for i, n := range []uint64{100, 200, 300, 400, 100} {
		now := int64(10 * i)
		c.add(op{began: now, ended: now + 5, numbers: numbers(n, 1)})
	}
	c.settle(1<<62, func(op) {})
	if v := c.report(Unique); v[0].Violations+v[0].Unverified != 1 || v[1].Violations+v[0].Violations != 1 {
		t.Errorf("%+v: 100 was handed out twice, and out of order", v)
	}
}

// TestChecker_NumbersMayCrossTheirUpperHalf: 2⁶⁴-2 to 2⁶⁴+1 are four consecutive numbers.
func TestChecker_NumbersMayCrossTheirUpperHalf(t *testing.T) {
	const first = "18446744073709551614"
	c := newChecker(1, 0, 0)
	for i, text := range []string{first, "18446744073709551617", "18446744073709551618"} {
		n, err := number(text)
		if err != nil {
			t.Fatal(err)
		}
		now := int64(10 * i)
		c.add(op{began: now, ended: now + 5, numbers: isotone.Range{First: n, Count: []uint64{4, 1, 1}[i]}})
	}
	c.settle(1<<62, func(op) {})
	if c.malformed != 0 || c.verdicts[Unique] != 1 || len(c.verdicts) != 1 {
		t.Fatalf("%d malformed, %v: want the second call only, which got the last number of the first", c.malformed, c.verdicts)
	}
	if a := c.anomalies[0]; !a.Earlier.Known || a.Earlier.First != first {
		t.Errorf("the earlier call is %+v, want the first", a.Earlier)
	}
}
