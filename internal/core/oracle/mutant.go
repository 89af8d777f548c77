package oracle

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// The deliberate bugs (internal/core/mutant) that take more than a condition. In normal
// builds mutant.On is constant false: these functions return what they were given, or do
// nothing.

// mutateAdvance is called before an open allocator advances to now.
func (a *Allocator) mutateAdvance(now uint64) {
	if mutant.On(mutant.TimeFollowsClock) && now < a.time || mutant.On(mutant.IgnoreCeiling) && now > a.time {
		a.time, a.index = now, 0
	}
	if mutant.On(mutant.IndexRestarts) {
		a.index = 0
	}
}

// mutateUsed returns how many indexes a range of count uses up.
func mutateUsed(count uint64) uint64 { return mutant.Pick(mutant.RangeOverlaps, 1, count) }

// mutateIndex returns the index from which 64-bit timestamps go on.
func (a *Allocator) mutateIndex() uint64 { return mutant.Pick(mutant.SameTime64, 0, a.index) }

// mutateLast returns the time of the last of a range of 64-bit timestamps.
func (a *Allocator) mutateLast(first isotone.Timestamp64, last uint64) uint64 {
	return mutant.Pick(mutant.RangeOverlaps64, first.Timestamp().Time, last)
}
