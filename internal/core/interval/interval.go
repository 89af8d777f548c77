package interval

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Rates, in millionths. The steady clocks of two processes and the slewing of the cluster clock
// together are below growth: (1+RateError)(1+Slew)/(1-RateError) < 1+growth.
const (
	// RateError is how far the rate of a steady clock may be from 1.
	RateError = 200
	// Slew is how much faster or slower than the leader's steady clock a cluster clock may run.
	Slew = 500
	// growth is by how much bounds widen with the time since the reading. It divides a million.
	growth = 1000

	million = 1_000_000
)

// LimitMax is the largest permitted length of a limit, and LimitMin the smallest one.
const (
	LimitMin = 20 * time.Millisecond
	LimitMax = 10 * time.Second
)

// Wait returns how long no clock of a later term may start after a limit of length d was begun: d, as
// measured by the slowest clock, on the fastest one.
func Wait(d int64) int64 {
	return d + mutant.Pick(mutant.WaitWithoutRate, 0, d/(million/growth)+1)
}

// Instant is a reading of a steady clock: a clock that never jumps, runs through suspend, and has the
// right rate within [RateError]. It showed a time in [Lo, Hi] at some instant of the call that read it,
// in nanoseconds from an origin that is constant in a process.
type Instant struct{ Lo, Hi int64 }

// At returns the instant at which a clock showed exactly t.
func At(t int64) Instant { return Instant{t, t} }

// Reading is what a node tells of the cluster clock.
type Reading struct {
	// Cluster is the ID of the cluster. Term is the term whose clock it is; not 0.
	Cluster, Term uint64
	// Earliest and Latest are bounds of the cluster clock, at one instant between the request and
	// the answer. Limit is how far bounds that rest on this reading may be used.
	Earliest, Latest, Limit uint64
}

// ReadingSize is the length of an encoded [Reading] with its nonce, in bytes.
const ReadingSize = 48

