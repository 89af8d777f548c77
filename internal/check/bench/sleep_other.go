//go:build !linux

package bench

import "time"

// newSleep returns a sleep for the pacer, and what frees it.
func newSleep() (sleep func(time.Duration), release func()) {
	return time.Sleep, func() {}
}
