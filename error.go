package isotone

import (
	"fmt"
	"time"
)

// Code is the reason of a failure, spelled alike in every protocol.
type Code string

// The whole vocabulary. A protocol may add nothing to it.
const (
	// CodeInvalidArgument: the request itself is wrong; repeating it cannot help.
	CodeInvalidArgument Code = "invalid_argument"
	// CodeNotLeader: ask the node named in [Error.Leader] instead.
	CodeNotLeader Code = "not_leader"
	// CodeNoLeader: an election is under way, or the quorum is gone; try again.
	CodeNoLeader Code = "no_leader"
	// CodeOverloaded: a queue is full; try again after [Error.RetryAfter].
	CodeOverloaded Code = "overloaded"
	// CodeDeadlineExceeded: no answer in time. Nothing is known of the outcome,
	// and for a timestamp nothing needs to be: an unseen one orders nothing.
	CodeDeadlineExceeded Code = "deadline_exceeded"
	// CodeUnauthorized: the caller did not prove who it is.
	CodeUnauthorized Code = "unauthorized"
	// CodeNotFound: there is nothing under that name.
	CodeNotFound Code = "not_found"
	// CodeClock: this node's clock cannot be trusted for what was asked.
	CodeClock Code = "clock"
	// CodeWrongCluster: the answer would have been another cluster's than the one that
	// is asked for. It is never used in its place (I10).
	CodeWrongCluster Code = "wrong_cluster"
	// CodeInternal: a defect or a broken machine; the message says more.
	CodeInternal Code = "internal"
)

// Error is a failure that a caller can act on. Two errors match under
// [errors.Is] when their codes are equal, so
//
//	errors.Is(err, isotone.ErrNotLeader)
//
// holds whatever message or leader the error carries.
type Error struct {
	Code    Code
	Message string
	// Leader is the client address (host:port) to ask instead. Only with
	// CodeNotLeader, and never empty there.
	Leader string
	// RetryAfter is how long to wait before another try; 0 means "at once, with
	// the caller's own backoff".
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
	ErrNotFound         = &Error{Code: CodeNotFound, Message: "not found"}
	ErrClock            = &Error{Code: CodeClock, Message: "the clock cannot be trusted"}
	ErrWrongCluster     = &Error{Code: CodeWrongCluster, Message: "this is another cluster"}
	ErrInternal         = &Error{Code: CodeInternal, Message: "internal error"}
)
