package snowflake

import (
	"sync/atomic"
	"time"
)

// anchorMax is for how long the distance between wall clock and monotonic clock is
// taken to be what it was. Within it a step of the wall clock is not seen.
const anchorMax = time.Millisecond

// clock reads the wall clock in milliseconds. time.Now reads two clocks of the
// system, the wall clock and the monotonic one. The distance of the two changes only
// when somebody sets the clock, so that reading the monotonic one and adding the
// distance does at half the price; once in anchorMax both are read.
type clock struct {
	injected func() int64
	base     time.Time    // where the monotonic clock is counted from
	distance atomic.Int64 // of the wall clock, in unix nanoseconds, from the other
	until    atomic.Int64 // on the monotonic clock; distance is good before it
}

// init sets the clock to now, or to the system's if that is nil.
func (c *clock) init(now func() int64) {
	c.injected = now
	if now == nil {
		c.base = time.Now()
	}
}

// now returns unix milliseconds.
func (c *clock) now() int64 {
	if c.injected != nil {
		return c.injected()
	}
	monotonic := int64(time.Since(c.base))
	if monotonic < c.until.Load() {
		return (monotonic + c.distance.Load()) / int64(time.Millisecond)
	}
	return c.anchor()
}

// anchor reads both clocks. Goroutines that come at once may store a distance that
// is older than another's; it is good for no longer than its own time.
func (c *clock) anchor() int64 {
	now := time.Now()
	monotonic := int64(now.Sub(c.base))
	c.distance.Store(now.UnixNano() - monotonic)
	c.until.Store(monotonic + int64(anchorMax))
	return now.UnixMilli()
}

// exact is now without the short cut.
func (c *clock) exact() int64 {
	if c.injected != nil {
		return c.injected()
	}
	return time.Now().UnixMilli()
}
