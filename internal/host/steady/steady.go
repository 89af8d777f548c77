package steady

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/core/interval"
)

// Sources are the clocks that a [Clock] is made of. All are in nanoseconds, each from an origin of
// its own, and must be safe for concurrent use.
type Sources struct {
	// Raw has a steady rate.
	Raw func() int64
	// Boot and Mono run alike, and Raw at 7/8 to 9/8 of their rate, but Mono and Raw stand still in
	// suspend. Boot - Mono grows by what a suspend lasted, and is constant otherwise.
	Boot, Mono func() int64
	// Go reads two clocks, the wall clock first: mono is Mono, from any origin. What a suspend lasted
	// is added to the wall clock at once. Besides, the wall clock may jump.
	Go func() (wall, mono int64)
}

const (
	// ageMax is how long, in nanoseconds, Go's clock is used after a reading of the exact one. With
	// the error of its rate that gives Now a width of at most 25 µs.
	ageMax = 100_000
	// rateShift: Raw's rate differs from Mono's by at most 1/8. NTP may slew Mono by 10 %.
	rateShift = 3
	// jumpMax is by how much, in nanoseconds, the wall clock may get ahead of or behind Mono unnoticed.
	// Between the two readings of Go's clock there are some 40 ns, except after an interrupt.
	jumpMax = 2_000
	// attemptsMax bounds how often Exact reads again because it was interrupted.
	attemptsMax = 4
	// interrupted is how long Exact may take, in nanoseconds; more is an interruption.
	interrupted = 20_000
)

// Clock is a steady clock made of [Sources]. Make it with [New]. All methods are safe for concurrent
// use, and allocate nothing.
//
// Now continues the latest exact reading, the anchor, by Go's clock. Two lines rest on an anchor: the
// clock was not below the lower one, which rises by 7/8, nor above the upper one, which rises by 9/8
// of what Go's clock shows. The anchor is replaced when it is too old, or when the wall clock says
// that the machine may have been suspended.
type Clock struct {
	// The anchor, with a sequence number that is odd while it is written. Readers take no lock.
	seq    atomic.Uint64
	low    atomic.Int64 // the lower line when Go's clock showed lowAt
	lowAt  atomic.Int64
	high   atomic.Int64 // the upper line when Go's clock showed highAt
	highAt atomic.Int64
	wall   atomic.Int64 // wall clock less mono of Go's clock, before the exact reading

	src Sources
	mu  sync.Mutex // held by the goroutine that replaces the anchor
}

// New returns a clock.
func New(s Sources) *Clock { return &Clock{src: s} }

// anchor is a copy of the fields of [Clock] of the same names.
type anchor struct{ low, lowAt, high, highAt, wall int64 }

// load returns the anchor. It reports false if there is none, or one is being written.
func (c *Clock) load() (a anchor, ok bool) {
	seq := c.seq.Load()
	a = anchor{c.low.Load(), c.lowAt.Load(), c.high.Load(), c.highAt.Load(), c.wall.Load()}
	return a, seq != 0 && seq&1 == 0 && c.seq.Load() == seq
}

// store publishes the anchor. The caller holds mu.
func (c *Clock) store(a anchor) {
	c.seq.Add(1)
	c.low.Store(a.low)
	c.lowAt.Store(a.lowAt)
	c.high.Store(a.high)
	c.highAt.Store(a.highAt)
	c.wall.Store(a.wall)
	c.seq.Add(1)
}

// at returns both lines when Go's clock shows mono.
func (a *anchor) at(mono int64) interval.Instant {
	return interval.Instant{Lo: a.lowest(mono), Hi: a.highest(mono)}
}

func (a *anchor) lowest(mono int64) int64 {
	d := max(0, mono-a.lowAt)
	return a.low + d - (d+1<<rateShift-1)>>rateShift
}

