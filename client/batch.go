package client

import (
	"runtime"
	"sync/atomic"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// A batch is one request, and the calls that it answers. While it is open, calls join
// it: each takes the next numbers, and so a part of the answer. It is sealed before it
// is sent, and nothing joins it any more. Hence whatever a call gets was asked for after
// the call began (I4), also when the request is sent again.
type batch struct {
	// state is the whole of what is shared while the batch is open: whether it is
	// sealed, how many calls wait for it, and how many numbers they have taken.
	state atomic.Uint64
	kind  kind
	// done are closed when the fields below are set. A crowd shares out over several,
	// else it would stand in line for the lock of one.
	done  []chan struct{}
	one   [1]chan struct{}  // usually enough
	first isotone.Timestamp // of timestamps
	ids   []snowflake.ID    // or the ids
	err   error

	// line is the request, once the batch is sealed. buf is usually all that it needs.
	line []byte
	buf  [requestSize]byte
}

// kind is what a request asks for. The first three are those of isotone.ReadMode.
type kind uint8

const (
	kindDefault = kind(isotone.ReadDefault)
	kindQuorum  = kind(isotone.ReadQuorum)
	kindLease   = kind(isotone.ReadLease)
	kindID      = kind(3)
)

// The layout of batch.state.
const (
	stateSealed    = 1 << 63
	stateCall      = 1 << stateCountBits
	stateCountBits = 34 // isotone.RangeCountMax has 33
	stateCountMask = stateCall - 1
	// stateEnded is that of a batch after which there is none.
	stateEnded = 1<<64 - 1
)

func callsOf(state uint64) uint64 { return state &^ stateSealed >> stateCountBits }
func countOf(state uint64) uint64 { return state & stateCountMask }

func (b *batch) calls() uint64 { return callsOf(b.state.Load()) }
func (b *batch) count() uint64 { return countOf(b.state.Load()) }

// Of the channels of a batch: at most so many, and as many calls for each.
const (
	donesMax     = 8
	callsForDone = 32
)

// newBatch returns a batch for about so many calls.
func newBatch(k kind, calls uint32) *batch {
	b := &batch{kind: k}
	dones := min(int(calls/callsForDone), donesMax, runtime.GOMAXPROCS(0))
	if b.done = b.one[:]; dones > 1 {
		b.done = make([]chan struct{}, dones)
	}
	for i := range b.done {
		b.done[i] = make(chan struct{})
	}
	return b
}

// answered returns what is closed when call number i has its answer.
func (b *batch) answered(i uint64) <-chan struct{} { return b.done[i%uint64(len(b.done))] }

// leave takes back one call, whose caller no longer waits. Its numbers are lost, unless
// it was the last of a batch that is still open: then nobody holds any of them.
func (b *batch) leave() {
	for {
		old := b.state.Load()
		state := old - stateCall
		if state&stateSealed == 0 && callsOf(state) == 0 {
			state = 0
		}
		if b.state.CompareAndSwap(old, state) {
			return
		}
	}
}

// finish wakes everyone who waits. Only whoever took the batch from a lane or a list may
// call it, once.
func (b *batch) finish(err error) {
	b.err = err
	for _, done := range b.done {
		close(done)
	}
}

// queue is the open batch of one kind. Joining takes no lock; only the holder of
// pool.mu seals a batch.
type queue struct {
	kind     kind
	countMax uint64 // of numbers in a batch
	callsMax uint64 // that wait in it
	open     atomic.Pointer[batch]
}

// joined says what became of an attempt to join.
type joined uint8

const (
	joinedLater joined = iota // others are in the batch already
	joinedFirst               // somebody has to send it
	joinFull                  // the numbers do not fit
	joinCrowded               // too many calls wait
	joinRefused               // the client is closed
)

// join takes count numbers of the open batch, from at on. Call says how many calls came
// before.
func (q *queue) join(count uint64) (b *batch, at, call uint64, result joined) {
	for {
		b = q.open.Load()
		state := b.state.Load()
		switch {
		case state&stateSealed != 0:
			if state == stateEnded {
				return b, 0, 0, joinRefused
			}
			continue // its successor was there before it was sealed
		case countOf(state)+count > q.countMax:
			return b, 0, 0, joinFull
		case callsOf(state) >= q.callsMax:
			return b, 0, 0, joinCrowded
		}
		if b.state.CompareAndSwap(state, state+stateCall+count) {
			result = joinedLater
			if callsOf(state) == 0 {
				result = joinedFirst
			}
			return b, countOf(state), callsOf(state), result
		}
	}
}

// seal takes the open batch, if anyone waits for it.
func (q *queue) seal(recent uint32) *batch {
	b := q.open.Load()
	if b.calls() == 0 {
		return nil
	}
	q.open.Store(newBatch(q.kind, recent))
	state := b.state.Or(stateSealed)
	if callsOf(state) == 0 {
		return nil // all have left meanwhile
	}
	b.line = appendRequest(b.buf[:0], b.kind, countOf(state))
	return b
}

// end refuses all calls from now on, and returns the batch that was open.
func (q *queue) end(err error) *batch {
	last := newBatch(q.kind, 0)
	last.err = err
	last.state.Store(stateEnded)
	b := q.open.Swap(last)
	b.state.Or(stateSealed)
	return b
}
