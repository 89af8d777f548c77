package oracle

import (
	"math"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Allocator hands out timestamps during one term of one leader. It is volatile:
// the zero value is closed, and on every change of term or role it is replaced by
// the zero value (I2). Keeping any part of it over a re-election issues
// duplicates.
type Allocator struct {
	open    bool
	time    uint64
	index   uint64 // next index to issue in time
	ceiling uint64
}

// Open starts issuing at floor, below ceiling. The floor is the ceiling as it
// stood before this term's own reservation, so everything issued in earlier terms
// is smaller (I2). Open panics if the allocator is open, or if floor >= ceiling.
func (a *Allocator) Open(floor, ceiling uint64) {
	if a.open {
		panic("I2: an open allocator is never reopened")
	}
	if floor >= ceiling {
		panic("I1: a floor lies below its ceiling")
	}
	*a = Allocator{open: true, time: floor, ceiling: ceiling}
}

// IsOpen reports whether the allocator may issue.
func (a *Allocator) IsOpen() bool { return a.open }

// Time returns the current epoch, unix nanoseconds.
func (a *Allocator) Time() uint64 { return a.time }

// Extend raises the ceiling. A lower one is ignored: the ceiling never sinks.
func (a *Allocator) Extend(ceiling uint64) {
	a.ceiling = max(a.ceiling, ceiling)
}

// Advance begins a new epoch at now, unix nanoseconds, as far as the ceiling
// allows. A clock that stands still or goes back changes nothing: time holds and
// the index goes on (I3).
func (a *Allocator) Advance(now uint64) {
	if !a.open {
		return
	}
	a.mutateAdvance(now)
	if t := min(now, a.ceiling-1); t > a.time {
		a.time, a.index = t, 0
	}
}

// Next issues count timestamps with one time and consecutive indexes. When the
// index would overflow it takes the next nanosecond below the ceiling; if there
// is none the error matches isotone.ErrOverloaded, and nothing is issued.
//
// Next panics unless the allocator is open and 1 <= count <= isotone.RangeCountMax.
func (a *Allocator) Next(count uint64) (isotone.Range, error) {
	if !a.open {
		panic("I2: nothing is issued before the term's own reservation")
	}
	if count == 0 || count > isotone.RangeCountMax {
		panic("oracle: count out of range")
	}
	if a.index > math.MaxUint64-count {
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

// errEpochFull is a variable so that Next allocates nothing even when it fails.
var errEpochFull = isotone.Errorf(isotone.CodeOverloaded, "the epoch is full and the ceiling leaves no later one")
