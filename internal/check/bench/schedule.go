package bench

import (
	"math"
	"sync/atomic"
	"time"
)

// load gives callers their requests.
type load interface {
	// take begins up to free requests in the caller and returns their number. It may wait
	// if the caller has nothing under way; 0 then means that the load is over.
	take(by *caller, free int) int
	// over reports whether there are no more requests for the caller.
	over(by *caller) bool
	// scheduled reports whether requests arrive on a schedule, so that failed ones must
	// be repeated.
	scheduled() bool
	// stop ends the load early; ended reports whether no more requests will be due.
	stop()
	ended() bool
}

// closedLoop always has a next request: callers keep their full depth under way.
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

func (c *closedLoop) take(by *caller, free int) int {
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
		by.begin(now, now, floor)
	}
	return free
}

func (c *closedLoop) over(*caller) bool { return c.stopped.Load() }

func (c *closedLoop) scheduled() bool { return false }

func (c *closedLoop) stop() { c.stopped.Store(true) }

func (c *closedLoop) ended() bool { return c.stopped.Load() }

// openLoop has requests arrive at a constant rate, independent of the answers. An arrival
// is the time at which it is due. It keeps that time however late it is sent, so its latency
// includes all of the delay.
type openLoop struct {
	run      *run
	arrivals chan int64 // due and not yet sent
	distance float64    // nanoseconds between arrivals
	count    uint64     // number of arrivals, warm-up included; 0 means no bound
	end      int64      // nothing is due from this time on; 0 means no bound
	stopping chan struct{}
	stopped  atomic.Bool // nothing more arrives
	dropped  atomic.Uint64
}

// pacerRest is the shortest sleep of the pacer: above 20,000 arrivals a second it releases
// several at once. The delay is part of their latency.
const pacerRest = 50 * time.Microsecond

// pacerRestMax bounds the time until the pacer notices a stop.
const pacerRestMax = 50 * time.Millisecond

func newOpenLoop(r *run) *openLoop {
	o := &openLoop{
		run:      r,
		arrivals: make(chan int64, r.options.Backlog),
		distance: 1e9 / r.options.Rate,
		stopping: make(chan struct{}),
	}
	if n := r.options.Requests; n > 0 {
		// Plus the arrivals of the warm-up.
		o.count = n + uint64(math.Ceil(float64(r.warmup)/o.distance))
	}
	if r.options.Duration > 0 {
		o.end = r.warmup + int64(r.options.Duration)
	}
	return o
}

// pace releases the arrivals when they are due.
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

func (o *openLoop) take(by *caller, free int) int {
	if free == 0 || o.run.hard.Err() != nil {
		return 0
	}
	var first int64
	waited := by.under.count == 0 && len(by.overdue) == 0
	if waited {
		var ok bool
		if first, ok = o.wait(by); !ok {
			return 0
		}
	}
	floor, now := o.run.online.Begin(), o.run.now()
	n := min(free, len(by.overdue)) // failed ones first
	for _, due := range by.overdue[:n] {
		by.begin(due, now, floor)
	}
	by.overdue = append(by.overdue[:0], by.overdue[n:]...)
	if waited {
		by.begin(first, now, floor)
		n++
	}
	for n < free {
		select {
		case due, ok := <-o.arrivals:
			if !ok {
				return n
			}
			by.begin(due, now, floor)
			n++
		default:
			return n
		}
	}
	return n
}

// wait waits for the next arrival. It ends with the schedule: pace closes the channel.
func (o *openLoop) wait(by *caller) (int64, bool) {
	select {
	case due, ok := <-o.arrivals:
		return due, ok
	default:
	}
	due, ok := <-o.arrivals
	if ok && due >= o.run.warmup {
		by.tally.wasLate(o.run.now() - due)
	}
	return due, ok
}

func (o *openLoop) over(by *caller) bool {
	return o.stopped.Load() && len(by.overdue) == 0 && len(o.arrivals) == 0
}

func (o *openLoop) scheduled() bool { return true }

func (o *openLoop) stop() { close(o.stopping) }

func (o *openLoop) ended() bool { return o.stopped.Load() }
