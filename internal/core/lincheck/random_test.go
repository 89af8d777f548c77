package lincheck_test

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// counter is a correct oracle of one word.
type counter struct{ issued atomic.Uint64 }

func (c *counter) next(count uint64) isotone.Range { return place(c.issued.Add(count)-count, count) }

// place spreads a plain counter over epochs of 4,096 indexes. A range that would
// cross into the next epoch is cut, as the oracle never returns one that does.
func place(n, count uint64) isotone.Range {
	const epoch = 4096
	return isotone.Range{
		First: isotone.Timestamp{Time: 1 + n/epoch, Index: n % epoch},
		Count: min(count, epoch-n%epoch),
	}
}

// linearizableHistory plays clients, each with one operation at a time, against
// a correct oracle. Every step has its own clock reading.
func linearizableHistory(random *rand.Rand, size, clients int) []lincheck.Operation {
	history := make([]lincheck.Operation, 0, size)
	open := make([]int, clients) // place in history + 1, or 0
	source := new(counter)
	for now := int64(0); len(open) > 0; now++ {
		client := random.IntN(len(open))
		switch at := open[client] - 1; {
		case at < 0 && len(history) < size:
			history = append(history, lincheck.Operation{Client: uint64(client), Invocation: now})
			open[client] = len(history)
		case at < 0:
			open = append(open[:client], open[client+1:]...)
		case history[at].Range.Count == 0:
			history[at].Range = source.next(1 + random.Uint64N(3))
		default:
			history[at].Completion, history[at].Answered = now, true
			open[client] = 0
		}
	}
	return history
}

// mutate damages a history a little. Not every damage is a violation.
func mutate(random *rand.Rand, history []lincheck.Operation) {
	op := &history[random.IntN(len(history))]
	other := history[random.IntN(len(history))]
	switch random.IntN(7) {
	case 0: // repeats an answer, or a part of one
		op.Range.First = other.Range.First
	case 1: // answers from the past, or from the future
		op.Range.First.Index = uint64(max(0, int(op.Range.First.Index)+random.IntN(9)-4))
	case 2: // one too many
		op.Range.Count++
	case 3: // another epoch, and the index goes on
		op.Range.First.Time += random.Uint64N(3)
	case 4: // began earlier or later; ties are wanted
		op.Invocation = min(op.Completion, op.Invocation+random.Int64N(7)-3)
	case 5: // ended earlier or later
		op.Completion = max(op.Invocation, op.Completion+random.Int64N(7)-3)
	case 6: // no answer arrived
		op.Answered = false
	}
}

// coarsen makes the clock tick less often, so that readings tie.
func coarsen(history []lincheck.Operation, tick int64) {
	for i := range history {
		history[i].Invocation /= tick
		history[i].Completion /= tick
	}
}

// arbitraryHistory has neither a correct oracle nor a plausible clock.
func arbitraryHistory(random *rand.Rand, size int) []lincheck.Operation {
	history := make([]lincheck.Operation, size)
	for i := range history {
		invocation := random.Int64N(8)
		history[i] = lincheck.Operation{
			Client:     uint64(i),
			Invocation: invocation,
			Completion: invocation + random.Int64N(4),
			Range: isotone.Range{
				First: isotone.Timestamp{Time: 1 + random.Uint64N(2), Index: random.Uint64N(12)},
				Count: 1 + random.Uint64N(3),
			},
			Answered: random.IntN(6) > 0,
		}
	}
	return history
}
