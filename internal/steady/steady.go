// Package steady reads a steady clock of this process.
package steady

import (
	"time"

	"github.com/isotone/isotone/internal/core/interval"
)

var origin = time.Now()

// Exact returns the time on the steady clock, in nanoseconds from an origin of its own. It is safe
// for concurrent use.
func Exact() int64 { return int64(time.Since(origin)) + 1 }

// Now reads the steady clock. It is safe for concurrent use.
func Now() interval.Instant { return interval.At(Exact()) }