func (a *anchor) highest(mono int64) int64 {
	d := max(0, mono-a.highAt)
	return a.high + d + d>>rateShift
}

// fresh reports whether Now may continue the anchor.
func (a *anchor) fresh(wall, mono int64) bool {
	jump := wall - mono - a.wall
	return mono-a.lowAt < ageMax && -jumpMax <= jump && jump <= jumpMax
}

// Now returns bounds that contain what the clock showed at some instant of the call. Lo is never
// below that of an earlier call on the same goroutine, or of one that ended before this one began.
// The bounds are 15 µs apart on average, and at most 29 µs unless the thread was interrupted.
//
// A suspend goes unnoticed for up to 100 µs of running time if somebody sets the wall clock back in
// this time by as much as the suspend lasted. Now assumes that nobody does.
func (c *Clock) Now() interval.Instant {
	a, ok := c.load() // before the clock is read, so that the anchor is not later than that
	wall, mono := c.src.Go()
	if ok && a.fresh(wall, mono) {
		return a.at(mono)
	}
	return c.refresh()
}

// refresh is Now with a new anchor, unless another goroutine has just made one.
//
// Why the lines hold: the exact reading is at most what the clock shows after it, so the lower line
// starts there, at the second reading of Go's clock. It goes on where the previous lower line is
// higher; that one still holds, because a suspend only raises the clock. The upper line starts at the
// first reading of Go's clock. So it has risen by 9/8 of all of the time that the exact reading may
// lack (see exact) when Now looks at it.
//
// A suspend after the first reading of Go's clock moves the wall clock away from a.wall, so the next
// call notices it, whether the exact reading contains it or not. One of less than jumpMax is within
// the upper line. A suspend between the two parts of a reading of Go's clock goes unnoticed as well,
// but then the clock was within the lines when the wall part was read.
func (c *Clock) refresh() interval.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.load()
	wall, begin := c.src.Go()
	if known && old.fresh(wall, begin) {
		return old.at(begin)
	}
	exact, _ := c.exact()
	_, end := c.src.Go()
	a := anchor{
		low: exact, lowAt: end,
		high: exact + jumpMax + 2, highAt: begin,
		wall: wall - begin,
	}
	if known {
		a.low = max(a.low, old.lowest(end))
	}
	c.store(a)
	return a.at(end)
}

// exact reads the three clocks, in an order that makes any suspend in between harmless. Boot less Mono
// is what all suspends before the first of the two readings have lasted, less the running time between
// the two: if the machine is suspended in between, Mono stands still. A suspend after the reading of
// Boot is therefore not in the sum, as if it came after the call. So the sum is not more than what the
// clock showed at the end. It is less than that by the running time between the two readings, which
// is part of the call, so it is not less than what the clock showed at the beginning. Only if Mono was
// slewed, and nearly all of the call passed between these two readings, can it be less, by an eighth
// of the time between them at most.
func (c *Clock) exact() (t, raw int64) {
	boot := c.src.Boot()
	mono := c.src.Mono()
	raw = c.src.Raw()
	return boot - mono + raw, raw
}

// Exact returns what the clock showed at some instant of the call, in nanoseconds. It is some
// nanoseconds before that only if the thread was interrupted, several times in a row, while NTP was
// slewing the clocks.
func (c *Clock) Exact() (t int64) {
	for range attemptsMax {
		var end int64
		begin := c.src.Raw()
		if t, end = c.exact(); end-begin < interrupted {
			break
		}
	}
	return t
}

var (
	origin  = time.Now()
	process = New(systemSources())
)

// goClock is Sources.Go.
func goClock() (wall, mono int64) {
	now := time.Now()
	return now.UnixNano(), int64(now.Sub(origin))
}

// Now is [Clock.Now] of the clock of this process, for readers that want speed.
func Now() interval.Instant { return process.Now() }

// Exact is [Clock.Exact] of the clock of this process.
func Exact() int64 { return process.Exact() }
