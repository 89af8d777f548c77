package lincheck

// The exact checker of oracles of reads and writes, timeline.ReadWrite.
//
// The object. Its state is the largest time w that was answered and the largest time r that was read, r <= w. A write answers v > w, and sets w to it. A
// peek answers v >= w, and sets w. A read answers v >= r, and sets r, and w if that is smaller. To apply a time x is a read with an answer v >= x. As
// the object may skip times, an operation without an answer constrains nothing, as in check.go.
//
// Theorem. A history is linearizable if and only if no two writes have one time, and there are no A and B of which A precedes B and B must come before A.
// B must come before A if B is a write and B.Time <= A.Time; if it is a peek and B.Time < A.Time; and if both are reads and B.Time < A.Time.
//
// Only if: in a legal sequence w and r never sink, so B after A would have a larger time, or for a peek or a read at least that of A.
//
// If: let B -> A where B must come before A or where B precedes A. A sequence that keeps all of -> is legal. There is one unless -> has a cycle. "Must come
// before" is transitive, and has no cycle of its own as times of writes differ. So a shortest cycle alternates, X must come before Y, Y precedes Z, Z must
// come before W, W precedes X, and so on. Of "Y precedes Z" and "W precedes X" the earlier end gives "Y precedes X" or "W precedes Z": a cycle of two,
// which the condition excludes, or a shorter one, of which there is none.  ∎
//
// So one sweep in the order of invocations suffices, with the largest times of what had completed before.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/isotone/isotone/internal/core/timeline"
)

// ReadWrite is one request to an oracle of reads and writes, as its client saw it. The fields are those of [Operation] but for Op; At, the time of an
// OpApply; and Time, the answer.
type ReadWrite struct {
	Client                 uint64
	Invocation, Completion int64
	Op                     timeline.Op
	At, Time               uint64
	Answered               bool
}

// CheckReadWrite returns nil if the history is linearizable, and else an error that names two operations, or one that is wrong by itself. The operations may
// come in any order; it affects only which of several errors comes first. CheckReadWrite does not change the history.
func CheckReadWrite(history []ReadWrite) error {
	begun := slices.DeleteFunc(slices.Clone(history), func(o ReadWrite) bool { return !o.Answered })
	ended := slices.Clone(begun)
	slices.SortStableFunc(begun, func(a, b ReadWrite) int { return cmp.Compare(a.Invocation, b.Invocation) })
	slices.SortStableFunc(ended, func(a, b ReadWrite) int { return cmp.Compare(a.Completion, b.Completion) })
	var largest, read ReadWrite // of those that had completed
	writes := map[uint64]ReadWrite{}
	for _, o := range begun {
		for ; len(ended) > 0 && ended[0].Completion < o.Invocation; ended = ended[1:] {
			if ended[0].Time > largest.Time {
				largest = ended[0]
			}
			if ended[0].reads() && ended[0].Time > read.Time {
				read = ended[0]
			}
		}
		before := largest
		if o.reads() {
			before = read
		}
		twin, isTwice := writes[o.Time]
		switch {
		case o.Completion < o.Invocation || o.Op < timeline.OpWrite || o.Op > timeline.OpApply || o.Time == 0 || o.Op == timeline.OpApply && o.Time < o.At:
			return fmt.Errorf("malformed operation: %v", o)
		case o.Op == timeline.OpWrite && isTwice:
			return fmt.Errorf("two writes have one time: %v; and %v", twin, o)
		case o.Time < before.Time || o.Time == before.Time && o.Op == timeline.OpWrite:
			return fmt.Errorf("order of reads and writes inverted: %v; invoked after that, %v", before, o)
		case o.Op == timeline.OpWrite:
			writes[o.Time] = o
		}
	}
	return nil
}

// reads reports whether the operation is a read, or applies a time.
func (o ReadWrite) reads() bool { return o.Op >= timeline.OpRead }

func (o ReadWrite) String() string {
	return fmt.Sprintf("client %d: %v %d answered %d in [%d, %d]", o.Client, o.Op, o.At, o.Time, o.Invocation, o.Completion)
}
