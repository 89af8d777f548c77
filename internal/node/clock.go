package node

import (
	"time"
)

// Clock is where a node gets its time from. It reads it once a turn, and for every id;
// nothing below the node reads any clock. Methods are safe for concurrent use.
type Clock interface {
	// Wall is the time of day. It may do anything.
	Wall() time.Time
	// Mono never goes back, and goes on while the machine is suspended.
	Mono() time.Duration
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Wall returns the time of day, without the monotonic reading that would hide a
// jump of the clock from time.Time's methods.
func (SystemClock) Wall() time.Time { return time.Now().Round(0) }

// Mono returns the time since the machine was started, suspend included.
func (SystemClock) Mono() time.Duration { return bootTime() }

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
