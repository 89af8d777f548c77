package snowflake

import (
	"fmt"
	"time"

	"github.com/isotone/isotone"
)

// Errors of a [Generator] other than [InvalidSystemClock]. errors.Is distinguishes them, and
// each also matches an error of the root package.
var (
	// ErrExhausted: the next IDs would be more than AheadMax ahead of the clock,
	// though it never went back: the requests are faster than the sequence allows.
	// Try again in a millisecond. It matches [isotone.ErrOverloaded].
	ErrExhausted error = &refusal{isotone.Error{
		Code: isotone.CodeOverloaded, Message: "the IDs of this worker are used up for now", RetryAfter: time.Millisecond,
	}}
	// ErrLeaseEnded: the next IDs would be at or beyond the end of the lease, or
	// [Generator.Stop] was called. It matches [isotone.ErrOverloaded].
	ErrLeaseEnded error = &refusal{isotone.Error{
		Code: isotone.CodeOverloaded, Message: "the lease of this worker has ended",
	}}
	// ErrLeaseNotBegun: the start of the lease is more than AheadMax ahead of the
	// clock. It matches [isotone.ErrOverloaded].
	ErrLeaseNotBegun error = &refusal{isotone.Error{
		Code: isotone.CodeOverloaded, Message: "the lease of this worker has not begun", RetryAfter: time.Millisecond,
	}}
	// ErrBatch: the batch exceeds [Generator.BatchMax]. It matches
	// [isotone.ErrInvalidArgument].
	ErrBatch error = &refusal{isotone.Error{
		Code: isotone.CodeInvalidArgument, Message: "more IDs at once than fit between the clock and the limit ahead of it",
	}}
	// ErrInvalidSystemClock matches every [InvalidSystemClock].
	ErrInvalidSystemClock error = &InvalidSystemClock{}
)

// refusal is an error that errors.Is distinguishes from others with the same code; an
// isotone.Error would match them all.
type refusal struct{ cause isotone.Error }

func (e *refusal) Error() string { return e.cause.Error() }
func (e *refusal) Unwrap() error { return &e.cause }

// ClockFault is a kind of clock fault.
type ClockFault uint8

const (
	// ClockBehind: the clock went back, to more than AheadMax before the last ID.
	ClockBehind ClockFault = iota + 1
	// ClockBeforeLayout: the clock is before the layout's first millisecond.
	ClockBeforeLayout
	// ClockAfterLayout: the clock is after the layout's last millisecond, or the next
	// IDs would be.
	ClockAfterLayout
)

// InvalidSystemClock is the error if the clock's reading allows no ID. Under errors.Is
// it matches [isotone.ErrClock] and [ErrInvalidSystemClock].
type InvalidSystemClock struct {
	Fault ClockFault
	// Now is the clock's reading.
	Now int64
	// Bound is the millisecond that the clock violates: that of the last ID, the
	// layout's first, or the layout's last.
	Bound int64
}

// Error returns "clock: " and a description with the numbers.
func (e *InvalidSystemClock) Error() string { return string(isotone.CodeClock) + ": " + e.message() }

// Is reports whether target is [ErrInvalidSystemClock].
func (e *InvalidSystemClock) Is(target error) bool { return target == ErrInvalidSystemClock }

// Unwrap returns the same failure as an [isotone.Error].
func (e *InvalidSystemClock) Unwrap() error {
	return &isotone.Error{Code: isotone.CodeClock, Message: e.message()}
}

func (e *InvalidSystemClock) message() string {
	switch e.Fault {
	case ClockBehind:
		return fmt.Sprintf("the clock went back: it is at %d ms, %d ms behind the last ID", e.Now, e.Bound-e.Now)
	case ClockBeforeLayout:
		return fmt.Sprintf("the clock is at %d ms, before the first ID of the layout, at %d ms", e.Now, e.Bound)
	case ClockAfterLayout:
		return fmt.Sprintf("the clock is at %d ms, and IDs would go beyond the last of the layout, at %d ms", e.Now, e.Bound)
	}
	return "the system clock is invalid"
}
