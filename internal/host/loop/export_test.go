package loop

import "time"

// SetClock makes l tell the time by clock.
func SetClock(l *Loop, clock func() time.Duration) { l.clock = clock }

// OutputRoom is the memory that c's output takes.
func OutputRoom(c *Conn) int { return cap(c.out) }

// IsStuckSince reports whether c has output that nothing was taken of since a moment.
func IsStuckSince(c *Conn, at time.Duration) bool { return c.stuck && c.moved < at }

// Lent returns how many bytes of buffers l keeps for later.
func Lent(l *Loop) int { return l.pool.bytes }

const (
	LingerTime     = lingerTime
	LingerBytesMax = lingerBytesMax
	SweepEvery     = sweepEvery
	SweepBatch     = sweepBatch
	LentMax        = lentMax
)
