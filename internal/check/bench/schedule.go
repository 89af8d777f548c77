package bench

import (
	"math"
	"sync/atomic"
	"time"
)

// load is where lanes get their requests.
type load interface {
	// take puts up to free requests under way in the lane and returns how many. It may
	// wait if the lane has nothing under way. 0 then means that there is nothing left.
	take(l *lane, free int) int
	// over reports whether the lane has nothing left to do, but for what is under way.
	over(l *lane) bool
	// scheduled reports whether requests arrive by themselves, and so have to be
	// answered in the end.
	scheduled() bool
	// stop ends the load early; ended reports whether nothing more will be due.
	stop()
	ended() bool
}

// closedLoop always has a next request: as many are under way as there are places.
type closedLoop struct {
	run     *run
	stopped atomic.Bool
	bounded bool
	left    atomic.Int64 // requests, if bounded
}

func newClosedLoop(r *run) *closedLoop {
	c := &closedLoop{run: r, bounded: r.options.Requests > 0}
	c.left.Store(int64(r.options.Requests))
	return c
}

func (c *closedLoop) take(l *lane, free int) int {
	if free == 0 || c.stopped.Load() {
		return 0
	}
	floor := c.run.online.Begin()
	now := c.run.now()
	if c.bounded && now >= c.run.warmup {
		left := c.left.Add(-int64(free))
		if left <= 0 {
			c.stopped.Store(true)
			free = max(0, free+int(left))
		}
	}
	for range free {
		l.begin(now, now, floor)
	}
	return free
}

func (c *closedLoop) over(*lane) bool { return c.stopped.Load() }

func (c *closedLoop) scheduled() bool { return false }

func (c *closedLoop) stop() { c.stopped.Store(true) }

func (c *closedLoop) ended() bool { return c.stopped.Load() }

// openLoop has requests arrive at even distances, whether or not the ones before were
// answered. An arrival is the time at which it is due, and keeps that time however late
// it is sent, so that its latency has all of the delay in it.
type openLoop struct {
	run      *run
	arrivals chan int64 // due and not yet sent
	distance float64    // nanoseconds between arrivals
	count    uint64     // of all arrivals; 0 means no bound
	end      int64      // nothing is due from here on; 0 means no bound
	stopping chan struct{}
	stopped  atomic.Bool // nothing more arrives
	dropped  atomic.Uint64
}

// pacerRest is the least time that the pacer sleeps: at more than 20,000 arrivals a
// second it lets go several at once. The delay is part of their latency.
const pacerRest = 50 * time.Microsecond

// pacerRestMax bounds the time until the pacer notices that it is to stop.
const pacerRestMax = 50 * time.Millisecond

func newOpenLoop(r *run) *openLoop {
	o := &openLoop{
		run:      r,
		arrivals: make(chan int64, r.options.Backlog),
		distance: 1e9 / r.options.Rate,
		stopping: make(chan struct{}),
	}
	if n := r.options.Requests; n > 0 {
		// Those of the warm-up come on top.
		o.count = n + uint64(math.Ceil(float64(r.warmup)/o.distance))
	}
	if r.options.Duration > 0 {
		o.end = r.warmup + int64(r.options.Duration)
	}
	return o
}

// pace lets the arrivals go when they are due.
func (o *openLoop) pace(sleep func(time.Duration)) {
	defer close(o.arrivals)
	defer o.stopped.Store(true)
	for i := uint64(0); o.count == 0 || i < o.count; {
		due := int64(float64(i) * o.distance)
		if o.end != 0 && due >= o.end {
			return
		}
		if wait := time.Duration(due - o.run.now()); wait > 0 {
			select {
			case <-o.stopping:
				return
			default:
			}
			sleep(max(pacerRest, min(wait, pacerRestMax)))
			continue
		}
		select {
		case o.arrivals <- due:
		default:
			if due >= o.run.warmup {
				o.dropped.Add(1)
			}
		}
		i++
	}
}

func (o *openLoop) take(l *lane, free int) int {
	if free == 0 || o.run.hard.Err() != nil {
		return 0
	}
	var first int64
	waited := l.under.count == 0 && len(l.overdue) == 0
	if waited {
		var ok bool
		if first, ok = o.wait(l); !ok {
			return 0
		}
	}
	floor, now := o.run.online.Begin(), o.run.now()
	n := min(free, len(l.overdue)) // what failed goes first
	for _, due := range l.overdue[:n] {
		l.begin(due, now, floor)
	}
	l.overdue = append(l.overdue[:0], l.overdue[n:]...)
	if waited {
		l.begin(first, now, floor)
		n++
	}
	for n < free {
		select {
		case due, ok := <-o.arrivals:
			if !ok {
				return n
			}
			l.begin(due, now, floor)
			n++
		default:
			return n
		}
	}
	return n
}

// wait waits for the next arrival. It ends with the schedule: pace closes the channel.
func (o *openLoop) wait(l *lane) (int64, bool) {
	select {
	case due, ok := <-o.arrivals:
		return due, ok
	default:
	}
	due, ok := <-o.arrivals
	if ok && due >= o.run.warmup {
		l.tally.wasLate(o.run.now() - due)
	}
	return due, ok
}

func (o *openLoop) over(l *lane) bool {
	return o.stopped.Load() && len(l.overdue) == 0 && len(o.arrivals) == 0
}

func (o *openLoop) scheduled() bool { return true }

func (o *openLoop) stop() { close(o.stopping) }

func (o *openLoop) ended() bool { return o.stopped.Load() }
