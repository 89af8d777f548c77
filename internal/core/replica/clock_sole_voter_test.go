package replica_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
)

// TestClock_AClockThatWentBackAndIsSetRightHasNotJumped: "It may be set right again, and is then
// not to count as jumping." After 60 s it does, as what is believed has lost 1 % of that, which is
// more than ClockJumpMax; and it never catches up, until the process is restarted.
func TestClock_AClockThatWentBackAndIsSetRightHasNotJumped(t *testing.T) {
	for _, wrong := range []time.Duration{20 * time.Second, 60 * time.Second, 10 * time.Minute} {
		c := newCluster(t, 1, func(cfg *replica.Config) { cfg.ClockJumpMax = 500 * time.Millisecond })
		c.mono = 100 * 24 * time.Hour
		n := c.leader()
		c.start(n)
		n = c.leader()
		c.tick(100)
		n.skew = -time.Hour
		c.tick(int(wrong / tick))
		n.skew = 0
		c.tick(1000)
		if s := n.Status(); s.Clock.Exceeded {
			t.Errorf("back for %v, and right for 10 s: %+v, time is %v behind", wrong, s.Clock, time.Duration(uint64(c.mono)-s.Time))
		}
	}
}
