// Package front is the interface between the node and the fronts: a front submits a
// [Batch] of counts and gets ranges back, takes ids from [IDs], and asks a [Lessor] for
// worker leases.
//
// It owns the types of that interface and nothing else. A protocol package
// (internal/front/web, …) imports it and never another protocol; the node
// imports it to implement [Backend].
package front

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/snowflake"
)

// Batch is a group of requests that are submitted and answered together.
//
// The submitter owns a Batch until it calls [Backend.Submit]; from then on the
// backend owns it until it calls Done, which it does exactly once. A Batch may be
// used again after that.
type Batch struct {
	// Mode applies to every request of the batch.
	Mode isotone.ReadMode
	// Local forbids to ask another node: the batch was forwarded already.
	Local bool
	// U64 asks for timestamps of the 64-bit form.
	U64 bool
	// Op, if not timeline.OpIssue, asks the oracle of reads and writes of the timeline. The batch has one request then, of one count, which is 1; its
	// answer is the time of Ranges[0].First, in unix milliseconds.
	Op timeline.Op
	// Raise: the client has the right to move time ahead of the clock by its floor. Moved is set with the answer if that
	// has happened.
	Raise, Moved bool
	// Apart is set with isotone.ErrNotLeader for a timeline that is in another group than that of its hash slot, so that the owner of the
	// slot says nothing about its own.
	Apart bool
	// At is the time of timeline.OpApply, in unix milliseconds.
	At uint64
	// Timeline is the timeline to issue of, "" for the default order. Requests of different timelines are different batches.
	Timeline string
	// Floor is the largest timestamp that the clients of the batch know: all answers are larger
	// (I13). The zero timestamp stands for none. Requests with different floors are different
	// batches.
	Floor isotone.Timestamp
	// Trace is the span of the first of the requests that is traced; nil: none is. Taken belongs
	// to the backend.
	Trace *trace.Context
	Taken time.Time
	// Counts has the number of timestamps of each request, each from 1 to
	// isotone.RangeCountMax. The submitter has checked that.
	Counts []uint64
	// Ranges has the answers, parallel to Counts, if Err is nil. Later ranges have larger
	// timestamps. With U64, First is isotone.Timestamp64.Timestamp of the first of Count consecutive
	// 64-bit timestamps; see Range64.
	Ranges []isotone.Range
	// Err is the error of the whole batch, or nil.
	Err error
	// Done is called once Ranges or Err is set. It runs on the goroutine of the backend, or of
	// the loop that the backend is for, and must neither block nor call Submit.
	Done func(*Batch)
}

// Range64 returns the 64-bit timestamps of an answer in [Batch.Ranges].
func Range64(r isotone.Range) isotone.Range64 {
	return isotone.Range64{First: isotone.Timestamp64From(r.First), Count: r.Count}
}

// Backend answers batches: a node, or a cluster behind a proxy. Status is safe for concurrent
// use. Submit is too, unless the backend was made for one loop: then it belongs to that loop's
// goroutine.
type Backend interface {
	// Submit hands b over. It never blocks: if the queue is full it calls Done, in the call or
	// in the turn, with an error that matches isotone.ErrOverloaded.
	Submit(b *Batch)
	// Status returns the current status of this node. It is cheap and never blocks; the
	// caller must not change the value.
	Status() *Status
}

// IDs makes snowflake ids. Each loop has its own; that of the standard servers is safe for
// concurrent use.
type IDs interface {
	// Fill sets all of dst, at most [IDsMax], or none. It never blocks and needs no other
	// node. Its error matches isotone.ErrOverloaded (too many ids at once),
	// isotone.ErrClock, or isotone.ErrNoWorker while this node has no worker id.
	Fill(dst []snowflake.ID) error
	// Worker returns a worker that this node currently makes ids for, and their layout.
	Worker() (worker int, layout snowflake.Layout, err error)
}

// IDsMax bounds the ids of one request: 16 ms of one worker, and 1.4 MB of decimals.
const IDsMax = 65536

// Lessor leases worker ids to clients that make ids themselves, and shows and revokes leases for
// operators. Only the leader can; the error of another node names the leader.
type Lessor interface {
	// LeaseWorker hands r over, and calls Done exactly once, within the call or later, on
	// the goroutine of the loop that owns this lessor.
	LeaseWorker(r *WorkerRequest)
}

