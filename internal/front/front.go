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
	"github.com/isotone/isotone/snowflake"
)

// Batch is a group of requests that arrived together and are answered together.
//
// The submitter owns a Batch until it calls [Backend.Submit]; from then on the
// backend owns it until it calls Done, which it does exactly once. A Batch may be
// used again after that.
type Batch struct {
	// Mode applies to every request of the batch.
	Mode isotone.ReadMode
	// Local is set when no other node is to be asked: the batch was forwarded already.
	Local bool
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

// IDs makes snowflake ids. A front is given the one of its loop; that of the standard
// servers is for any goroutine.
type IDs interface {
	// Fill sets all of dst, at most [IDsMax], or none. It never blocks and needs no
	// other node. Its error is in the vocabulary: isotone.ErrOverloaded (they are asked
	// for too fast), isotone.ErrClock, or isotone.ErrNoLeader while this node has no
	// worker id.
	Fill(dst []snowflake.ID) error
	// Worker returns a worker that this node makes ids for now, and what their bits mean.
	Worker() (worker int, layout snowflake.Layout, err error)
}

// IDsMax bounds the ids of one request: 16 ms of one worker, and 1.4 MB of decimals.
const IDsMax = 65536

// Lessor leases worker ids to clients that make ids themselves. Only the leader can; the
// error of another node names the leader.
type Lessor interface {
	// LeaseWorker hands r over, and calls Done exactly once, within the call or later, on
	// the goroutine of the loop that owns this lessor.
	LeaseWorker(r *WorkerRequest)
}

// WorkerRequest asks for a worker id, or gives one back. The lessor owns it until Done.
type WorkerRequest struct {
	// Session tells the client's process from all others; random, not 0.
	Session uint64
	// Fixed is the worker that it insists on, or -1.
	Fixed int
	// From is from when on it wants to make ids, in unix milliseconds, Length for how many.
	From, Length uint64
	// Release gives back instead what is left of the lease of Fixed that began at From:
	// from Next on it made no ids, and will make none.
	Release bool
	Next    uint64

	// Worker, Lease and Layout are the answer when Err is nil and nothing was given back.
	Worker int
	Lease  snowflake.Lease
	Layout snowflake.Layout
	// Err is in the vocabulary.
	Err  error
	Done func(*WorkerRequest)
}

// Operator is what an operator can ask of a node. Only the leader can answer; the error of
// another node says who that is. All methods are safe for concurrent use.
type Operator interface {
	// Levels says what feature level the cluster is at, and what it could be raised to.
	Levels() (Levels, error)
	// RaiseLevel raises the feature level to the newest that all members know, and returns
	// when that is done, or with ctx. From then on a version that does not know the level is
	// refused.
	RaiseLevel(ctx context.Context) error
}

// Levels are feature levels; see internal/core/oracle/level.go.
type Levels struct {
	// Level is the cluster's, Newest the newest that the leader's version knows.
	Level  uint64 `json:"level"`
	Newest uint64 `json:"newest"`
	// Next is what the level can be raised to now; Level if it cannot.
	Next uint64 `json:"next"`
	// Missing are the members that run an older version than the leader, or are not
	// connected to it.
	Missing []uint64 `json:"missing"`
}

// Status is one node's view of the cluster at one moment.
type Status struct {
	// ClusterID names the cluster, as an isotone.ClusterID; 0 while this node does not
	// know it.
	ClusterID uint64
	// Unnamed is set when the ID will not be known: by a proxy whose nodes, of an older
	// version, do not tell it.
	Unnamed bool
	NodeID  uint64
	Term    uint64
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
