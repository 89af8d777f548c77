package snowflake

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
)

const (
	// AheadDefault is the default of [Options.AheadMax]. It covers leap seconds and
	// most clock corrections.
	AheadDefault = time.Second
	// aheadLimit bounds AheadMax: IDs further ahead would no longer be ordered by time.
	aheadLimit = time.Hour
	// cacheLine separates the word that every ID writes from the rest: x86 fetches
	// lines of 64 bytes in pairs, and Apple's processors have lines of 128.
	cacheLine = 128
)

// Options configures a [Generator]. The zero value means Twitter's layout, the system clock
// and no lease.
type Options struct {
	// Layout is how the bits of IDs are split; the zero Layout means [Twitter].
	Layout Layout
	// Now returns the time in unix milliseconds; nil means the system clock. All
	// goroutines that request IDs call it, at least once for each ID or batch. The
	// time may jump in both directions.
	Now func() int64
	// Lease is the range of milliseconds that IDs may have; the zero Lease means all.
	Lease Lease
	// AheadMax is how far the time of IDs may be ahead of the clock: because they
	// borrow from later milliseconds when a sequence is used up, because the clock
	// went back, or because the lease begins later. It is rounded down to whole
	// milliseconds, and is at most an hour; 0 means AheadDefault. With
	// time.Nanosecond no ID is ever ahead of the clock.
	AheadMax time.Duration
}

// Lease is a range of milliseconds, [Start, End) in unix milliseconds, in which only one
// generator may make IDs of its worker. An empty one, which ends where it starts, allows none
// until [Generator.Extend].
type Lease struct{ Start, End int64 }

// Generator makes the IDs of one worker. It is safe for concurrent use; making IDs
// is lock-free. For its guarantees see the package comment.
//
// An ID consists of the worker and a number: milliseconds since the epoch, then the
// sequence. The only state is the next number, which only grows.
type Generator struct {
	layout   Layout
	leased   bool
	start    int64  // of the lease
	worker   uint64 // shifted to its place in an ID
	gap      uint8  // number of worker bits
	sequence uint8  // number of sequence bits
	first    uint64 // the first number
	ahead    uint64 // AheadMax, in milliseconds
	timeMax  uint64 // of the layout
	lastMS   int64  // of the layout

	clock clock         // written once a millisecond, if at all
	end   atomic.Int64  // of the lease
	limit atomic.Uint64 // end as a number: numbers stay below it

	stop    sync.Mutex // only held in Stop
	stopped uint64     // the value of next when Stop was called

	_ [cacheLine]byte
	// next is the smallest number that may still be used; stoppedNext after Stop.
	next atomic.Uint64
	_    [cacheLine - 8]byte
}

// stoppedNext is beyond every limit, so that the check of the limit also detects Stop.
// Numbers have at most 63 bits.
const stoppedNext = math.MaxUint64

// New returns a generator with Twitter's layout, the system clock and no lease. It
// panics unless worker is 0 to 1023. If worker is not a constant, use [NewGenerator].
func New(worker int) *Generator {
	g, err := NewGenerator(worker, Options{})
	if err != nil {
		panic("snowflake: " + err.Error())
	}
	return g
}

// NewGenerator returns a generator for a worker of o.Layout, 0 to Workers()-1. An
// error matches [isotone.ErrInvalidArgument] and lists everything that is wrong with
// worker and options.
func NewGenerator(worker int, o Options) (*Generator, error) {
	if o.Layout == (Layout{}) {
		o.Layout = Twitter
	}
	if o.AheadMax == 0 {
		o.AheadMax = AheadDefault
	}
	if err := o.validate(worker); err != nil {
		return nil, err
	}
	l := o.Layout
	g := &Generator{
		layout:   l,
		leased:   o.Lease != (Lease{}),
		start:    o.Lease.Start,
		worker:   uint64(worker) << l.SequenceBits,
		gap:      l.DatacenterBits + l.WorkerBits,
		sequence: l.SequenceBits,
		ahead:    uint64(o.AheadMax / time.Millisecond),
		timeMax:  l.timeMax(),
		lastMS:   l.LastMillis(),
	}
	g.clock.init(o.Now)
	if g.leased {
		g.first = uint64(max(g.start-l.Epoch, 0)) << g.sequence
		g.end.Store(o.Lease.End)
		g.limit.Store(g.limitOf(o.Lease.End))
	} else {
		g.limit.Store((g.timeMax + 1) << g.sequence)
	}
	g.next.Store(g.first)
	return g, nil
}

