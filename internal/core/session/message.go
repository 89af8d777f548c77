package session

import (
	"fmt"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Request is a request over the connection of a session. Any keeps the session alive. It takes effect when it arrives, even if its answer is an error of code overloaded or
// deadline_exceeded.
type Request struct {
	Conn Conn
	// Bind, if not nil, begins the session, or goes on with it over this connection.
	Bind *Bind
	// Close ends the session.
	Close bool
	// End, if not 0, ends that session, over whatever connection it was bound. It needs no session of its own: whoever has the ID of a session speaks for it.
	End ID
	// Show asks for the Holds, and for the Frontiers of Join, as a Bind is answered with those of its groups.
	Show bool
	// Join are groups in which the session writes from now on, beside those with which it has bound.
	Join []string
	// Lows are the stamps below which all of the session in a group are decided, Doubts those of writes without an answer, and Sealed what all stores of a group
	// refuse. Those of groups with which the session has not bound count for nothing.
	Lows, Doubts, Sealed []GroupStamp
	// Lock, if not nil, is about a lock.
	Lock *LockRequest
	// Group, if not "", is the group for whose writes the timestamps are that are asked for with the request. With Ahead the session may also make stamps itself, up to Reply.Bound.
	Group string
	Ahead bool
	// Reply is set when the request is answered without an error.
	Reply Reply
}

// Bind is a client's request to go on with a session, or to begin one, over the connection on which it comes.
type Bind struct {
	ID ID
	// Epoch counts the connections of the session. Only requests on the one with the highest epoch count.
	Epoch uint32
	// TTL and Linger are fixed for the life of a session.
	TTL, Linger time.Duration
	// Label says to operators whose session it is.
	Label string
	// Quota is what the account of the session may have.
	Quota Quota
	// Reports are the groups in which the session writes, with what it may still write.
	Reports []frontier.Report
}

// Quota limits the sessions of an account, and the locks that each of them holds or waits for; 0: no limit. Sessions and locks that exist when a limit is lowered stay.
type Quota struct {
	Account         string
	Sessions, Locks int
}

func (q *Quota) overSessions() *isotone.Error {
	return &isotone.Error{
		Code: isotone.CodeQuotaExceeded, RetryAfter: time.Second,
		Message: fmt.Sprintf("%s may have %d sessions, and has as many; end one, or have an operator raise the limit \"sessions\"", q.Account, q.Sessions),
	}
}

// OverLocks refuses a lock to a session that holds or waits for n, or returns nil.
func (q *Quota) OverLocks(n int) *isotone.Error {
	if q.Locks == 0 || n < q.Locks+mutant.Pick(mutant.LocksOverQuota, 1, 0) {
		return nil
	}
	return &isotone.Error{
		Code: isotone.CodeQuotaExceeded, RetryAfter: time.Second,
		Message: fmt.Sprintf("a session of %s may hold or wait for %d locks, and does; release one, or have an operator raise the limit \"locks\"", q.Account, q.Locks),
	}
}

// GroupStamp is a stamp in a group.
type GroupStamp struct {
	Group string
	Stamp isotone.Timestamp
}

// LockOp is what is to be done about a lock.
type LockOp uint8

const (
	// LockAcquire waits for the lock. The client is told by MessageQueued and MessageGranted, or by Reply.Holds if it holds the lock. It is idempotent.
	LockAcquire LockOp = iota + 1
	// LockTry acquires the lock if it is free, and is otherwise answered with [Locked].
	LockTry
	// LockCancel stops waiting.
	LockCancel
	// LockRelease releases the hold with Token, and no other one. The client is told by MessageReleased.
	LockRelease
	// LockBreak ends the session that holds the lock with Token. It comes from an operator, over a connection that needs no session. The holder is told at once, and the
	// lock is free once the holder cannot believe in it any more, after the TTL of the session.
	LockBreak
)

// LockRequest is a client's request about a lock.
type LockRequest struct {
	Op   LockOp
	Name string
	// Value is what others are told of the holder.
	Value string
	// Ticket is the place in the queue that an earlier leader, or this one over another connection, has given; zero: none.
	Ticket isotone.Timestamp
	Token  isotone.Timestamp64
}

// Reply answers a [Request].
type Reply struct {
	Outcome Outcome
	// Session is the session of the connection.
	Session ID
	// Holds, of a Bind or with Show, is what the session holds, and Frontiers are those of its groups. Of a Lock, Holds has the lock if the session holds it.
	Holds     []Hold
	Frontiers []GroupStamp
	// Bound is the largest stamp that the session may make itself in the group, with indexes from oracle.IndexMax on: the oracle issues smaller ones.
	Bound isotone.Timestamp
	// FreeAfter, of a [LockBreak], is how long the lock may still be held.
	FreeAfter time.Duration
}

// Hold is a lock that a session holds.
type Hold struct {
	Name  string
	Token isotone.Timestamp64
}

// Outcome is how a [Request] ended.
type Outcome uint8

const (
	// Alive: the session is alive, and was bound and alive when the request came.
	Alive Outcome = iota + 1
	// Unbound: the connection is not, or not any more, that of a session. The request had no effect.
	Unbound
	// Expired: the session has ended. Its ID must not be used again.
	Expired
	// Locked: somebody else holds the lock, or waits for it; only [LockTry] is answered so.
	Locked
	// NotHeld: nobody holds the lock with this token; only [LockBreak] is answered so.
	NotHeld
)

var (
	// ErrNotHeld answers a [LockBreak] of a lock that nobody holds with the token.
	ErrNotHeld = isotone.Errorf(isotone.CodeNotHeld, "nobody holds the lock with this token; its holder may have changed")
	// ErrLocked answers a [LockTry] of a lock that is not free.
	ErrLocked = isotone.Errorf(isotone.CodeLocked, "somebody else holds the lock, or waits for it")

	errEnded   = isotone.Errorf(isotone.CodeSessionExpired, "the session has ended, and all that it held is free; bind another one, with another ID")
	errUnbound = isotone.Errorf(isotone.CodeNotBound, "this connection does not speak for a session that lives; bind one first, with an epoch above those before")
)

// Refusal returns the error for the outcome of a request that was answered without one, or nil.
func (r *Request) Refusal() error {
	switch o := r.Reply.Outcome; {
	case o == Expired && !r.Close && r.End == 0:
		return errEnded
	case o == Unbound:
		return errUnbound
	case o == Locked:
		return ErrLocked
	case o == NotHeld:
		return ErrNotHeld
	}
	return nil
}

// Message is a message to a client that is no answer to a request. It is to be sent after the answers of the same step, and in order. A client ignores what comes before the answer to
// its Bind: that answer shows as much, and a leader that is deposed cannot give it.
type Message struct {
	Conn Conn
	Kind MessageKind
	// Group and Through are those of a seal. Of what is fenced, Low and Through are the first and the last stamp.
	Group        string
	Low, Through isotone.Timestamp
	// Name is that of a lock, Token its token, Ticket the place of whoever waits.
	Name   string
	Token  isotone.Timestamp64
	Ticket isotone.Timestamp
}

// MessageKind is the kind of a [Message].
type MessageKind uint8

const (
	// MessageSeal asks to have all stores of Group refuse what is at or below Through.
	MessageSeal MessageKind = iota + 1
	// MessageFenced tells that the session may not write from Low to Through any more (R16).
	MessageFenced
	// MessageExpired tells that the session has ended.
	MessageExpired
	// MessageSuperseded tells that another connection has bound the session.
	MessageSuperseded
	// MessageQueued tells that the session waits for the lock Name, with Ticket.
	MessageQueued
	// MessageGranted tells that the session holds the lock Name, with Token.
	MessageGranted
	// MessageReleased tells that the session does not hold the lock Name with Token, or does not wait for it.
	MessageReleased
)
