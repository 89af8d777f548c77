package search

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Floor is the largest timestamp that a client has received. Timestamps requested later must be
// larger, in every read mode (I4): whatever a cluster loses or restores, no answer is below the
// client's own floor (I13).
//
// Several requests are under way at once, and an answer need not be larger than what arrived after
// its request was sent. So each request keeps the floor from when it was sent.
//
// It is not safe for concurrent use.
type Floor struct{ Last isotone.Timestamp }

// Raise raises the floor to last, the end of the answer to a request that was sent at the floor
// sent. It reports false if first, the beginning, is not above that floor; then no call may use the
// answer.
func (f *Floor) Raise(sent, first, last isotone.Timestamp) bool {
	if first.Compare(sent) <= 0 && !mutant.On(mutant.KeepNoFloor) {
		return false
	}
	if last.Compare(f.Last) > 0 {
		f.Last = last
	}
	return true
}

// Carried returns the floor that a request carries, zero for none. The first one on a connection
// carries the client's: a node that would undercut it was set back, and raises itself, or refuses
// (I13). An answer shows that its leader is above the floor, as it stays. Later requests carry a
// floor if their call has named one, above.
func Carried(floor, above isotone.Timestamp, answered bool) isotone.Timestamp {
	if answered && above == (isotone.Timestamp{}) || mutant.On(mutant.CarryNoFloor) {
		return isotone.Timestamp{}
	}
	if floor.Before(above) {
		return above
	}
	return floor
}
