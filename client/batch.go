package client

import (
	"sync/atomic"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// A batch is one request and the calls that it answers. While it is open, calls join it, and
// each takes the next numbers of the answer. It is sealed before it is sent. Hence every call
// gets numbers that were requested after it began (I4), even if the request is sent again.
type batch struct {
	// state is the only shared state while the batch is open: whether it is sealed, how
	// many calls wait for it, and how many numbers they have taken.
	state atomic.Uint64
	order *order // of its calls
	kind  kind
	done  chan struct{}     // closed once the fields below are set
	first isotone.Timestamp // of timestamps
	ids   []snowflake.ID    // or the IDs
	err   error

	full uint64 // calls when it was sealed because it was full; guarded by pool.mu

	floor isotone.Timestamp // of the order, when the request was sent
	above isotone.Timestamp // of the only call; see Reader.Above
	// isOracle: it asks the oracle of reads and writes, and the answer is the time of first, in unix milliseconds.
	isOracle bool
	// carries says that the request was sent with a floor, traces that it was with a trace context.
	carries, traces bool
	// trace is the trace context of the first traced call, or "". While the batch is open,
	// pool.mu guards it.
	trace string

	// line is the request, once the batch is sealed. It usually fits in buf.
	line []byte
	buf  [requestSize]byte
}

// kind is what a request asks for: timestamps in one of the modes of isotone.ReadMode, or IDs.
type kind uint8

const (
	kindDefault = kind(isotone.ReadDefault)
	kindQuorum  = kind(isotone.ReadQuorum)
	kindLease   = kind(isotone.ReadLease)
	kindID      = kind(3)
	// Those from kind64 on are for timestamps of 64 bits, in the same modes.
	kind64 = kind(4)
)

// stampKinds are those of timestamps, in the order of their places.
var stampKinds = [...]kind{kindDefault, kindQuorum, kindLease, kind64 + kindDefault, kind64 + kindQuorum, kind64 + kindLease}

// is64 reports whether the kind is of 64-bit timestamps. The answer has the place of the first one in the
// order of all timestamps: isotone.Timestamp64.Timestamp.
func (k kind) is64() bool { return k >= kind64 }

// The layout of batch.state.
const (
	stateSealed    = 1 << 63
	stateCall      = 1 << stateCountBits
	stateCountBits = 34 // isotone.RangeCountMax has 33
	stateCountMask = stateCall - 1
	// stateEnded is the state of the last batch, which refuses all calls.
	stateEnded = 1<<64 - 1
)

func callsOf(state uint64) uint64 { return state &^ stateSealed >> stateCountBits }
func countOf(state uint64) uint64 { return state & stateCountMask }

func (b *batch) calls() uint64 { return callsOf(b.state.Load()) }
func (b *batch) count() uint64 { return countOf(b.state.Load()) }

func newBatch(o *order, k kind) *batch { return &batch{order: o, kind: k, done: make(chan struct{})} }

// leave removes a call whose caller no longer waits. Its numbers are lost, unless it was
// the only call left in an open batch.
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

// finish wakes all waiting calls. Only the goroutine that took the batch from a connection or
// a list may call it, once.
func (b *batch) finish(err error) {
	b.err = err
	close(b.done)
}

// queue is the open batch of a kind. Joining takes no lock; sealing needs pool.mu.
type queue struct {
	order    *order
	kind     kind
	countMax uint64 // numbers in a batch
	callsMax uint64 // calls that wait in it
	open     atomic.Pointer[batch]
}

// joined is the result of an attempt to join.
type joined uint8

const (
	joinedLater joined = iota // others are in the batch already
	joinedFirst               // the caller has to send it
	joinFull                  // the numbers do not fit
	joinCrowded               // too many calls wait
	joinRefused               // the client is closed
)

// join takes count numbers of the open batch, the first of which is at.
func (q *queue) join(count uint64) (b *batch, at uint64, result joined) {
	for {
		b = q.open.Load()
		state := b.state.Load()
		switch {
		case state&stateSealed != 0:
			if state == stateEnded {
				return b, 0, joinRefused
			}
			continue // its successor was stored before it was sealed
		case countOf(state)+count > q.countMax:
			return b, 0, joinFull
		case callsOf(state) >= q.callsMax:
			return b, 0, joinCrowded
		}
		if b.state.CompareAndSwap(state, state+stateCall+count) {
			result = joinedLater
			if callsOf(state) == 0 {
				result = joinedFirst
			}
			return b, countOf(state), result
		}
	}
}

// seal takes the open batch, or returns nil if no call waits for it.
func (q *queue) seal() *batch {
	b := q.open.Load()
	if b.calls() == 0 {
		return nil
	}
	q.open.Store(newBatch(q.order, q.kind))
	state := b.state.Or(stateSealed)
	if callsOf(state) == 0 {
		return nil // all calls have left meanwhile
	}
	b.line = appendRequest(b.buf[:0], b.kind, countOf(state))
	return b
}

// end refuses all further calls, and returns the batch that was open.
func (q *queue) end(err error) *batch {
	last := newBatch(q.order, q.kind)
	last.err = err
	last.state.Store(stateEnded)
	b := q.open.Swap(last)
	b.state.Or(stateSealed)
	return b
}
