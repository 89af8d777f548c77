//go:build race

package snowflake

import (
	"math/rand/v2"
	"runtime"
)

// jitter marks a point at which another goroutine may interfere. In builds with the race
// detector it often yields to one, so that tests exercise thousands of interleavings whose
// window is otherwise a few nanoseconds.
func jitter() {
	if rand.Uint32()%4 == 0 {
		runtime.Gosched()
	}
}
