package sim

import "time"

// clock is what one node believes of time. Simulated time itself is true.
type clock struct {
	// rate is how fast the clock runs, 1 being true.
	rate float64
	// since is the true time when something last changed, mono and wall what the
	// clock read then.
	since      time.Duration
	mono, wall time.Duration
	frozen     bool
}

// worldStart is the time of day when a run begins: years after 1970, so that hours
// back do not reach it.
const worldStart = 50 * 365 * 24 * time.Hour

func newClock() clock { return clock{rate: 1, wall: worldStart} }

// settle takes what has passed into mono and wall.
func (c *clock) settle(now time.Duration) {
	passed := time.Duration(float64(now-c.since) * c.rate)
	c.mono += passed
	if !c.frozen {
		c.wall += passed
	}
	c.since = now
}

// read returns the time of day (unix) and the monotonic time.
func (c *clock) read(now time.Duration) (wall, mono time.Duration) {
	c.settle(now)
	return max(c.wall, 0), c.mono
}

// truly converts a span of this clock's time to true time.
func (c *clock) truly(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.rate)
}
