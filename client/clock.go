package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/steady"
)

// ClockOptions configures a [Clock]. The zero value is a good default.
type ClockOptions struct {
	// Replaced in tests:
	steady func() interval.Instant // the steady clock
	probe  time.Duration           // instead of probeInterval
}

// Clock reads the cluster clock in this process, without a request for each read, and makes
// timestamps of it that are unique and in one order with those of the oracle. It asks nodes for the
// time, several times within the interval that the cluster is configured for (INTERVAL_MS), over a
// connection of its own. Make it with [Client.NewClock]. All methods are safe for concurrent use.
//
// A timestamp that a Clock has made is in real-time order with all others, of whatever client, once
// it is in the past for everyone: once [Clock.Wait] has returned. So an operation may take a
// timestamp, do its work, and wait before it reports its end (a commit wait).
//
// All of this rests on the rates of the steady clocks of the processes involved: that of each must be
// right to 200 millionths. On systems other than Linux, time in which the machine sleeps is not
// counted, so do not use a Clock there on machines that sleep.
type Clock struct {
	c      *Client
	steady func() interval.Instant // for calls: quick
	exact  func() interval.Instant // for questions
	known  atomic.Pointer[knowledge]
	own    *ClockGenerator
	waits  waits
	probe  time.Duration

	failed  atomic.Uint64 // questions
	trouble trouble       // since the latest good reading, for errors of calls

	ctx       context.Context // done when the clock or the client is closed
	cancel    context.CancelFunc
	wanted    chan struct{} // a call waits for an estimate; has room for one
	soundings chan sounding
	ended     chan struct{} // closed when all goroutines have ended
}

// knowledge is what a Clock knows of the cluster clock. It never changes.
type knowledge struct {
	estimate interval.Estimate
	// why the estimate is empty and stays so for now: a clock has a wrong rate, all nodes refuse this
	// client, or the Clock is closed. nil means that the next reading may change that.
	why   error
	stats ClockStats
	next  chan struct{} // closed when there is newer knowledge
}

var (
	errNoReading = isotone.Errorf(isotone.CodeNoLeader, "no reading of the cluster clock is valid: its limit has passed, or there was none yet")
	errBadRate   = isotone.Errorf(isotone.CodeClock, "the steady clock of this process, or that of the leader, has a wrong rate")
)

// NewClock returns a clock. It waits for the first valid reading, until ctx is done or all nodes
// refuse: those of older versions do, and those of a cluster in which intervals are off. After
// NewClock returns, ctx has no effect. Close the clock before the client.
func (c *Client) NewClock(ctx context.Context, o ClockOptions) (*Clock, error) {
	if !c.enter() {
		return nil, ErrClosed
	}
	k := &Clock{
		c: c, steady: o.steady, exact: o.steady, probe: o.probe,
		wanted: make(chan struct{}, 1), soundings: make(chan sounding), ended: make(chan struct{}),
	}
	if k.steady == nil {
		k.steady = steady.Now
		k.exact = func() interval.Instant { return interval.At(steady.Exact()) }
	}
	if k.probe == 0 {
		k.probe = probeInterval
	}
	k.waits.added = make(chan struct{}, 1)
	k.own = k.NewGenerator()
	k.known.Store(&knowledge{next: make(chan struct{})})
	k.ctx, k.cancel = context.WithCancel(c.ctx)
	go func() {
		defer c.work.Done()
		k.run()
	}()
	for {
		known := k.known.Load()
		if _, good := known.estimate.Bounds(k.steady()); good {
			return k, nil
		}
		if err := k.news(ctx, known); err != nil {
			k.Close()
			return nil, err
		}
	}
}

// Close ends the clock. Waiting and later calls fail with [ErrClosed]. When it returns, its
// connections are closed and its goroutines have ended.
func (k *Clock) Close() error {
	k.cancel()
	<-k.ended
	return nil
}

