package node

import (
	"time"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/host/steady"
)

// Clock is where a node gets its time from. It reads it once a turn, and for every id;
// nothing below the node reads any clock. Methods are safe for concurrent use.
type Clock interface {
	// Wall is the time of day. It may do anything.
	Wall() time.Time
	// Mono never goes back, and goes on while the machine is suspended.
	Mono() time.Duration
	// Exact is the steady clock on which the cluster clock rests, in nanoseconds; see package steady.
	// Steady returns bounds of the same clock, and costs less. They are read only with INTERVAL_MS.
	Exact() int64
	Steady() interval.Instant
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Wall returns the time of day, without the monotonic reading that would hide a
// jump of the clock from time.Time's methods.
func (SystemClock) Wall() time.Time { return time.Now().Round(0) }

// Mono returns the time since the machine was started, suspend included.
func (SystemClock) Mono() time.Duration { return bootTime() }

// Exact is [steady.Exact].
func (SystemClock) Exact() int64 { return steady.Exact() }

// Steady is [steady.Now].
func (SystemClock) Steady() interval.Instant { return steady.Now() }

// unixNanos turns a time of day into what the replica wants: a clock before 1970
// reads 0, and one beyond the year 2262 the last moment before.
func unixNanos(t time.Time) uint64 {
	switch {
	case t.Before(time.Unix(0, 0)):
		return 0
	case t.After(time.Unix(0, 1<<63-1)):
		return 1<<63 - 1
	}
	return uint64(t.UnixNano())
}
