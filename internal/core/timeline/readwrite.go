package timeline

import (
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
)

// Op is what a request asks of a timeline.
type Op uint8

const (
	// OpIssue asks for timestamps.
	OpIssue Op = iota
	// OpWrite asks for the time of a new write: after all times that were answered, or applied, before.
	OpWrite
	// OpPeek asks for the time of the latest write, or a later one that no write has: at or after all times that were answered, or applied, before.
	OpPeek
	// OpRead asks for the time to read at: at or after all writes that were applied, and before all later writes.
	OpRead
	// OpApply says that the writes up to a time are visible. Later reads are at or after it.
	OpApply
)

// ReadWrite is an oracle of reads and writes, for storage that keeps versions by time: it gives writes their times, in unix milliseconds, and tells up
// to which time writes are visible. Its operations are those of the TimestampOracle of Materialize
// (https://github.com/MaterializeInc/materialize, src/timestamp-oracle). The owner of a timeline has one beside the allocator of timestamps. The two
// share the bounds of the timeline and nothing else. The zero ReadWrite has answered nothing.
type ReadWrite struct {
	// write is at or after all times that were answered, read at or after those that were answered to reads or applied, once both are at or above
	// the base, and write is at or after read.
	read, write uint64
}

// Do carries out an operation and returns its answer in unix milliseconds; an OpApply has that of a read right after it. base <= time < ceiling are the
// bounds of the timeline and now is the clock, in unix nanoseconds; at is the time of an OpApply, in unix milliseconds. If the time of a write, or the one
// to apply, would not lie below the ceiling, nothing is done and ok is false.
func (o *ReadWrite) Do(op Op, at, base, now, ceiling uint64) (answer uint64, ok bool) {
	o.read = max(o.read, mutant.Pick(mutant.ReadBelowBase, 0, millis(base)))
	o.write = max(o.write, mutant.Pick(mutant.WriteBelowRead, millis(base), o.read))
	last := millis(ceiling - 1)
	switch op {
	case OpWrite:
		next := max(o.write+mutant.Pick[uint64](mutant.WriteTwice, 0, 1), millis(now))
		if next > last {
			return 0, false
		}
		o.write = next
		return next, true
	case OpPeek:
		return o.write, true
	case OpApply:
		if at > last {
			return 0, false
		}
		o.read = max(o.read, mutant.Pick(mutant.ApplyForgotten, 0, at))
	}
	return o.read, true
}

// millis returns the millisecond that a time in nanoseconds lies in. A time below a ceiling lies in one that is at or before that of any later base.
func millis(nanos uint64) uint64 { return nanos / uint64(time.Millisecond) }

// String returns "issue", "write", "peek", "read" or "apply".
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

var opNames = [...]string{"issue", "write", "peek", "read", "apply"}
