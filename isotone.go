// Package isotone defines the values that all parts of the Isotone timestamp
// oracle share: the 16-byte [Timestamp], the [Range] of consecutive timestamps
// that one request returns, the [ReadMode] of a request, the [ClusterID], and
// the errors ([Error], [Code]) of every protocol.
//
// It imports nothing else of the module. Package client talks to a cluster.
//
// The service follows the timestamp oracle of Peng and Dabek, "Large-scale
// Incremental Processing Using Distributed Transactions and Notifications"
// (OSDI 2010, §2.3), run as a replicated service of its own.
package isotone

import (
	"fmt"
	"strconv"
	"time"
)

// ClusterID identifies a cluster. It is fixed when the cluster is formed, and never changes.
// Timestamps of different clusters have no order between them, so an answer from one cluster
// must never be taken for an answer from another (I10). The zero value identifies no cluster.
type ClusterID uint64

// clusterIDDigits is the number of digits of an ID in text.
const clusterIDDigits = 16

// String returns the ID as 16 lower-case hexadecimal digits, the form that every protocol uses.
func (c ClusterID) String() string { return fmt.Sprintf("%016x", uint64(c)) }

// ParseClusterID parses the form that String returns, in either case. Its error matches
// [ErrInvalidArgument].
func ParseClusterID(text string) (ClusterID, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != clusterIDDigits || id == 0 {
		return 0, Errorf(CodeInvalidArgument, "cluster ID %.40q: want 16 hexadecimal digits, not all 0", text)
	}
	return ClusterID(id), nil
}

// ReadMode is what a leader must check before it answers.
type ReadMode uint8

const (
	// ReadDefault leaves the choice to the node's READ_MODE setting.
	ReadDefault ReadMode = iota
	// ReadQuorum: a quorum confirmed the leadership in a round that began after
	// the request arrived. It does not depend on clocks (I4).
	ReadQuorum
	// ReadLease: the leader holds a lease by its own clock. It saves a network
	// round trip, and is as safe as the assumed bound on clock rates (I5).
	ReadLease
)

// String returns "default", "quorum" or "lease".
func (m ReadMode) String() string {
	switch m {
	case ReadQuorum:
		return "quorum"
	case ReadLease:
		return "lease"
	default:
		return "default"
	}
}

// ParseReadMode parses "quorum" or "lease". Anything else gives an error that
// matches [ErrInvalidArgument].
func ParseReadMode(s string) (ReadMode, error) {
	switch s {
	case "quorum":
		return ReadQuorum, nil
	case "lease":
		return ReadLease, nil
	}
	return ReadDefault, Errorf(CodeInvalidArgument, "mode %q: want quorum or lease", s)
}

// Interval is what a process knows of the cluster clock at one instant: that it is neither before
// Earliest nor after Latest. Both are unix nanoseconds, on the axis of [Timestamp.Time].
type Interval struct {
	Earliest, Latest uint64
}

// Width returns how uncertain the interval is.
func (i Interval) Width() time.Duration { return time.Duration(i.Latest - i.Earliest) }

// Code is the reason for a failure. Its spelling is the same in every protocol.
type Code string

