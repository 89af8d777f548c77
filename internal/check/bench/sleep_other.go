//go:build !linux

package bench

import "time"

// newSleep returns a sleep function for the pacer, and a function that frees it.
func newSleep() (sleep func(time.Duration), release func()) {
	return time.Sleep, func() {}
}
