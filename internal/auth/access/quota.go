package access

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Limits is what a user, or an address without credentials, may use. 0: no limit.
type Limits struct {
	// Requests and Timestamps are numbers a second; IDs count as timestamps. What was not used
	// in a second can be used at once.
	Requests   uint64 `json:"requests,omitempty"`
	Timestamps uint64 `json:"timestamps,omitempty"`
	// Connections, Streams (of live documents), Workers (leases of worker IDs), Sessions, and Locks that
	// each of these holds or waits for, are numbers at the same time.
	Connections int64 `json:"connections,omitempty"`
	Streams     int64 `json:"streams,omitempty"`
	Workers     int64 `json:"workers,omitempty"`
	Sessions    int64 `json:"sessions,omitempty"`
	Locks       int64 `json:"locks,omitempty"`
}

// RateMax bounds the rates: a nanosecond for each.
const RateMax = uint64(time.Second)

func (l *Limits) check() error {
	switch {
	case l.Requests > RateMax || l.Timestamps > RateMax:
		return fmt.Errorf("a rate is at most %d a second", RateMax)
	case l.Connections < 0 || l.Streams < 0 || l.Workers < 0 || l.Sessions < 0 || l.Locks < 0:
		return fmt.Errorf("a limit is not negative")
	}
	return nil
}

// usage is what was used of limits. It is safe for concurrent use.
type usage struct {
	limits               atomic.Pointer[Limits]
	requests, timestamps Bucket
	connections, streams atomic.Int64
	inPool               [pools]atomic.Int64 // the connections by pool
	leases               leases
	tally                tally
	told                 told
	// refusals and handshakes are those of an address.
	refusals, handshakes budget
}

func newUsage(l Limits) *usage {
	u := &usage{}
	u.limits.Store(&l)
	return u
}

// connect counts n connections more in a pool.
func (u *usage) connect(p Pool, n int64) {
	u.connections.Add(n)
	u.inPool[p].Add(n)
}

// take uses requests and timestamps, or neither. It returns how long to wait if they are used
// up.
func (u *usage) take(now time.Duration, requests, timestamps uint64) (wait time.Duration) {
	l := u.limits.Load()
	if wait = u.requests.Take(now, l.Requests, requests); wait > 0 {
		return wait
	}
	if wait = u.timestamps.Take(now, l.Timestamps, timestamps); wait > 0 {
		u.requests.giveBack(l.Requests, requests)
	}
	return wait
}

// giveBack undoes take.
func (u *usage) giveBack(requests, timestamps uint64) {
	l := u.limits.Load()
	u.requests.giveBack(l.Requests, requests)
	u.timestamps.giveBack(l.Timestamps, timestamps)
}

// Bucket limits a rate by the generic cell rate algorithm (ITU-T I.371, appendix I): one number,
// the time at which everything taken so far has been earned. A caller may take up to a second's
// worth at once; one that takes more gets it and waits longer afterwards, so that a request
// beyond the rate is possible at all. The zero Bucket is full, and so is one that was left alone for a second. It is safe for concurrent use.
type Bucket struct{ earned atomic.Int64 }

// Take takes n at time now, if rate, a number a second, allows it, or returns how long to wait.
func (b *Bucket) Take(now time.Duration, rate, n uint64) (wait time.Duration) {
	if rate == 0 || n == 0 {
		return 0
	}
	cost := costOf(rate, n)
	for {
		was := b.earned.Load()
		from := max(was, int64(now))
		// From a second ahead on everything is used up; what is taken may go beyond.
		if ahead := from - int64(now); ahead > 0 && ahead+min(cost, int64(time.Second)) > int64(time.Second) {
			return time.Duration(ahead + min(cost, int64(time.Second)) - int64(time.Second))
		}
		if b.earned.CompareAndSwap(was, from+min(cost, math.MaxInt64-from)) {
			return 0
		}
	}
}

// IsFull reports whether nothing taken before now still counts.
func (b *Bucket) IsFull(now time.Duration) bool { return b.earned.Load() <= int64(now) }

// giveBack undoes Take.
func (b *Bucket) giveBack(rate, n uint64) {
	if rate != 0 && n != 0 {
		b.earned.Add(-costOf(rate, n))
	}
}

// costOf returns the time in which n are earned, in nanoseconds, at most a year.
func costOf(rate, n uint64) int64 {
	const most = int64(365 * 24 * time.Hour)
	return int64(min(float64(n)*float64(time.Second)/float64(rate), float64(most)))
}