// WorkerRequest asks for a worker id, gives one back, or is an operator's. The lessor owns it
// until Done.
type WorkerRequest struct {
	// List asks for all leases, and no other field of the request counts.
	List bool
	// Revoke revokes the lease of Fixed that began at From, 0 for the one on record, of any
	// session. It is not renewed any more.
	Revoke bool
	// Session identifies the client's process; random, not 0.
	Session uint64
	// Fixed is the only acceptable worker, or -1.
	Fixed int
	// From is the beginning of the wanted lease in unix milliseconds, Length its
	// duration in milliseconds.
	From, Length uint64
	// Release gives back the rest of the lease of Fixed that began at From: from the
	// millisecond Next on the client made no ids, and will make none.
	Release bool
	Next    uint64

	// Worker, Lease and Layout are the answer if Err is nil and neither Release nor List is set.
	// Held is the answer to List.
	Held   *WorkerList
	Worker int
	Lease  snowflake.Lease
	Layout snowflake.Layout
	// Err is in the vocabulary.
	Err  error
	Done func(*WorkerRequest)
}

// Operator has the commands for operators. Only the leader can answer; the error of another
// node names the leader. All methods are safe for concurrent use.
type Operator interface {
	// Levels returns the feature level of the cluster, and what it can be raised to.
	Levels() (Levels, error)
	// RaiseLevel raises the feature level to the newest that all members know, and returns
	// when that is done or ctx ends. From then on versions that do not know the level are
	// refused.
	RaiseLevel(ctx context.Context) error
	// Members describes the members.
	Members() (MemberList, error)
	// ChangeMember changes the membership or an address, and returns when the change is applied
	// or ctx ends; then it may still happen. That a learner becomes a voter later is not waited
	// for.
	ChangeMember(ctx context.Context, c MemberChange) error
	// Transfer transfers the leadership to a node, 0 for any, and returns when that leads or ctx
	// ends.
	Transfer(ctx context.Context, to uint64) error
	// RaiseFloor has all later timestamps be larger than floor, which has any form that
	// oracle.ParseFloor takes. One that is far ahead of the clock needs force.
	RaiseFloor(ctx context.Context, floor string, force bool) (FloorRaised, error)
	// Workers describes the worker leases.
	Workers() (WorkerList, error)
	// RevokeWorker ends the renewals of the lease of a worker that began at start, in unix
	// milliseconds, 0 for the one on record, and returns when that is applied or ctx ends; then it
	// may still happen. The lease keeps its end. The error is not_found if nobody holds it.
	RevokeWorker(ctx context.Context, worker int, start uint64) error
	// Locks describes the locks whose names begin with prefix.
	Locks(ctx context.Context, prefix string) (LockList, error)
	// BreakLock ends the session that holds a lock with a token, and returns when its client cannot keep it alive any more. The error is not_held if nobody holds that.
	BreakLock(ctx context.Context, name string, token isotone.Timestamp64) (LockBroken, error)
	// Blockers describes what keeps the frontier of a group from going on.
	Blockers(ctx context.Context, group string) (BlockerList, error)
	// Backup returns a backup of the cluster, a file of internal/host/backup. It has all that was
	// answered before the call.
	Backup(ctx context.Context) ([]byte, error)
	// Joining tells a node whose data directory is empty, or has that incarnation and was not
	// let in yet, how to join. Any node can answer. The error is not_found if the node has to be
	// added first, invalid_argument if it is a member with another directory. Where members have
	// certificates for each other, proof is that of [JoinMessage], and forbidden the error without a good one.
	Joining(node, incarnation uint64, proof string) (Joining, error)
}

// Carrier passes requests of operators on to the leader. It is safe for concurrent use.
type Carrier interface {
	// Carry returns the leader's answer: the status of HTTP, and the body. Its errors match isotone.ErrNoLeader,
	// isotone.ErrOverloaded, isotone.ErrDeadlineExceeded, or isotone.ErrInvalidArgument.
	Carry(ctx context.Context, r Carried) (status int, body []byte, err error)
}

// Carried is a request of an operator that a member passes on to the leader.
type Carried struct {
	// Who asks, for the log. The leader adds which member says so.
	Who string
	// Method, Target (path and query) and Body are those of the HTTP request; the body is JSON.
	Method, Target string
	Body           []byte
}

