package node

import (
	"context"
	"errors"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/disruptor"
	"github.com/isotone/isotone/internal/front"
)

// doorSize is how many batches of other goroutines can wait for the next turn. Beyond
// it they are answered with isotone.ErrOverloaded. A turn takes all of them, so that is
// for a loop that is busy for milliseconds.
const doorSize = 16384

// door is how batches of other goroutines come into the home loop: those of the
// standard servers, one each, and those of the branches, which have bundled theirs.
type door struct {
	ring *disruptor.Ring[*front.Batch]
	in   *disruptor.SharedProducer
	out  *disruptor.Consumer
}

// newDoor returns a door that calls wake when the loop may have to look.
func newDoor(wake func()) *door {
	ring, err := disruptor.New[*front.Batch](doorSize)
	if err != nil {
		panic(err) // a constant that is no power of two
	}
	d := &door{ring: ring, out: ring.Consumer()}
	d.out.Wake = wake
	d.in = ring.SharedProducer()
	return d
}

// submit brings a batch in. Its error is an *isotone.Error.
func (d *door) submit(b *front.Batch) error {
	at, end, err := d.in.TryReserve(1)
	switch {
	case errors.Is(err, disruptor.ErrClosed):
		return errStopped
	case err != nil:
		return isotone.ErrOverloaded
	}
	*d.ring.At(at) = b
	d.in.Commit(at, end)
	return nil
}

// isEmpty reports that there is nothing to take, and has the loop woken when there is.
func (d *door) isEmpty() bool { return d.out.Arm() }

// take appends what has come in to list.
func (d *door) take(list []*front.Batch) []*front.Batch {
	lo, hi, _ := d.out.Poll()
	return d.collect(list, lo, hi)
}

func (d *door) collect(list []*front.Batch, lo, hi uint64) []*front.Batch {
	if lo == hi {
		return list
	}
	first, rest := d.ring.Slots(lo, hi)
	list = append(append(list, first...), rest...)
	clear(first)
	clear(rest)
	d.out.Release(hi)
	return list
}

// close lets nothing more in and returns what was not taken.
func (d *door) close() []*front.Batch {
	d.in.Close()
	var list []*front.Batch
	for {
		lo, hi, err := d.out.Next(context.Background()) // who has reserved will commit
		if err != nil {
			return list
		}
		list = d.collect(list, lo, hi)
	}
}
