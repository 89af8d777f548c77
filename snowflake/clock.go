package snowflake

import (
	"sync/atomic"
	"time"
)

// anchorMax is how long a measured distance between the wall clock and the monotonic
// clock is used. A step of the wall clock goes unnoticed for that long.
const anchorMax = time.Millisecond

// clock reads the wall clock in milliseconds. time.Now reads two clocks of the
// system, the wall clock and the monotonic one. Their distance changes only when the
// wall clock is set, so this clock reads the monotonic one and adds the distance, at
// half the cost; once in anchorMax it reads both.
type clock struct {
	injected func() int64
	base     time.Time    // zero of the monotonic clock
	distance atomic.Int64 // wall clock, in unix nanoseconds, minus monotonic clock
	until    atomic.Int64 // on the monotonic clock; distance is valid before it
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

// anchor reads both clocks and stores their distance. Of concurrent calls, one with an
// older distance may store last; its distance still expires at its own time.
func (c *clock) anchor() int64 {
	now := time.Now()
	monotonic := int64(now.Sub(c.base))
	c.distance.Store(now.UnixNano() - monotonic)
	c.until.Store(monotonic + int64(anchorMax))
	return now.UnixMilli()
}

// exact is now without the stored distance.
func (c *clock) exact() int64 {
	if c.injected != nil {
		return c.injected()
	}
	return time.Now().UnixMilli()
}
