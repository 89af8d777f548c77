package sim

import "time"

// clock is the wall clock and the steady clock of one node. Simulated time is the true time.
type clock struct {
	// rate is the speed of the clock relative to true time.
	rate float64
	// since is the true time of the latest change, mono and wall are the readings then.
	since      time.Duration
	mono, wall time.Duration
	frozen     bool
}

// worldStart is the wall clock at the start of a run: late enough that a jump back stays
// after 1970.
const worldStart = 50 * 365 * 24 * time.Hour

func newClock() clock { return clock{rate: 1, wall: worldStart} }

// settle advances mono and wall to the true time now.
func (c *clock) settle(now time.Duration) {
	passed := time.Duration(float64(now-c.since) * c.rate)
	c.mono += passed
	if !c.frozen {
		c.wall += passed
	}
	c.since = now
}

// read returns the wall clock, as unix time, and the steady clock.
func (c *clock) read(now time.Duration) (wall, mono time.Duration) {
	c.settle(now)
	return max(c.wall, 0), c.mono
}

// toTrue converts a duration by this clock to true time.
func (c *clock) toTrue(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.rate)
}
