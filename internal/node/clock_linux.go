package node

import (
	"time"

	"golang.org/x/sys/unix"
)

// runsInSuspend says that Mono goes on while the machine sleeps; leases need that.
const runsInSuspend = true

// bootTime reads CLOCK_BOOTTIME (clock_gettime(2)). Go's own monotonic clock is
// CLOCK_MONOTONIC, which stands still in suspend.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("node: clock_gettime(CLOCK_BOOTTIME): " + err.Error())
	}
	return time.Duration(ts.Nano())
}