// Now returns what the cluster clock may show: at an instant of the call it was within the interval.
// Now never blocks, and sends nothing. The error matches isotone.ErrNoLeader while no reading is valid,
// isotone.ErrClock while a clock has a wrong rate, and is [ErrClosed] after Close. If all nodes refuse
// this client, it is the error of one of them.
func (k *Clock) Now() (isotone.Interval, error) {
	known := k.known.Load() // before the clock is read: a pause in between then only makes it older (R5)
	bounds, good := known.estimate.Bounds(k.steady())
	if !good {
		return isotone.Interval{}, known.fault()
	}
	return isotone.Interval{Earliest: bounds.Earliest, Latest: bounds.Latest}, nil
}

// fault returns why no estimate is good.
func (known *knowledge) fault() error {
	if known.why != nil {
		return known.why
	}
	return errNoReading
}

// After reports whether ts is surely in the past: whatever begins now, anywhere, gets a larger
// timestamp. It never blocks. While no reading is valid it goes by the last one that was.
func (k *Clock) After(ts isotone.Timestamp) bool {
	known := k.known.Load()
	bounds, _ := known.estimate.Bounds(k.steady())
	return interval.IsPast(ts, bounds)
}

// Before reports whether ts is surely still to come: the cluster clock has not reached it. It never
// blocks, and is false while no reading is valid.
func (k *Clock) Before(ts isotone.Timestamp) bool {
	known := k.known.Load()
	bounds, good := known.estimate.Bounds(k.steady())
	return good && bounds.Latest < ts.Time
}

// Timestamp returns a timestamp from the clock's own generator. It costs no request and does not
// allocate. It waits only while no reading is valid, at most until ctx is done; its error then is
// that of [Client.Timestamp], or one that matches isotone.ErrClock while a clock has a wrong rate. If
// all nodes refuse this client it fails at once.
//
// Timestamps increase, and are unique in the cluster. One is not above all that were made before it by
// other generators until [Clock.Wait] was called for those.
func (k *Clock) Timestamp(ctx context.Context) (isotone.Timestamp, error) {
	return k.own.Timestamp(ctx)
}

// Timestamps fills dst, at most [ClockBatchMax], with timestamps from the clock's own generator. Their
// times are consecutive nanoseconds. Otherwise it is like [Clock.Timestamp]. A generator that makes
// more than one each nanosecond gets ahead of the clock, and waits for the last one take longer.
func (k *Clock) Timestamps(ctx context.Context, dst []isotone.Timestamp) error {
	return k.own.Timestamps(ctx, dst)
}

// ClockBatchMax bounds the timestamps of one call: a millisecond of a generator.
const ClockBatchMax = 1_000_000

// ClockGenerator makes timestamps from a [Clock]. Goroutines that each use one of their own do not
// slow each other down, as they do with that of the Clock. All methods are safe for concurrent use.
type ClockGenerator struct {
	k     *Clock
	index uint64
	last  atomic.Uint64 // time of the latest timestamp
	_     [40]byte      // generators do not share a cache line
}

// NewGenerator returns a generator of its own 63 random bits. It holds nothing that has to be closed,
// and ends with the clock. Make one for each core or worker, not one for each timestamp.
func (k *Clock) NewGenerator() *ClockGenerator {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return &ClockGenerator{k: k, index: binary.BigEndian.Uint64(random[:]) | interval.IndexMin}
}

// Timestamp is [Clock.Timestamp].
func (g *ClockGenerator) Timestamp(ctx context.Context) (isotone.Timestamp, error) {
	at, ok := g.take(g.k.known.Load(), 1)
	if !ok {
		var err error
		if at, err = g.wait(ctx, 1); err != nil {
			return isotone.Timestamp{}, err
		}
	}
	return isotone.Timestamp{Time: at, Index: g.index}, nil
}

// Timestamps is [Clock.Timestamps].
func (g *ClockGenerator) Timestamps(ctx context.Context, dst []isotone.Timestamp) error {
	switch n := len(dst); {
	case n == 0:
		return nil
	case n > ClockBatchMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "%d timestamps of the cluster clock: want at most %d", n, ClockBatchMax)
	}
	at, ok := g.take(g.k.known.Load(), uint64(len(dst)))
	if !ok {
		var err error
		if at, err = g.wait(ctx, uint64(len(dst))); err != nil {
			return err
		}
	}
	for i := range dst {
		dst[i] = isotone.Timestamp{Time: at + uint64(i), Index: g.index}
	}
	return nil
}