func (o Options) validate(worker int) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	l := o.Layout
	if err := l.Validate(); err != nil {
		fault("%s", err.(*isotone.Error).Message)
	} else {
		if worker < 0 || worker >= l.Workers() {
			fault("worker %d: layout %s has 0 to %d", worker, l, l.Workers()-1)
		}
		if o.Lease.Start > l.LastMillis() {
			fault("the lease begins at %d, after the last millisecond of layout %s, %d", o.Lease.Start, l, l.LastMillis())
		}
	}
	if o.AheadMax < 0 || o.AheadMax > aheadLimit {
		fault("AheadMax %v: want 0 to %v", o.AheadMax, aheadLimit)
	}
	if o.Lease != (Lease{}) && (o.Lease.Start < 0 || o.Lease.Start > o.Lease.End) {
		fault("the lease [%d, %d) ends before it begins, or is negative", o.Lease.Start, o.Lease.End)
	}
	if len(faults) == 0 {
		return nil
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "%s", strings.Join(faults, "; "))
}

// TryNext returns the next ID. It never blocks. On failure the error is one of
// [ErrExhausted], [ErrLeaseEnded], [ErrLeaseNotBegun] and [InvalidSystemClock], and
// no ID is used up.
func (g *Generator) TryNext() (ID, error) {
	at, err := g.take(1)
	if err != nil {
		return 0, err
	}
	return g.id(at), nil
}

// TryFill fills dst with the next len(dst) IDs. They are consecutive: the sequence counts
// up by one, and on into the next millisecond. It never blocks. On failure dst is
// unchanged, no ID is used up, and the error is one of those of [Generator.TryNext], or
// [ErrBatch] if dst is longer than [Generator.BatchMax].
func (g *Generator) TryFill(dst []ID) error {
	if len(dst) == 0 {
		return nil
	}
	at, err := g.take(uint64(len(dst)))
	if err != nil {
		return err
	}
	g.fill(dst, at)
	return nil
}

// fill writes the IDs of the numbers from at on.
func (g *Generator) fill(dst []ID, at uint64) {
	sequences := uint64(1) << (g.sequence & 63)
	for len(dst) > 0 {
		id := g.id(at)
		// The IDs in the rest of this millisecond differ only in the sequence.
		n := min(uint64(len(dst)), sequences-at&(sequences-1))
		for i := range dst[:n] {
			dst[i] = id + ID(i)
		}
		dst = dst[n:]
		at += n
	}
}

// id puts the worker between the time and the sequence of a number.
func (g *Generator) id(at uint64) ID {
	// & 63 changes nothing, but saves the check for larger shifts.
	sequence := at & (1<<(g.sequence&63) - 1)
	return ID((at-sequence)<<(g.gap&63) | g.worker | sequence)
}

// take takes n numbers, at least 1, and returns the first. It reads the clock once, before
// the loop, which makes retries cheap. Such a reading is recent enough to make IDs, but not
// to refuse them: see takeSlowly.
func (g *Generator) take(n uint64) (uint64, error) {
	now := g.clock.now()
	if now < g.layout.Epoch || now > g.lastMS {
		return g.takeSlowly(n)
	}
	floor, limit := g.window(now)
	for {
		next := g.next.Load()
		at := max(next, floor)
		if at >= limit || n > limit-at {
			jitter()
			return g.takeSlowly(n)
		}
		jitter()
		if g.next.CompareAndSwap(next, at+n) {
			return at, nil
		}
	}
}

// takeSlowly is take, but reads the clock after next. Then all numbers before next were taken
// with earlier readings of the clock, so a last ID too far ahead of this reading means that
// the clock went back.
func (g *Generator) takeSlowly(n uint64) (uint64, error) {
	if n > uint64(g.BatchMax()) {
		return 0, ErrBatch
	}
	for {
		next := g.next.Load()
		if next == stoppedNext {
			return 0, ErrLeaseEnded
		}
		jitter()
		at, err := g.admit(next, n, g.clock.exact())
		if err != nil {
			return 0, err
		}
		jitter()
		if g.next.CompareAndSwap(next, at+n) {
			return at, nil
		}
	}
}

