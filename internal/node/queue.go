package node

import (
	"context"
	"errors"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/disruptor"
	"github.com/isotone/isotone/internal/front"
)

// submitQueueMax is how many batches of other goroutines can wait for the next turn. Beyond
// it they are answered with isotone.ErrOverloaded. A turn takes all of them, so only a loop
// that is busy for milliseconds reaches it.
const submitQueueMax = 16384

// submitQueue is how other goroutines bring batches to the core: the standard servers one
// for each request, the other I/O loops in bundles.
type submitQueue struct {
	ring *disruptor.Ring[*front.Batch]
	in   *disruptor.SharedProducer
	out  *disruptor.Consumer
}

// newSubmitQueue returns a queue that calls wake when the core may have to look.
func newSubmitQueue(wake func()) *submitQueue {
	ring, err := disruptor.New[*front.Batch](submitQueueMax)
	if err != nil {
		panic(err) // a constant that is no power of two
	}
	q := &submitQueue{ring: ring, out: ring.Consumer()}
	q.out.Wake = wake
	q.in = ring.SharedProducer()
	return q
}

// submit adds a batch. Its error is an *isotone.Error. Any goroutine may call it.
func (q *submitQueue) submit(b *front.Batch) error {
	at, end, err := q.in.TryReserve(1)
	switch {
	case errors.Is(err, disruptor.ErrClosed):
		return errStopped
	case err != nil:
		return isotone.ErrOverloaded
	}
	*q.ring.At(at) = b
	q.in.Commit(at, end)
	return nil
}

// isEmpty reports whether there is nothing to take, and has the loop woken when there is.
func (q *submitQueue) isEmpty() bool { return q.out.Arm() }

// length returns how many batches are in the queue.
func (q *submitQueue) length() int { return q.out.Waiting() }

// take appends all batches in the queue to list.
func (q *submitQueue) take(list []*front.Batch) []*front.Batch {
	lo, hi, _ := q.out.Poll()
	return q.collect(list, lo, hi)
}

func (q *submitQueue) collect(list []*front.Batch, lo, hi uint64) []*front.Batch {
	if lo == hi {
		return list
	}
	first, rest := q.ring.Slots(lo, hi)
	list = append(append(list, first...), rest...)
	clear(first)
	clear(rest)
	q.out.Release(hi)
	return list
}

// close accepts nothing more and returns what was not taken.
func (q *submitQueue) close() []*front.Batch {
	q.in.Close()
	var list []*front.Batch
	for {
		lo, hi, err := q.out.Next(context.Background()) // slots that are reserved will be committed
		if err != nil {
			return list
		}
		list = q.collect(list, lo, hi)
	}
}
