package oracle

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Allocator issues timestamps during one term of one leader. The zero value is closed. Its
// owner replaces it by the zero value on every change of term or role: any part that survived
// a re-election would issue duplicates (I2).
type Allocator struct {
	open    bool
	time    uint64
	index   uint64 // next index to issue in time
	ceiling uint64
}

// Open starts issuing at time floor, below time ceiling, both in unix nanoseconds. The floor
// is the ceiling before this term's own reservation, so everything issued in earlier terms is
// smaller (I2). Open panics if the allocator is open, or if floor >= ceiling.
func (a *Allocator) Open(floor, ceiling uint64) {
	if a.open {
		panic("I2: an open allocator is never reopened")
	}
	if floor >= ceiling {
		panic("I1: a floor lies below its ceiling")
	}
	*a = Allocator{open: true, time: floor, ceiling: ceiling}
}

// IsOpen reports whether Open was called.
func (a *Allocator) IsOpen() bool { return a.open }

// Time returns the time of the current epoch in unix nanoseconds, 0 if the allocator is
// closed.
func (a *Allocator) Time() uint64 { return a.time }

// Upcoming returns a lower bound of all timestamps that may still be issued, zero if the allocator is closed.
func (a *Allocator) Upcoming() isotone.Timestamp {
	return isotone.Timestamp{Time: a.time, Index: a.index}
}

// Ceiling returns the ceiling, 0 if the allocator is closed.
func (a *Allocator) Ceiling() uint64 { return a.ceiling }

// Extend raises the ceiling. It ignores a lower one.
func (a *Allocator) Extend(ceiling uint64) {
	a.ceiling = max(a.ceiling, ceiling)
}

// Advance begins a new epoch at now, in unix nanoseconds, or at the last nanosecond below the
// ceiling. If that is not after the current epoch nothing changes: time holds and the index
// goes on (I3). Without effect on a closed allocator.
func (a *Allocator) Advance(now uint64) {
	if !a.open {
		return
	}
	a.mutateAdvance(now)
	if t := min(now, a.ceiling-1); t > a.time {
		a.time, a.index = t, 0
	}
}

// Pass makes the next timestamp larger than t. It reports false, and changes nothing, if that
// is not possible below the ceiling (I1). Pass panics unless the allocator is open.
func (a *Allocator) Pass(t isotone.Timestamp) bool {
	if !a.open {
		panic("I2: nothing is issued before the term's own reservation")
	}
	if a.IsAbove(t) {
		return true
	}
	if t.Time >= a.ceiling-1 {
		return false
	}
	a.time, a.index = t.Time+1, 0
	return true
}

// IndexMax bounds the indexes of the oracle: those from it on belong to timestamps that clients make
// from the cluster clock (I14).
const IndexMax = 1 << 63

// IsAbove reports whether the next timestamp is larger than t anyway.
func (a *Allocator) IsAbove(t isotone.Timestamp) bool {
	return t.Before(isotone.Timestamp{Time: a.time, Index: a.index})
}

// Next issues count timestamps with one time and consecutive indexes, without allocating
// memory. If the index would overflow, a new epoch begins a nanosecond later; at the ceiling
// nothing is issued and the error matches isotone.ErrOverloaded.
//
// Next panics unless the allocator is open and 1 <= count <= isotone.RangeCountMax.
func (a *Allocator) Next(count uint64) (isotone.Range, error) {
	if !a.open {
		panic("I2: nothing is issued before the term's own reservation")
	}
	if count == 0 || count > isotone.RangeCountMax {
		panic("oracle: count out of range")
	}
	if a.index > IndexMax-count {
		if a.time+1 >= a.ceiling {
			return isotone.Range{}, errEpochFull
		}
		a.time, a.index = a.time+1, 0
	}
	if a.time >= a.ceiling && !mutant.On(mutant.IgnoreCeiling) {
		panic("I1: time lies below the ceiling")
	}
	r := isotone.Range{First: isotone.Timestamp{Time: a.time, Index: a.index}, Count: count}
	a.index += mutateUsed(count)
	return r, nil
}

// Next64 issues count consecutive 64-bit timestamps, the first as early as possible but not before time
// from, and the last not after time to. The range has the place of the first one in the order of all
// timestamps, [isotone.Timestamp64.Timestamp]. Everything that is issued later is larger than the last
// one: so they use up 3.8 ns of the time below the ceiling each. If they do not fit, nothing is issued
// and ok is false.
//
// Next64 panics unless the allocator is open and 1 <= count <= isotone.RangeCountMax.
func (a *Allocator) Next64(count, from, to uint64) (r isotone.Range, ok bool) {
	if !a.open {
		panic("I2: nothing is issued before the term's own reservation")
	}
	if count == 0 || count > isotone.RangeCountMax {
		panic("oracle: count out of range")
	}
	next := isotone.Timestamp{Time: a.time, Index: a.mutateIndex()}
	if from > next.Time {
		next = isotone.Timestamp{Time: from}
	}
	first := isotone.Timestamp64From(next)
	last := (first + isotone.Timestamp64(count-1)).Timestamp()
	if last.Time > to || last.Time >= a.ceiling && !mutant.On(mutant.IgnoreCeiling64) {
		return isotone.Range{}, false
	}
	a.time, a.index = a.mutateLast(first, last.Time), 1
	return isotone.Range{First: first.Timestamp(), Count: count}, true
}

var errEpochFull = isotone.Errorf(isotone.CodeOverloaded, "the epoch is full and the ceiling leaves no later one")