// take takes n consecutive times. known was loaded within the call, and the clock is read after that
// (R5).
func (g *ClockGenerator) take(known *knowledge, n uint64) (at uint64, ok bool) {
	bounds, good := known.estimate.Bounds(g.k.steady())
	if !good {
		return 0, false
	}
	for {
		last := g.last.Load()
		if at, ok = interval.NextTime(bounds, last, n); !ok || g.last.CompareAndSwap(last, at+n-1) {
			return at, ok
		}
	}
}

// wait is take that waits for a good estimate, with a limit that has room for n more.
func (g *ClockGenerator) wait(ctx context.Context, n uint64) (at uint64, err error) {
	for {
		known := g.k.known.Load()
		if at, ok := g.take(known, n); ok {
			return at, nil
		}
		if err := g.k.news(ctx, known); err != nil {
			return 0, err
		}
	}
}

// news has nodes asked soon, and waits until more is known than known.
func (k *Clock) news(ctx context.Context, known *knowledge) error {
	switch known.why {
	case nil:
		k.want()
	case errBadRate: // more questions would not end it sooner
	default:
		return known.why
	}
	select {
	case <-known.next:
		return nil
	case <-ctx.Done():
		return k.overdue(ctx)
	}
}

// want has the clock ask a node soon.
func (k *Clock) want() {
	select {
	case k.wanted <- struct{}{}:
	default:
	}
}

// overdue returns the error of a call whose context is done.
func (k *Clock) overdue(ctx context.Context) error {
	if ctx.Err() != context.DeadlineExceeded || k.c.foreign.Load() != nil {
		return k.c.timeoutError(ctx)
	}
	known := k.known.Load()
	var told *isotone.Error
	if errors.As(known.why, &told) {
		return &lateError{isotone.Errorf(told.Code, "not in time: %s", told.Message)}
	}
	if bounds, good := known.estimate.Bounds(k.steady()); good {
		return &lateError{isotone.Errorf(isotone.CodeDeadlineExceeded,
			"the cluster clock has not come far enough in time: it is at %d to %d, with a limit of %d", bounds.Earliest, bounds.Latest, bounds.Limit)}
	}
	return &lateError{isotone.Errorf(isotone.CodeDeadlineExceeded, "no valid reading of the cluster clock in time%s", k.trouble.text())}
}

// ClockStats describes the state of a [Clock], for metrics.
type ClockStats struct {
	// Width is how uncertain the interval is now. It is 0 while no reading is valid.
	Width time.Duration
	// Left is for how long from now on the clock could be used if there were no more readings; 0
	// while none is valid.
	Left time.Duration
	// Age is the time since the latest reading was received; 0 if nothing is known.
	Age time.Duration
	// Node is the address that sent it, RoundTrip how long it took to, and Term the cluster clock's
	// term.
	Node      string
	RoundTrip time.Duration
	Term      uint64
	// Readings and Failures count the answers so far.
	Readings, Failures uint64
	// Err is why no reading is valid; nil if one is. See [Clock.Now].
	Err error
}

// Stats returns the state of the clock now. It never blocks.
func (k *Clock) Stats() ClockStats {
	known := k.known.Load()
	now := k.steady()
	s := known.stats
	s.Failures = k.failed.Load()
	if s.Term = known.estimate.Term(); s.Term != 0 {
		s.Age = time.Duration(known.estimate.Age(now))
	}
	bounds, good := known.estimate.Bounds(now)
	if !good {
		s.Err = known.fault()
		return s
	}
	s.Width = isotone.Interval{Earliest: bounds.Earliest, Latest: bounds.Latest}.Width()
	s.Left = time.Duration(bounds.Limit - bounds.Latest)
	return s
}
