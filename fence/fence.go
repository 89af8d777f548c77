package fence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/isotone/isotone"
)

// ErrFenced is what the error of a refused write matches: its stamp is below the fence. It will never be accepted, and has changed nothing, unless the client of the
// store has repeated it: then an earlier attempt may have been accepted. Whoever wrote under a lock does not hold it any more.
var ErrFenced = errors.New("fence: the stamp of the write is below the fence")

// ErrNoFence is what the error of Check matches if the store has no fence of that name: Seal was never called, or the store has lost it.
var ErrNoFence = errors.New("fence: the store has no fence of this name; begin it with Seal")

// Error is why a store has refused a write. It matches [ErrFenced].
type Error struct {
	// Name is that of the fence.
	Name string
	// Stamp is that of the write, and Fence where the fence is.
	Stamp, Fence isotone.Timestamp
}

func (e *Error) Error() string {
	return fmt.Sprintf("fence %q is at %v, and the write is stamped %v: it comes too late", e.Name, e.Fence, e.Stamp)
}

// Is makes the error match [ErrFenced].
func (e *Error) Is(target error) bool { return target == ErrFenced }

// Sealer is a fence of a group of writers.
type Sealer interface {
	// Seal has the store refuse all writes with a stamp at or below through, which is not the largest one there is. A later Seal with a smaller stamp changes
	// nothing. After an error the fence may be raised or not: repeat it.
	Seal(ctx context.Context, through isotone.Timestamp) error
}

// All returns the fence of a group whose writes go into several stores. Its Seal raises the fences one after the other, and ends with the first error, which is that of a store. Every writer of
// the group has to seal all of them, whichever it writes into, as any of them may be asked to seal what another one leaves behind.
func All(stores ...Sealer) Sealer { return slices.Clone(all(stores)) }

// all are the fences of several stores.
type all []Sealer

// Seal implements [Sealer].
func (a all) Seal(ctx context.Context, through isotone.Timestamp) error {
	if len(a) == 0 {
		return errors.New("fence: a group without a store has nothing to seal")
	}
	for _, s := range a {
		if err := s.Seal(ctx, through); err != nil {
			return err
		}
	}
	return nil
}

// check is the rule of all stores.
func check(name string, stamp, at isotone.Timestamp) error {
	if stamp.Before(at) {
		return &Error{Name: name, Stamp: stamp, Fence: at}
	}
	return nil
}

// above returns the smallest stamp above the one through which a fence is sealed.
func above(name string, through isotone.Timestamp) (isotone.Timestamp, error) {
	switch {
	case through.Index < math.MaxUint64:
		return isotone.Timestamp{Time: through.Time, Index: through.Index + 1}, nil
	case through.Time < math.MaxUint64:
		return isotone.Timestamp{Time: through.Time + 1}, nil
	}
	return through, fmt.Errorf("fence %q: nothing could be written above the largest timestamp", name)
}