// All codes. A protocol adds none of its own.
const (
	// CodeInvalidArgument: the request itself is wrong; repeating it cannot help.
	CodeInvalidArgument Code = "invalid_argument"
	// CodeNotLeader: ask the node named in [Error.Leader] instead.
	CodeNotLeader Code = "not_leader"
	// CodeNoLeader: an election is under way, or the quorum is gone; try again.
	CodeNoLeader Code = "no_leader"
	// CodeOverloaded: a queue is full; try again after [Error.RetryAfter].
	CodeOverloaded Code = "overloaded"
	// CodeDeadlineExceeded: no answer in time. The outcome is unknown, which does
	// no harm: a timestamp that nobody received orders nothing.
	CodeDeadlineExceeded Code = "deadline_exceeded"
	// CodeUnauthorized: the request needs credentials, or those that it has are wrong.
	CodeUnauthorized Code = "unauthorized"
	// CodeForbidden: the caller is known and has no right to this.
	CodeForbidden Code = "forbidden"
	// CodeQuotaExceeded: the caller has used what it may use; try again after
	// [Error.RetryAfter].
	CodeQuotaExceeded Code = "quota_exceeded"
	// CodeNoWorker: no worker ID is free for a lease, an operator has revoked the lease of the
	// session, or the node has none to make IDs with yet; try again, IDs also at another node.
	CodeNoWorker Code = "no_worker"
	// CodeNoQuorum: a change of the members is refused, because too few voters are reachable to elect
	// a leader after it. The message names those that are missing.
	CodeNoQuorum Code = "no_quorum"
	// CodeNotFound: nothing has that name.
	CodeNotFound Code = "not_found"
	// CodeClock: this node's clock cannot be trusted for this request.
	CodeClock Code = "clock"
	// CodeWrongCluster: the answer would have come from a cluster other than the one
	// requested. Such an answer is never used (I10).
	CodeWrongCluster Code = "wrong_cluster"
	// CodeRegressed: the request carries a floor that the cluster would undercut, and may not
	// raise itself to (I13). The cluster was set back to an older copy, or the floor is that of
	// another cluster. Repeating the request cannot help before an operator has acted.
	CodeRegressed Code = "regressed"
	// CodeLocked: somebody else holds the lock, or waits for it.
	CodeLocked Code = "locked"
	// CodeSessionExpired: the session has ended, and with it all that it held. Begin another one.
	CodeSessionExpired Code = "session_expired"
	// CodeNotBound: the connection has no session, or another connection has bound it since.
	CodeNotBound Code = "not_bound"
	// CodeNotHeld: the session does not hold the lock.
	CodeNotHeld Code = "not_held"
	// CodeFenced: the stamp must not be used for a write any more: stores refuse it.
	CodeFenced Code = "fenced"
	// CodeInternal: a bug or a broken machine; the message has the details.
	CodeInternal Code = "internal"
)

// Error is a failure that a caller can act on. Two errors match under
// [errors.Is] when their codes are equal, so
//
//	errors.Is(err, isotone.ErrNotLeader)
//
// holds for any message and any leader.
type Error struct {
	Code    Code
	Message string
	// Leader is the client address (host:port) to ask instead. It is set if and
	// only if Code is CodeNotLeader.
	Leader string
	// RetryAfter is how long to wait before the next attempt; 0 leaves it to the
	// caller's own backoff.
	RetryAfter time.Duration
}

// Errorf returns an error with the given code and a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns "code: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// One sentinel for each code, for use with [errors.Is].
var (
	ErrInvalidArgument  = &Error{Code: CodeInvalidArgument, Message: "invalid argument"}
	ErrNotLeader        = &Error{Code: CodeNotLeader, Message: "this node is not the leader"}
	ErrNoLeader         = &Error{Code: CodeNoLeader, Message: "no leader is known"}
	ErrOverloaded       = &Error{Code: CodeOverloaded, Message: "too many requests are waiting"}
	ErrDeadlineExceeded = &Error{Code: CodeDeadlineExceeded, Message: "no answer in time"}
	ErrUnauthorized     = &Error{Code: CodeUnauthorized, Message: "not authorized"}
	ErrForbidden        = &Error{Code: CodeForbidden, Message: "not allowed"}
	ErrQuotaExceeded    = &Error{Code: CodeQuotaExceeded, Message: "the quota is used up"}
	ErrNoWorker         = &Error{Code: CodeNoWorker, Message: "no worker ID is free"}
	ErrNoQuorum         = &Error{Code: CodeNoQuorum, Message: "too few voters are reachable"}
	ErrNotFound         = &Error{Code: CodeNotFound, Message: "not found"}
	ErrClock            = &Error{Code: CodeClock, Message: "the clock cannot be trusted"}
	ErrWrongCluster     = &Error{Code: CodeWrongCluster, Message: "this is another cluster"}
	ErrRegressed        = &Error{Code: CodeRegressed, Message: "the cluster is behind what the client has seen"}
	ErrLocked           = &Error{Code: CodeLocked, Message: "somebody else holds the lock"}
	ErrSessionExpired   = &Error{Code: CodeSessionExpired, Message: "the session has ended"}
	ErrNotBound         = &Error{Code: CodeNotBound, Message: "the connection has no session"}
	ErrNotHeld          = &Error{Code: CodeNotHeld, Message: "the lock is not held"}
	ErrFenced           = &Error{Code: CodeFenced, Message: "the stamp must not be used any more"}
	ErrInternal         = &Error{Code: CodeInternal, Message: "internal error"}
)
