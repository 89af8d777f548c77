package verify

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify/driver"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// op is a call that got numbers, or an interval. Times are in nanoseconds of one clock.
type op struct {
	client, node int
	began, ended int64
	numbers      isotone.Range // see number; of an interval all from the earliest to the latest time
}

const (
	// pendingMax bounds the calls that wait for earlier ones to become known.
	pendingMax = 1 << 20
	// recentMax is how many settled calls are remembered to name the other party of an anomaly.
	recentMax = 1 << 17
)

// A checker judges calls of many clients, in bounded memory, however many there are. It is not safe for concurrent
// use, and has no clock.
//
// Calls become known in any order of their times. They are settled in the order in which they ended, which takes that
// all calls that ended before are known: see settle. The floor of a call is the highest number of all calls that ended
// before it began; these are settled, as it ended after it began. It has to be below the numbers of the call. The
// checker compares them itself; [lincheck.Online] checks uniqueness. It is told no floor, so that it counts as unverified
// also what is out of order: a system that promises no order may repeat a number that is forgotten.
//
// Of intervals the floor is the highest of the earliest times, and the latest time of the call must not be below it.
type checker struct {
	intervals bool
	online    *lincheck.Online
	pending   []op // not settled, by the time of their ends and then by client; the first is at head
	head      int
	// peaks has, by the time of their ends, the calls that raised the floor.
	peaks   []peak
	pruneAt int // how many peaks there are when the next ones are forgotten
	last    []isotone.Timestamp
	recent  []op // a ring; the oldest is at oldest once it is full
	oldest  int
	settled uint64

	verdicts  map[Order]uint64 // violations
	malformed uint64
	anomalies []Anomaly
	epoch     int64 // when the run began
}

// peak is the highest number, or earliest time, of all calls that had ended at a time.
type peak struct {
	ended   int64
	highest isotone.Timestamp
}

// newChecker returns a checker of so many clients. The window is that of [lincheck.NewOnline].
func newChecker(clients, window int, epoch int64) *checker {
	return &checker{
		online: lincheck.NewOnline(window), pruneAt: 1024, last: make([]isotone.Timestamp, clients),
		verdicts: map[Order]uint64{}, epoch: epoch,
	}
}

// add makes a call known. It must not have ended before what settle was last called with.
func (c *checker) add(o op) {
	i := len(c.pending)
	for i > c.head && o.endedBefore(c.pending[i-1]) {
		i--
	}
	c.pending = slices.Insert(c.pending, i, o)
}

func (o op) endedBefore(p op) bool {
	return o.ended < p.ended || o.ended == p.ended && o.client < p.client
}

// full reports whether no call should begin, as too many wait to be settled.
func (c *checker) full() bool { return len(c.pending)-c.head >= pendingMax }

// settle judges all known calls that ended before a time, and passes each to done. All calls that ended before it
// must be known, and no call that becomes known later may have begun before it.
func (c *checker) settle(before int64, done func(op)) {
	for ; c.head < len(c.pending) && c.pending[c.head].ended < before; c.head++ {
		c.judge(c.pending[c.head])
		done(c.pending[c.head])
	}
	if 2*c.head > len(c.pending) { // each is moved once, on average
		c.pending, c.head = slices.Delete(c.pending, 0, c.head), 0
	}
	if len(c.peaks) >= c.pruneAt {
		c.prune(before)
	}
}

// prune forgets peaks that are the floor of no call to come.
func (c *checker) prune(before int64) {
	for _, o := range c.pending[c.head:] {
		before = min(before, o.began)
	}
	if n := c.peaksBefore(before); n > 1 {
		c.peaks = slices.Delete(c.peaks, 0, n-1)
	}
	c.pruneAt = max(1024, 2*len(c.peaks))
}

// peaksBefore returns how many peaks are of calls that ended before a time.
func (c *checker) peaksBefore(t int64) int {
	n, _ := slices.BinarySearchFunc(c.peaks, t, func(p peak, t int64) int {
		if p.ended < t {
			return -1
		}
		return 1
	})
	return n
}

func (c *checker) judge(o op) {
	var floor isotone.Timestamp
	if n := c.peaksBefore(o.began); n > 0 {
		floor = c.peaks[n-1].highest
	}
	c.settled++
	if !c.intervals {
		c.judgeNumbers(o, floor)
		return
	}
	if o.last().Before(floor) {
		c.violated(Intervals, o, floor)
	}
	c.remember(o, o.numbers.First)
}

