package lincheck

// The exact checker.
//
// The object. Its state is the highest timestamp h issued so far. An operation returns a range
// r with r.First > h and sets h to r.Last. The object may skip timestamps; a sequence of
// operations is legal if and only if each range lies wholly above the one before it.
//
// The definition (Herlihy and Wing 1990). A history is linearizable if, after
// some operations without an answer are given one and the others are removed,
// its operations can be put into a legal sequence S in which A comes before B
// whenever A precedes B (A.Completion < B.Invocation).
//
// Theorem. A history is linearizable if and only if, among its answered
// operations,
//
//	(1) no two ranges share a timestamp, and
//	(2) B.Range.First > A.Range.Last whenever A precedes B.
//
// Operations without an answer constrain nothing. Remove them all from S: what
// remains of a legal sequence is still increasing, hence legal, and keeps its
// order. So S may be taken to consist of exactly the answered operations.
//
// Only if: S is legal, so its ranges increase; that is (1). If A precedes B,
// then A is before B in S, so B lies above A; that is (2).
//
// If: sort the answered operations by Range.First and call the result S. By (1)
// each range lies wholly above the one before, so S is legal. If A precedes B,
// then by (2) A has the smaller first timestamp, so A is before B in S.  ∎
//
// So sorting by timestamp yields the only candidate for S. The work is to sort, to compare
// neighbours, and to look for an inversion in one sweep: O(n log n) time, one slice of n words.

import (
	"cmp"
	"slices"
)

// Check returns nil if the history is linearizable, and otherwise a *[Violation]. The
// operations may come in any order; it affects only which of several violations Check
// returns. Check does not change the history.
func Check(history []Operation) error {
	order, violation := answered(history)
	if violation == nil {
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(history[a].Range.First.Compare(history[b].Range.First), cmp.Compare(a, b))
		})
		violation = findDuplicate(history, order)
	}
	if violation == nil {
		violation = findInversion(history, order)
	}
	if violation == nil {
		return nil // not the typed nil
	}
	return violation
}

// answered returns the indexes of the answered operations, or the first malformed one.
func answered(history []Operation) ([]int, *Violation) {
	order := make([]int, 0, len(history))
	for i, op := range history {
		if !op.Answered {
			continue
		}
		fault := rangeFault(op.Range)
		if op.Completion < op.Invocation {
			fault = "completed before it was invoked"
		}
		if fault != "" {
			return nil, &Violation{Kind: Malformed, Later: op, Fault: fault}
		}
		order = append(order, i)
	}
	return order, nil
}

// findDuplicate compares neighbours only: if any later range in the order overlaps this one,
// the next does too.
func findDuplicate(history []Operation, order []int) *Violation {
	for n := 1; n < len(order); n++ {
		a, b := history[order[n-1]], history[order[n]]
		if a.Range.Last().Before(b.Range.First) {
			continue
		}
		if b.Completion < a.Completion {
			a, b = b, a
		}
		return &Violation{Kind: Duplicate, Earlier: a, Later: b}
	}
	return nil
}

// findInversion sweeps from the highest range to the lowest. Of the operations with higher
// timestamps it keeps the one that completed first: if any of them precedes the present
// operation, that one does.
func findInversion(history []Operation, order []int) *Violation {
	if len(order) == 0 {
		return nil
	}
	first := order[len(order)-1]
	for _, i := range slices.Backward(order) {
		if history[first].Completion < history[i].Invocation {
			return &Violation{Kind: Inversion, Earlier: history[first], Later: history[i]}
		}
		if history[i].Completion < history[first].Completion {
			first = i
		}
	}
	return nil
}