// FloorRaised answers an operator who has raised the floor. Times are unix nanoseconds.
type FloorRaised struct {
	// Time is the floor: all later timestamps have a larger one.
	Time uint64 `json:"time,string"`
	// Raised says that this moved time ahead; otherwise it was beyond the floor already.
	Raised bool `json:"raised"`
	// Before and After are the time of the timestamps that the leader issued before and after.
	Before uint64 `json:"before,string"`
	After  uint64 `json:"after,string"`
}

// The actions of a MemberChange.
const (
	AddMember     = "add"
	PromoteMember = "promote"
	RemoveMember  = "remove"
	ReplaceMember = "replace"
	UpdateMember  = "update"
)

// MemberChange is a change of membership that an operator asks for.
type MemberChange struct {
	Action string `json:"action"`
	NodeID uint64 `json:"nodeID"`
	// MemberID, if not 0, is the member of the node that is to be removed or replaced. A request
	// that has it can be repeated: it never changes the member that came after.
	MemberID uint64 `json:"memberID,string,omitempty"`
	// PeerAddr is required to add and to replace. With update, an empty address stays as it is.
	PeerAddr   string `json:"peerAddr,omitempty"`
	ClientAddr string `json:"addr,omitempty"`
	// Learner keeps an added node a learner until it is promoted.
	Learner bool `json:"learner,omitempty"`
}

// MemberList describes the members of a cluster as the leader sees them.
type MemberList struct {
	ClusterID string `json:"clusterID"`
	Leader    uint64 `json:"leader"`
	// Members is sorted by NodeID and Generation. While a node is replaced it has two records.
	Members []MemberRecord `json:"members"`
	// Removed are the IDs of nodes that had members which were removed or replaced.
	Removed []uint64 `json:"removed"`
}

// MemberRecord describes one member.
type MemberRecord struct {
	NodeID uint64 `json:"nodeID"`
	// Generation is how often the node's data directory was replaced.
	Generation uint64 `json:"generation"`
	// Role is "leader", "voter" or "learner".
	Role     string `json:"role"`
	PeerAddr string `json:"peerAddr"`
	Addr     string `json:"addr"`
	// Incarnation identifies its data directory; empty until the node has connected once.
	Incarnation string `json:"incarnation,omitempty"`
	// Start counts the starts of that directory.
	Start     uint64 `json:"start"`
	Connected bool   `json:"connected"`
	// Lag is the number of log entries that it lacks.
	Lag uint64 `json:"lag"`
	// Level is the newest feature level that its version knows; 0 if unknown.
	Level uint64 `json:"level"`
	// Promote is set for a learner that becomes a voter once it has caught up.
	Promote bool `json:"promote,omitempty"`
	// Replaces is the node that is removed then; always NodeID, or 0.
	Replaces uint64 `json:"replaces,omitempty"`
}

// WorkerList describes the worker leases of a cluster as the leader sees them.
type WorkerList struct {
	// Layout is that of the cluster's ids as text, and Epoch its unix millisecond; empty before
	// the first lease.
	Layout string `json:"layout,omitempty"`
	Epoch  int64  `json:"epoch,string,omitempty"`
	// Limit is how many workers there are; at most 1024.
	Limit int `json:"limit"`
	// Workers is sorted by Worker. Those that were released are not in it.
	Workers []WorkerRecord `json:"workers"`
}

// WorkerRecord describes one worker lease.
type WorkerRecord struct {
	Worker int `json:"worker"`
	// NodeID and Generation are the member that holds it; 0 for a client.
	NodeID     uint64 `json:"nodeID"`
	Generation uint64 `json:"generation,omitempty"`
	// Session identifies the holder's process, 16 hexadecimal digits, and Slot the lease among
	// those of the process.
	Session string `json:"session"`
	Slot    int    `json:"slot"`
	// Fixed is set if the holder wants this worker and no other.
	Fixed bool `json:"fixed,omitempty"`
	// Start and End bound the unix milliseconds of its ids: Start <= ms < End.
	Start uint64 `json:"start,string"`
	End   uint64 `json:"end,string"`
	// Starts and Ends are the same as times, RFC 3339 with milliseconds.
	Starts string `json:"starts"`
	Ends   string `json:"ends"`
	// Ended is set if the lease has ended by the leader's clock and the cluster's time. Its holder
	// may still renew it until somebody else is granted the worker, unless Revoked is set.
	Ended   bool `json:"ended,omitempty"`
	Revoked bool `json:"revoked,omitempty"`
}

