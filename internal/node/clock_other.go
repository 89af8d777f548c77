//go:build !linux

package node

import "time"

var started = time.Now()

// bootTime falls back to Go's monotonic clock.
func bootTime() time.Duration { return time.Since(started) }