// window returns the range of numbers that may be used when the clock reads now, which must
// be in the layout: from that millisecond to AheadMax later, inside lease and layout.
func (g *Generator) window(now int64) (floor, limit uint64) {
	ms := uint64(now - g.layout.Epoch)
	return ms << (g.sequence & 63), min(g.aheadOf(ms), g.limit.Load())
}

// aheadOf returns the first number that is too far ahead of ms, in milliseconds since the
// epoch.
func (g *Generator) aheadOf(ms uint64) uint64 {
	return (min(ms+g.ahead, g.timeMax) + 1) << (g.sequence & 63)
}

// admit returns the first of the n numbers to take, or why there are none. If several
// reasons apply, it returns the first in the order of the checks.
func (g *Generator) admit(next, n uint64, now int64) (uint64, error) {
	bits := g.sequence
	if now < g.layout.Epoch {
		return 0, &InvalidSystemClock{Fault: ClockBeforeLayout, Now: now, Bound: g.layout.Epoch}
	}
	if now > g.lastMS {
		return 0, &InvalidSystemClock{Fault: ClockAfterLayout, Now: now, Bound: g.lastMS}
	}
	ms := uint64(now - g.layout.Epoch)
	ahead := g.aheadOf(ms)
	if next == g.first && next >= ahead {
		return 0, ErrLeaseNotBegun
	}
	if next > ahead {
		return 0, &InvalidSystemClock{Fault: ClockBehind, Now: now, Bound: g.layout.Epoch + int64((next-1)>>bits)}
	}
	at := max(next, ms<<bits)
	if limit := g.limit.Load(); at >= limit || n > limit-at {
		if limit > g.timeMax<<bits {
			return 0, &InvalidSystemClock{Fault: ClockAfterLayout, Now: now, Bound: g.lastMS}
		}
		return 0, ErrLeaseEnded
	}
	if n > ahead-at {
		return 0, ErrExhausted
	}
	return at, nil
}

// BatchMax returns the largest possible batch, if no IDs were made recently: all IDs from
// the beginning of a millisecond until AheadMax later. A lease may allow fewer.
func (g *Generator) BatchMax() int {
	const most = math.MaxInt
	milliseconds := min(g.ahead, g.timeMax) + 1
	if milliseconds > most>>g.sequence {
		return most
	}
	return int(milliseconds << g.sequence)
}

// Extend sets the end of the lease, in unix milliseconds, if that is later than the
// current end. A generator that has returned [ErrLeaseEnded] can then make IDs again.
// Without a lease, and after [Generator.Stop], Extend has no effect.
func (g *Generator) Extend(end int64) {
	if !g.leased {
		return
	}
	for old := g.end.Load(); old < end && !g.end.CompareAndSwap(old, end); {
		old = g.end.Load()
	}
	limit := g.limitOf(end)
	for old := g.limit.Load(); old < limit && !g.limit.CompareAndSwap(old, limit); {
		old = g.limit.Load()
	}
}

// limitOf returns the first number of the millisecond end, or the end of the layout if
// that is earlier.
func (g *Generator) limitOf(end int64) uint64 {
	if end <= g.layout.Epoch {
		return 0
	}
	return min(uint64(end-g.layout.Epoch), g.timeMax+1) << g.sequence
}

// Stop ends the generator: further calls fail with [ErrLeaseEnded]. It returns the first
// unix millisecond from which on no ID was made, so that the rest of the lease, [next, End),
// can be returned. If no IDs were made, that is the start of the lease, or without a lease
// the layout's first millisecond. Further calls return the same.
func (g *Generator) Stop() (next int64) {
	g.stop.Lock()
	defer g.stop.Unlock()
	if number := g.next.Swap(stoppedNext); number != stoppedNext {
		g.stopped = number
	}
	switch {
	case g.stopped != g.first:
		return g.layout.Epoch + int64((g.stopped-1)>>g.sequence) + 1
	case g.leased:
		return g.start
	}
	return g.layout.Epoch
}

// Worker returns the worker of the generator's IDs.
func (g *Generator) Worker() int { return int(g.worker >> g.sequence) }

// Layout returns the layout of the IDs.
func (g *Generator) Layout() Layout { return g.layout }

// Lease returns the lease with its current end; the zero Lease if there is none.
func (g *Generator) Lease() Lease {
	return Lease{Start: g.start, End: g.end.Load()}
}
