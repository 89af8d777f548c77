package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
)

// ErrChanged is what [Cell.Replace] returns if the value is not of that version any more.
var ErrChanged = errors.New("fence: the value has changed")

// Cell is a value that a store replaces atomically, and durably.
type Cell interface {
	// Load returns the latest value and its version; if there is none, nil and "".
	Load(ctx context.Context) (value []byte, version string, err error)
	// Replace stores a value if the present one has that version, "": if there is none. Otherwise its error matches [ErrChanged]. After any other
	// error the value may be stored or not.
	Replace(ctx context.Context, version string, value []byte) error
}

// changesMax is how often a write begins again as somebody else has written, and changeDelay times the number of times, or less, what it waits then.
const (
	changesMax  = 100
	changeDelay = 2 * time.Millisecond
)

// CASFence is a fence in one value with the data that it protects; see [CAS].
type CASFence struct {
	cell Cell
	name string
}

// CAS returns the fence in a cell. The value is the fence as 32 hexadecimal digits, a line feed, and the data. name is for errors.
//
// No fence can stand beside an object, as no store writes two objects in one step. So what a fence is to protect is one value: the data itself, or a manifest that
// names the objects that count. A writer stores objects under names that nobody has used, and then has the manifest name them.
func CAS(cell Cell, name string) *CASFence { return &CASFence{cell: cell, name: name} }

// Raise replaces the data by what update makes of it if token is not below the fence, and raises the fence to it. With update nil it only raises
// the fence. update gets a copy of the present data, nil at first, and returns all of the new data. It is called again if somebody else has written meanwhile; an error of it is returned, and nothing is written.
// After an error of the store the write may have taken effect. A repetition, also one by a client of the store that repeats requests by itself, finds that in the data: so update looks there
// for what it is to do, or gives the same if it is done twice.
func (f *CASFence) Raise(ctx context.Context, token isotone.Timestamp, update func(data []byte) ([]byte, error)) error {
	return f.replace(ctx, update, func(at isotone.Timestamp, _ bool) (isotone.Timestamp, error) {
		return token, check(f.name, token, at)
	})
}

// Check replaces the data by what update makes of it if stamp is not below the fence, which stays; it is like [CASFence.Raise]. If the cell is empty, its error matches
// [ErrNoFence].
func (f *CASFence) Check(ctx context.Context, stamp isotone.Timestamp, update func(data []byte) ([]byte, error)) error {
	return f.replace(ctx, update, func(at isotone.Timestamp, exists bool) (isotone.Timestamp, error) {
		if !exists {
			return at, fmt.Errorf("%q: %w", f.name, ErrNoFence)
		}
		return at, check(f.name, stamp, at)
	})
}

// Seal implements [Sealer].
func (f *CASFence) Seal(ctx context.Context, through isotone.Timestamp) error {
	to, err := above(f.name, through)
	if err != nil {
		return err
	}
	return f.replace(ctx, nil, func(at isotone.Timestamp, _ bool) (isotone.Timestamp, error) {
		if at.Before(to) {
			return to, nil
		}
		return at, nil
	})
}

// Read returns the data. Only what is read after a Raise is known to be written by no earlier holder any more.
func (f *CASFence) Read(ctx context.Context) ([]byte, error) {
	value, _, err := f.cell.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("fence %q: %w", f.name, err)
	}
	_, data, err := f.decode(bytes.Clone(value))
	return data, err
}

// replace writes the cell with the fence that decide returns, until nobody else has written in between.
func (f *CASFence) replace(ctx context.Context, update func(data []byte) ([]byte, error), decide func(at isotone.Timestamp, exists bool) (isotone.Timestamp, error)) error {
	for changes := 1; ; changes++ {
		value, version, err := f.cell.Load(ctx)
		if err != nil {
			return fmt.Errorf("fence %q: %w", f.name, err)
		}
		at, data, err := f.decode(bytes.Clone(value))
		if err != nil {
			return err
		}
		to, err := decide(at, value != nil)
		if err != nil {
			return err
		}
		if update != nil {
			if data, err = update(data); err != nil {
				return err
			}
		} else if value != nil && to == at {
			return nil
		}
		err = f.cell.Replace(ctx, version, append(fmt.Appendf(nil, "%v\n", to), data...))
		if !errors.Is(err, ErrChanged) {
			if err != nil {
				err = fmt.Errorf("fence %q: %w", f.name, err)
			}
			return err
		}
		if changes == changesMax {
			return fmt.Errorf("fence %q: somebody else has written %d times meanwhile: %w", f.name, changes, err)
		}
		select {
		case <-time.After(rand.N(time.Duration(changes) * changeDelay)):
		case <-ctx.Done():
			return fmt.Errorf("fence %q: %w", f.name, ctx.Err())
		}
	}
}

// decode returns fence and data of a value.
func (f *CASFence) decode(value []byte) (at isotone.Timestamp, data []byte, err error) {
	if value == nil {
		return at, nil, nil
	}
	head, data, ok := bytes.Cut(value, []byte("\n"))
	if ok {
		at, err = isotone.ParseTimestamp(string(head))
	}
	if !ok || err != nil {
		return at, nil, fmt.Errorf("fence %q: the value does not begin with a fence of 32 hexadecimal digits and a line feed; %d bytes", f.name, len(value))
	}
	return at, data, nil
}