// JoinMessage is what a node signs that asks how to join.
func JoinMessage(node, incarnation uint64) string {
	return fmt.Sprintf("join node=%d incarnation=%d", node, incarnation)
}

// Joining tells a node how to join a cluster.
type Joining struct {
	ClusterID string `json:"clusterID"`
	MemberID  uint64 `json:"memberID,string"`
	// Peers has the peer addresses by member ID.
	Peers map[uint64]string `json:"peers"`
}

// Levels are feature levels; see internal/core/oracle/level.go.
type Levels struct {
	// Level is that of the cluster, Newest the newest one that the leader's version knows.
	Level  uint64 `json:"level"`
	Newest uint64 `json:"newest"`
	// Next is the level that can be raised to now; equal to Level if none.
	Next uint64 `json:"next"`
	// Missing has the members that run an older version than the leader, or are not
	// connected to it.
	Missing []uint64 `json:"missing"`
}

// Status is one node's view of the cluster at one moment.
type Status struct {
	// ClusterID is the isotone.ClusterID; 0 while this node does not know it.
	ClusterID uint64
	NodeID    uint64
	Term      uint64
	// Role is "leader", "follower", "candidate" or "learner".
	Role string
	// Leader is 0 when no leader is known.
	Leader uint64
	// LeaderAddr is the leader's client address; empty while it is not known.
	LeaderAddr string
	// Members is sorted by NodeID.
	Members []Member
	// NotReady says why this node is not ready: NotReadyTimestamps, or else why it makes no ids
	// although it should. It is empty otherwise.
	NotReady string
	// NotReadyTimestamps says why this node can neither issue timestamps nor redirect; empty
	// otherwise.
	NotReadyTimestamps string
	// NotReadyIDs says why this node makes no ids although it should; empty if it does, if it
	// is not set up to, or while it waits for its first worker and nobody has refused one.
	NotReadyIDs string
	// Draining is set once this node is about to end: it still answers, but clients should
	// leave, so it is not ready.
	Draining bool
	// Ceiling is the replicated bound of issued time, unix nanoseconds.
	Ceiling uint64
	// SlotOwners are the nodes that own the groups of timelines of hash slots, in the order of the slots, each 0 if there is none. It is nil while there are
	// no timelines.
	SlotOwners []uint64
}

// Member is one member of the cluster.
type Member struct {
	NodeID uint64
	// Addr is the client address, host:port; empty until it is known.
	Addr string
	// PeerAddr is the address on record at which other members connect.
	PeerAddr string
	// OtherAddr is the one in the PEERS of this node, if that is another one.
	OtherAddr string
	// Learner members receive the log but count in no quorum.
	Learner bool
}

// ParseCount parses the count of one request: a whole number from 1 to
// isotone.RangeCountMax, digits only, no leading zero.
func ParseCount[T string | []byte](s T) (n uint64, ok bool) {
	const digitsMax = len("4294967296")
	if len(s) == 0 || len(s) > digitsMax || s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + uint64(s[i]-'0')
	}
	return n, n <= isotone.RangeCountMax
}

// ParseFloor parses the largest timestamp that a client knows, of either form: 32 hexadecimal digits, or
// a decimal number of 64 bits. That has 16 to 20 digits, as those after the year 1970 do, so that one
// that was cut off, or is a time, is not taken for a floor.
func ParseFloor[T string | []byte](s T) (floor isotone.Timestamp, ok bool) {
	const digitsMin, digitsMax = 16, 20
	if len(s) == 2*isotone.TimestampSize {
		t, err := isotone.ParseTimestamp(string(s))
		return t, err == nil
	}
	if len(s) < digitsMin || len(s) > digitsMax || s[0] == '0' {
		return floor, false
	}
	t, err := isotone.ParseTimestamp64(string(s))
	return t.Timestamp(), err == nil
}

// ErrorOf returns err in the vocabulary. An error outside of it is internal.
func ErrorOf(err error) *isotone.Error {
	var e *isotone.Error
	if !errors.As(err, &e) {
		e = isotone.Errorf(isotone.CodeInternal, "%v", err)
	}
	return e
}
