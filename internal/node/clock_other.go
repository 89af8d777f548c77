//go:build !linux

package node

import "time"

// runsInSuspend: Go's clock may stand still while the machine sleeps.
const runsInSuspend = false

var started = time.Now()

// bootTime falls back to Go's monotonic clock.
func bootTime() time.Duration { return time.Since(started) }
