// Package front is the seam between the node and the protocols in front of it:
// a front submits a [Batch] of counts and gets ranges back.
//
// It owns the vocabulary of that seam and nothing else. A protocol package
// (internal/front/web, …) imports it and never another protocol; the node
// imports it to implement [Backend].
package front

import (
	"context"

	"github.com/isotone/isotone"
)

// Batch is a group of requests that arrived together and are answered together.
//
// The submitter owns a Batch until it calls [Backend.Submit]; from then on the
// backend owns it until it calls Done, which it does exactly once. A Batch may be
// used again after that.
type Batch struct {
	// Mode applies to every request of the batch.
	Mode isotone.ReadMode
	// Counts holds how many timestamps each request wants, each from 1 to
	// isotone.RangeCountMax. The submitter has checked that.
	Counts []uint64
	// Ranges holds the answers, parallel to Counts, when Err is nil. Ranges with
	// a larger position in the batch are larger timestamps.
	Ranges []isotone.Range
	// Err is the failure of the whole batch, or nil.
	Err error
	// Done is called once when Ranges or Err is set. It runs on the backend's
	// own thread and must neither block nor call back into the backend.
	Done func(*Batch)
}

// Backend is the node as a front sees it. All methods are safe for concurrent
// use.
type Backend interface {
	// Submit hands b over. It never blocks: when the queue is full it calls Done
	// before it returns, with an error that matches isotone.ErrOverloaded.
	Submit(b *Batch)
	// Status returns what this node knows now. It is cheap and never blocks; the
	// caller must not change the value.
	Status() *Status
}

// Status is one node's view of the cluster at one moment.
type Status struct {
	NodeID uint64
	Term   uint64
	// Role is "leader", "follower", "candidate" or "learner".
	Role string
	// Leader is 0 when no leader is known.
	Leader uint64
	// LeaderAddr is the leader's client address; empty when it is not known yet.
	LeaderAddr string
	// Members is sorted by NodeID.
	Members []Member
	// NotReady says why this node can neither serve nor route; empty when it can.
	NotReady string
	// Ceiling is the replicated bound of issued time, unix nanoseconds.
	Ceiling uint64
}

// Member is one member of the cluster.
type Member struct {
	NodeID uint64
	// Addr is the client address, host:port; empty until the member has been
	// heard of.
	Addr string
	// PeerAddr is the address other members connect to.
	PeerAddr string
	// Learner members receive the log but count in no quorum.
	Learner bool
}

// Timestamps submits one request and waits for its answer or for ctx. A request
// whose context ends first is abandoned: its error matches
// isotone.ErrDeadlineExceeded, and the timestamps that it may still be given are
// never used.
func Timestamps(ctx context.Context, b Backend, mode isotone.ReadMode, count uint64) (isotone.Range, error) {
	done := make(chan struct{})
	batch := &Batch{
		Mode:   mode,
		Counts: []uint64{count},
		Ranges: make([]isotone.Range, 1),
		Done:   func(*Batch) { close(done) },
	}
	b.Submit(batch)
	select {
	case <-done:
	case <-ctx.Done():
		return isotone.Range{}, isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time: %v", context.Cause(ctx))
	}
	if batch.Err != nil {
		return isotone.Range{}, batch.Err
	}
	return batch.Ranges[0], nil
}