// Append appends earliest, latest, limit, term, cluster and nonce to b, each as 8 big-endian bytes.
func (r Reading) Append(b []byte, nonce uint64) []byte {
	for _, v := range [...]uint64{r.Earliest, r.Latest, r.Limit, r.Term, r.Cluster, nonce} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// Decode decodes what [Reading.Append] has encoded. An error matches isotone.ErrInvalidArgument.
func Decode(b []byte) (r Reading, nonce uint64, err error) {
	if len(b) != ReadingSize {
		return r, 0, isotone.Errorf(isotone.CodeInvalidArgument, "a reading of the cluster clock has %d bytes, got %d", ReadingSize, len(b))
	}
	u := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	r = Reading{Earliest: u(0), Latest: u(1), Limit: u(2), Term: u(3), Cluster: u(4)}
	if r.Term == 0 || r.Earliest > r.Latest || r.Latest > math.MaxInt64 || r.Limit > math.MaxInt64 {
		return Reading{}, 0, isotone.Errorf(isotone.CodeInvalidArgument, "a reading of the cluster clock is out of range")
	}
	return r, u(5), nil
}

// Estimate is what a process knows of the cluster clock of one term: a line that the clock is not
// below, and a line that it is not above. The zero Estimate knows nothing.
type Estimate struct {
	term       uint64
	earliest   uint64 // the clock had reached it ...
	earliestAt int64  // ... when the own steady clock showed this
	latest     uint64 // the clock had not passed it ...
	latestAt   int64  // ... when the own steady clock showed this
	limit      uint64
	receivedAt int64   // Hi of the latest reading
	told       Reading // the latest, for deliberate bugs
}

// Term returns the term of the clock, 0 if nothing is known.
func (e *Estimate) Term() uint64 { return e.term }

// Limit returns up to which time on the cluster clock the bounds may be used.
func (e *Estimate) Limit() uint64 { return e.limit }

// Age returns the time since the latest reading was received, in nanoseconds of the own clock.
func (e *Estimate) Age(now Instant) int64 { return max(0, now.Hi-e.receivedAt) }

// Take handles a reading whose request left at sent, read before it was sent, and whose answer came at
// received, read after it arrived. A reading of an earlier term is ignored. The clock of a later term
// replaces all that is known.
//
// ok is false if the reading contradicts what is known: one of the clocks has a wrong rate. Then the
// estimate is forgotten.
func (e *Estimate) Take(sent, received Instant, r Reading) (ok bool) {
	if r.Term < e.term && !mutant.On(mutant.MergeTerms) {
		return true
	}
	n := newEstimate(sent, received, r)
	if r.Term > e.term && !mutant.On(mutant.MergeTerms) && !mutant.On(mutant.LimitOfNewer) || e.term == 0 {
		*e = n
		return true
	}
	// Questions are under way at the same time, so a reading may be taken in after a later one. Lines
	// say nothing of the time before they begin, so compare them when all have.
	at := At(max(received.Hi, e.receivedAt))
	oldEarliest, oldLatest := e.lines(at)
	earliest, latest := n.lines(at)
	if earliest > oldEarliest {
		e.earliest, e.earliestAt = n.earliest, n.earliestAt
	}
	if latest < oldLatest {
		e.latest, e.latestAt = n.latest, n.latestAt
	}
	e.limit, e.term = max(e.limit, n.limit), max(e.term, n.term)
	e.receivedAt, e.told = max(e.receivedAt, n.receivedAt), r
	if min(latest, oldLatest) < max(earliest, oldEarliest) && !mutant.On(mutant.MergeTerms) && !mutant.On(mutant.LimitOfNewer) {
		*e = Estimate{}
		return false
	}
	return true
}

func newEstimate(sent, received Instant, r Reading) Estimate {
	n := Estimate{
		term: r.Term, limit: r.Limit, receivedAt: received.Hi, told: r,
		earliest: r.Earliest, earliestAt: received.Hi,
		latest: r.Latest, latestAt: sent.Lo,
	}
	switch {
	case mutant.On(mutant.FromReceive):
		n.latestAt = received.Hi
	case mutant.On(mutant.EarlyFromSend):
		n.earliestAt = sent.Lo
	case mutant.On(mutant.HalfRTT):
		half := uint64(max(0, received.Hi-sent.Lo) / 2)
		n.earliest, n.latest, n.latestAt = r.Earliest+half, r.Latest+half, received.Hi
	}
	return n
}

// lines returns the bounds of the cluster clock now, whether they may be used or not. What is beyond
// 64 bits is the largest number, which is above every limit.
func (e *Estimate) lines(now Instant) (earliest, latest uint64) {
	sinceEarliest, sinceLatest := since(e.earliestAt, now.Lo), since(e.latestAt, now.Hi)
	if mutant.On(mutant.NoGrowth) {
		return add(e.earliest, sinceEarliest), add(e.latest, sinceLatest)
	}
	return add(e.earliest, sinceEarliest-growthUp(sinceEarliest)), add(add(e.latest, sinceLatest), sinceLatest/(million/growth)+1)
}

// since returns the time from one value of the own steady clock to another, 0 if that is not later.
func since(from, to int64) uint64 {
	if to <= from {
		return 0
	}
	return uint64(to) - uint64(from) // right even if the difference is not an int64
}

// growthUp returns the growth of bounds within d, rounded up: at most d.
func growthUp(d uint64) uint64 {
	if d == 0 {
		return 0
	}
	return (d-1)/(million/growth) + 1
}

// add returns a+b, or the largest number if that is less.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Bounds returns bounds of the cluster clock at the instant now, which must have been read after the
// estimate was loaded, and after the operation that uses them began. good reports whether they may be
// used: the later one is not above the limit. If it is, the earlier one still is a lower bound of this
// term's clock and of all later ones.
func (e *Estimate) Bounds(now Instant) (r Reading, good bool) {
	if e.term == 0 {
		return Reading{}, false
	}
	earliest, latest := e.lines(now)
	if mutant.On(mutant.NoUncertainty) {
		latest = earliest
	}
	r = Reading{Term: e.term, Earliest: earliest, Latest: latest, Limit: e.limit}
	switch {
	case mutant.On(mutant.IgnoreLimit):
		return r, true
	case mutant.On(mutant.LimitByEarliest):
		return r, earliest <= e.limit
	}
	good = latest <= e.limit
	if !good { // a later term's clock starts above the limit, but perhaps below this line
		r.Earliest = min(r.Earliest, e.limit)
	}
	return r, good
}

// Until returns after what time on the own steady clock, from the instant now on, the earlier bound is
// above t: 0 if it is above t already. ok is false if it needs another reading to get there, because
// nothing is known, or t is not below the limit.
func (e *Estimate) Until(now Instant, t uint64) (d int64, ok bool) {
	if e.term == 0 || t >= e.limit {
		return 0, false
	}
	if t < e.earliest {
		return 0, true
	}
	need := t - e.earliest + 1
	const part = million/growth - 1 // the bound advances by it while the own clock does by one more
	at := add(need, (need-1)/part+1)
	if at > math.MaxInt64 {
		return 0, false
	}
	// Both differences are right even if they are not int64s.
	if passed := since(e.earliestAt, now.Lo); at > passed {
		return int64(min(add(at-passed, since(now.Lo, e.earliestAt)), math.MaxInt64)), true
	}
	return 0, true
}

// Told returns the bounds that a node may tell others of: its own.
func (e *Estimate) Told(now Instant) (r Reading, good bool) {
	r, good = e.Bounds(now)
	if mutant.On(mutant.StaleRelay) {
		r.Earliest, r.Latest = e.told.Earliest, e.told.Latest
	}
	return r, good
}
