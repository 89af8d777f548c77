package check

import (
	"fmt"
	"strings"
)

// Status is what is known of the end of a transaction.
type Status uint8

const (
	// Committed: the commit was acknowledged.
	Committed Status = iota + 1
	// Aborted: the transaction was reported as having no effect.
	Aborted
	// Unknown: the transaction may have committed. It counts as committed if one that counts as
	// committed has read a value that it wrote.
	Unknown
)

// Kind is the kind of an operation.
type Kind uint8

const (
	// Append appends Value to the list of Key.
	Append Kind = iota + 1
	// List reads the list of Key, which is List.
	List
	// Write sets the register of Key to Value.
	Write
	// Read reads the register of Key, which is Value; 0 is a register that was never written.
	Read
)

// Op is an operation of a transaction, with its result. A key is used either as a list or as a
// register. Values that are written are not 0, and no two operations write the same value to one key.
type Op struct {
	Kind  Kind
	Key   string
	Value int64
	List  []int64
}

// Txn is a transaction.
type Txn struct {
	// Name appears in reports. Nothing else depends on it.
	Name   string
	Status Status
	// Ops are the operations that were answered, in their order.
	Ops []Op
	// Begin and End are readings of one clock for the whole history, in any unit, with Begin before
	// the transaction has begun and End after it was reported as committed. They order transactions
	// in real time: A precedes B if A.End < B.Begin. With a Begin of 0 nothing precedes it; with an
	// End of 0, or if it has not committed, it precedes nothing.
	Begin, End int64
	// Commit is the place of the transaction among all writers of its registers, if it is known from
	// the system itself, such as a commit timestamp; 0 if not. It is used for a register if all its
	// writers have one.
	Commit uint64
}

// Anomaly is what a history must not have.
type Anomaly struct {
	Name Name
	// Txns are the indexes of the transactions in the history, in the order of the cycle if it is one.
	Txns []int
	// Detail says what is wrong in words.
	Detail string
}

// Name is the name of an anomaly.
type Name string

// All names. Each excludes what the ones before it describe.
const (
	// Malformed: the history itself is not as it has to be.
	Malformed Name = "malformed"
	// Internal: a transaction does not see its own writes, or reads a key twice with different results.
	Internal Name = "internal"
	// Garbage: a value was read that was never written, or twice in one list.
	Garbage Name = "garbage"
	// G1a: a value was read whose transaction has aborted.
	G1a Name = "G1a"
	// G1b: a value was read that its transaction itself overwrote.
	G1b Name = "G1b"
	// Order: two reads of a list disagree about the order of its elements, or one has the elements of
	// a transaction in another order than it appended them, or only some of them.
	Order Name = "incompatible-order"
	// LostUpdate: two transactions read the same version of a key, and both wrote the key.
	LostUpdate Name = "lost-update"
	// G0: a cycle of ww.
	G0 Name = "G0"
	// G1c: a cycle of ww and wr.
	G1c Name = "G1c"
	// GSingle: a cycle of ww, wr and one rw.
	GSingle Name = "G-single"
	// GNonadjacent: a cycle of ww, wr and rw, in which no two rw follow each other.
	GNonadjacent Name = "G-nonadjacent"
	// RealTime: a cycle as any of those, with at least one rt as well.
	RealTime Name = "real-time"
)

// Error describes the anomaly in one line.
func (a *Anomaly) Error() string { return fmt.Sprintf("%s: %s", a.Name, a.Detail) }

// String returns the transaction as one line, such as "T1 committed: a=[1 2] a+3 r=4 r:=5".
func (t *Txn) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s:", t.Name, [...]string{"?", "committed", "aborted", "unknown"}[t.Status&3])
	for _, op := range t.Ops {
		b.WriteString(" " + op.String())
	}
	return b.String()
}

// String returns the operation as in a=[1 2], a+3, r=4 and r:=5.
func (op Op) String() string {
	switch op.Kind {
	case Append:
		return fmt.Sprintf("%s+%d", op.Key, op.Value)
	case List:
		return fmt.Sprintf("%s=%v", op.Key, op.List)
	case Write:
		return fmt.Sprintf("%s:=%d", op.Key, op.Value)
	case Read:
		return fmt.Sprintf("%s=%d", op.Key, op.Value)
	default:
		return fmt.Sprintf("Kind(%d)", op.Kind)
	}
}
