//go:build race

package snowflake

import (
	"math/rand/v2"
	"runtime"
)

// jitter stands where another goroutine may come in between. With the race detector
// it often lets one, so that the tests see such moments by the thousand that are
// otherwise a few nanoseconds long.
func jitter() {
	if rand.Uint32()%4 == 0 {
		runtime.Gosched()
	}
}
