package oracle

import "github.com/isotone/isotone/internal/core/mutant"

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