func (c *checker) judgeNumbers(o op, floor isotone.Timestamp) {
	var v *lincheck.Violation
	for _, part := range parts(o.numbers) {
		if err := c.online.End(isotone.Timestamp{}, part); v == nil {
			errors.As(err, &v)
		}
	}
	if v != nil && v.Kind == lincheck.Malformed {
		c.malformed++
		return
	}
	switch own := c.last[o.client]; {
	case v != nil:
		c.violated(Unique, o, v.Earlier.Range.First)
	case o.numbers.First.Compare(own) <= 0:
		c.violated(PerClient, o, own)
	case o.numbers.First.Compare(floor) <= 0:
		c.violated(RealTime, o, floor)
	}
	last := o.last()
	if c.last[o.client].Before(last) {
		c.last[o.client] = last
	}
	c.remember(o, last)
}

// remember has a number be the floor of calls that begin after the end of this one.
func (c *checker) remember(o op, number isotone.Timestamp) {
	if n := len(c.peaks); n == 0 || c.peaks[n-1].highest.Before(number) {
		c.peaks = append(c.peaks, peak{o.ended, number})
	}
	if len(c.recent) < recentMax {
		c.recent = append(c.recent, o)
	} else {
		c.recent[c.oldest] = o
		c.oldest = (c.oldest + 1) % recentMax
	}
}

// parts returns the numbers of a call as ranges, in each of which all have the same upper half.
func parts(all isotone.Range) []isotone.Range {
	lower := -all.First.Index // how many have the upper half of the first; 0 stands for 2⁶⁴
	if lower == 0 || all.Count <= lower {
		return []isotone.Range{all}
	}
	return []isotone.Range{
		{First: all.First, Count: lower}, {First: isotone.Timestamp{Time: all.First.Time + 1}, Count: all.Count - lower},
	}
}

// last returns the last number of a call.
func (o op) last() isotone.Timestamp {
	all := parts(o.numbers)
	return all[len(all)-1].Last()
}

// violated records that a call breaks an order, as an earlier one has got a number.
func (c *checker) violated(order Order, o op, number isotone.Timestamp) {
	c.verdicts[order]++
	if c.verdicts[order] > AnomaliesMax/uint64(len(Orders)) {
		return
	}
	a := Anomaly{Order: order, Earlier: Call{First: decimal(number), Count: 1}, Later: c.call(o)}
	for _, e := range c.recent {
		got := !number.Before(e.numbers.First) && !e.last().Before(number)
		if order == Intervals {
			got = number == e.numbers.First
		}
		if got && (order == Unique || e.ended < o.began) {
			a.Earlier = c.call(e)
		}
	}
	c.anomalies = append(c.anomalies, a)
}

func (c *checker) call(o op) Call {
	return Call{
		Known: true, Client: o.client, Node: o.node, BeganS: c.seconds(o.began), EndedS: c.seconds(o.ended),
		First: decimal(o.numbers.First), Count: o.numbers.Count,
	}
}

func (c *checker) seconds(t int64) float64 { return float64(t-c.epoch) / 1e9 }

// report returns the verdicts, given what the system promises.
func (c *checker) report(promised Order) (list []Verdict) {
	orders := OrdersBeside(promised)
	for _, order := range orders {
		v := Verdict{Order: order, Promised: slices.Index(orders, order) <= slices.Index(orders, promised), Violations: c.verdicts[order]}
		if order == Unique {
			v.Unverified = c.online.Stats().Unverified
		}
		list = append(list, v)
	}
	return list
}

// got returns what a call got.
func got(call driver.Call) (all isotone.Range, err error) {
	all.Count = call.Count
	if all.First, err = number(call.First); err != nil || call.Last == "" {
		return all, err
	}
	last, err := number(call.Last)
	if err != nil {
		return all, err
	}
	all.Count = last.Index - all.First.Index + 1
	width, borrow := bits.Sub64(last.Time, all.First.Time, 0)
	if last.Index < all.First.Index {
		width, borrow = bits.Sub64(width, 1, borrow)
	}
	if width != 0 || borrow != 0 || all.Count == 0 {
		return all, driver.Errorf(driver.Malformed, "the interval from %s to %s: want one of 1 to 2^64-1 times", call.First, call.Last)
	}
	return all, nil
}

// number returns a decimal number as a timestamp: its upper half and one, as there is no timestamp 0, and its lower
// half. Numbers from 2¹²⁸-2⁶⁴ on have no such form.
func number(text string) (isotone.Timestamp, error) {
	t, err := driver.ParseNumber(text)
	if t.Time++; err == nil && t.Time == 0 {
		err = driver.Errorf(driver.Malformed, "%s is too large: want a number below 2^128-2^64", text)
	}
	return t, err
}

// decimal returns the number of a timestamp that number has returned.
func decimal(t isotone.Timestamp) string {
	t.Time--
	return string(driver.AppendNumber(nil, t))
}
