package lincheck

import (
	"fmt"
	"math"

	"github.com/isotone/isotone"
)

// Operation is one request for timestamps, as its client saw it.
type Operation struct {
	// Client names the caller in reports. Nothing else depends on it.
	Client uint64
	// Invocation and Completion are readings of one clock for the whole history, in any unit,
	// with Invocation <= Completion. Invocation must be read before the request leaves,
	// Completion after the answer arrived.
	//
	// A precedes B if and only if A.Completion < B.Invocation. Equal readings mean
	// "concurrent": a coarse clock hides violations and never invents one.
	Invocation, Completion int64
	// Range is the answer. Range and Completion count only if Answered.
	Range isotone.Range
	// Answered is false if the operation failed or its answer is lost or still to come. Such
	// an operation constrains nothing.
	Answered bool
}

// Kind is the kind of a violation.
type Kind uint8

const (
	// Malformed: the answer or the record of an operation is invalid, such as an empty range.
	Malformed Kind = iota + 1
	// Duplicate: two operations got the same timestamp.
	Duplicate
	// Inversion: an operation got a smaller timestamp than one that had completed before it
	// was invoked.
	Inversion
)

// String returns "malformed", "duplicate" or "inversion".
func (k Kind) String() string {
	switch k {
	case Malformed:
		return "malformed"
	case Duplicate:
		return "duplicate"
	case Inversion:
		return "inversion"
	default:
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
}

// Violation proves that a history is not linearizable by one or two of its operations.
type Violation struct {
	Kind Kind
	// Earlier and Later are these operations. In an Inversion, Earlier completed before Later
	// was invoked. In a Duplicate, Earlier completed first. If Malformed, Later is the
	// operation and Earlier is zero.
	//
	// [Online] keeps neither clients nor times, so its violations have only ranges.
	// Earlier.Range then holds the repeated timestamps, or the highest timestamp that was
	// completed before.
	Earlier, Later Operation
	// Fault says what is malformed. Empty for the other kinds.
	Fault string

	// rangesOnly marks a violation from Online for the message.
	rangesOnly bool
}

// Error describes the violation and both operations in one line.
func (v *Violation) Error() string {
	earlier, later := v.describe(v.Earlier), v.describe(v.Later)
	switch v.Kind {
	case Malformed:
		return fmt.Sprintf("malformed operation: %s: %s", later, v.Fault)
	case Duplicate:
		return fmt.Sprintf("duplicate timestamps: %s; then %s", earlier, later)
	default:
		return fmt.Sprintf("real-time order inverted: %s; invoked after that, %s", earlier, later)
	}
}

// describe returns client, timestamps and times of op, as far as they are known.
func (v *Violation) describe(op Operation) string {
	got := op.Range.First.String()
	if op.Range.Count != 1 {
		got = fmt.Sprintf("%s and on, %d in all", got, op.Range.Count)
	}
	if v.rangesOnly {
		return "got " + got
	}
	return fmt.Sprintf("client %d got %s in [%d, %d]", op.Client, got, op.Invocation, op.Completion)
}

// rangeFault returns what is wrong with a range by itself, or "".
func rangeFault(r isotone.Range) string {
	switch {
	case r.Count == 0:
		return "the range is empty"
	case r.Count > isotone.RangeCountMax:
		return fmt.Sprintf("the range is larger than %d", uint64(isotone.RangeCountMax))
	case r.Count-1 > math.MaxUint64-r.First.Index:
		return "the index overflows within the range"
	case r.First == isotone.Timestamp{}:
		return "the zero timestamp is smaller than any ever issued"
	default:
		return ""
	}
}
