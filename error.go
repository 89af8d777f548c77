package isotone

import (
	"fmt"
	"time"
)

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
	ErrNotFound         = &Error{Code: CodeNotFound, Message: "not found"}
	ErrClock            = &Error{Code: CodeClock, Message: "the clock cannot be trusted"}
	ErrWrongCluster     = &Error{Code: CodeWrongCluster, Message: "this is another cluster"}
	ErrRegressed        = &Error{Code: CodeRegressed, Message: "the cluster is behind what the client has seen"}
	ErrInternal         = &Error{Code: CodeInternal, Message: "internal error"}
)
