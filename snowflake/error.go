package snowflake

import (
	"fmt"
	"time"

	"github.com/isotone/isotone"
)

// Errors of a [Generator] beside [InvalidSystemClock]. errors.Is distinguishes them, and also
// matches the root package's error of each.
var (
	// ErrExhausted: the next ids would be more than AheadMax ahead of the clock,
	// though it never went back: they are asked for faster than the sequence allows.
	// Try again in a millisecond. It matches [isotone.ErrOverloaded].
	ErrExhausted error = &refusal{isotone.Error{
		Code: isotone.CodeOverloaded, Message: "the ids of this worker are used up for now", RetryAfter: time.Millisecond,
	}}
	// ErrLeaseEnded: the next ids would be at or beyond the end of the lease, or
	// [Generator.Stop] was called. It matches [isotone.ErrOverloaded].
	ErrLeaseEnded error = &refusal{isotone.Error{
		Code: isotone.CodeOverloaded, Message: "the lease of this worker has ended",
	}}
	// ErrLeaseNotBegun: the start of the lease is more than AheadMax ahead of the
	// clock. It matches [isotone.ErrOverloaded].
	ErrLeaseNotBegun error = &refusal{isotone.Error{
		Code: isotone.CodeOverloaded, Message: "the lease of this worker has not begun", RetryAfter: time.Millisecond,
	}}
	// ErrBatch: the batch exceeds [Generator.BatchMax]. It
	// matches [isotone.ErrInvalidArgument].
	ErrBatch error = &refusal{isotone.Error{
		Code: isotone.CodeInvalidArgument, Message: "more ids at once than fit between the clock and as far as they may run ahead",
	}}
	// ErrInvalidSystemClock matches every [InvalidSystemClock].
	ErrInvalidSystemClock error = &InvalidSystemClock{}
)

// refusal is an error of its own under errors.Is, which an isotone.Error is not: that
// matches all of its code.
type refusal struct{ cause isotone.Error }

func (e *refusal) Error() string { return e.cause.Error() }
func (e *refusal) Unwrap() error { return &e.cause }

// ClockFault is a kind of clock fault.
type ClockFault uint8

const (
	// ClockBehind: the clock went back, to more than AheadMax before the last id.
	ClockBehind ClockFault = iota + 1
	// ClockBeforeLayout: the clock is before the layout's first millisecond.
	ClockBeforeLayout
	// ClockAfterLayout: the clock is after the layout's last millisecond, or the next
	// ids would be.
	ClockAfterLayout
)

// InvalidSystemClock says that no id can be made by this clock. It matches
// [isotone.ErrClock] and [ErrInvalidSystemClock] under errors.Is; errors.As finds
// the fields.
type InvalidSystemClock struct {
	Fault ClockFault
	// Now is the clock's reading.
	Now int64
	// Bound is the millisecond that Fault is about: that of the last id, the layout's
	// first, or the layout's last.
	Bound int64
}

// Error returns "clock: " and a sentence with the numbers.
func (e *InvalidSystemClock) Error() string { return string(isotone.CodeClock) + ": " + e.message() }

// Is reports whether target is [ErrInvalidSystemClock].
func (e *InvalidSystemClock) Is(target error) bool { return target == ErrInvalidSystemClock }

// Unwrap returns the same failure in the vocabulary of the root package.
func (e *InvalidSystemClock) Unwrap() error {
	return &isotone.Error{Code: isotone.CodeClock, Message: e.message()}
}

func (e *InvalidSystemClock) message() string {
	switch e.Fault {
	case ClockBehind:
		return fmt.Sprintf("the clock went back: it is at %d ms, %d ms behind the last id", e.Now, e.Bound-e.Now)
	case ClockBeforeLayout:
		return fmt.Sprintf("the clock is at %d ms, before the first id of the layout, at %d ms", e.Now, e.Bound)
	case ClockAfterLayout:
		return fmt.Sprintf("the clock is at %d ms, and ids would go beyond the last of the layout, at %d ms", e.Now, e.Bound)
	}
	return "the system clock is invalid"
}
