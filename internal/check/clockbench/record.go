package clockbench

import (
	"fmt"
	"math"

	"github.com/isotone/isotone"
)

// All times of records are readings of the steady clock of the machine (steady.Exact), in
// nanoseconds.

// Operation is one timestamp: of an oracle, or of a generator of the cluster clock that was then
// waited for.
type Operation struct {
	// Process and Lane say who asked: the number of the process, and of the goroutine in it.
	Process, Lane int
	// Oracle: the timestamp is from the oracle, in quorum mode.
	Oracle bool
	// Invocation was read before the timestamp was asked for, Completion after it was answered or, if
	// it is from a generator, waited for. Completion is Never if the wait failed.
	Invocation, Completion int64
	Timestamp              isotone.Timestamp
}

// Never is the completion of an operation that was not complete.
const Never = math.MaxInt64

// Read is one read of the cluster clock: of the clock of Term, at an instant in [Lo, Hi].
type Read struct {
	Process          int
	Lo, Hi           int64
	Earliest, Latest uint64
	Term             uint64
}

// Generator is one generator of the cluster clock, and all that it has made. Each of its timestamps was
// compared with the one before it; Fault describes the first that was wrong.
type Generator struct {
	Process, Lane int
	Index         uint64 // of its timestamps
	First, Last   uint64 // the smallest and the largest of their times
	Count         uint64
	Fault         string
}

// note takes in timestamps with consecutive times.
func (g *Generator) note(batch []isotone.Timestamp) {
	first, last, n := batch[0], batch[len(batch)-1], uint64(len(batch))
	switch {
	case g.Count == 0:
		g.Index, g.First = first.Index, first.Time
		if g.Index < 1<<63 {
			g.fault("the index of %v is one of the oracle's", first)
		}
	case first.Time <= g.Last:
		g.fault("%v was made after one with the time %d", first, g.Last)
	}
	if last.Time-first.Time != n-1 || first.Index != g.Index || last.Index != g.Index {
		g.fault("a batch of %d from %v to %v, of the generator with the index %016x: want consecutive times and one index", n, first, last, g.Index)
	}
	g.Last = max(g.Last, last.Time)
	g.Count += n
}

// look compares all timestamps of the latest batch that note has taken in, if there was one.
func (g *Generator) look(batch []isotone.Timestamp) {
	for i, ts := range batch {
		if want := (isotone.Timestamp{Time: batch[0].Time + uint64(i), Index: g.Index}); g.Count > 0 && ts != want {
			g.fault("timestamp %d of a batch is %v, want %v", i, ts, want)
		}
	}
}

func (g *Generator) fault(format string, args ...any) {
	if g.Fault == "" {
		g.Fault = fmt.Sprintf(format, args...)
	}
}

// Evidence is what all processes have recorded.
type Evidence struct {
	Operations []Operation
	Reads      []Read
	Generators []Generator
}

// The kinds of violations, whose records are [Operation], [Read] or [Generator].
const (
	// Contradiction: two reads of the clock of one term cannot both be right, whatever it showed.
	Contradiction = "contradiction"
	// ReadOrder: a read whose latest bound is below what had been reached before it, or a timestamp
	// that is below what had been reached before it was asked for.
	ReadOrder = "read_order"
	// Inversion: an operation got a smaller timestamp than one that was complete before it began.
	Inversion = "inversion"
	// Duplicate: a timestamp was made twice, or two generators have the same 63 random bits.
	Duplicate = "duplicate"
	// Malformed: a record is invalid in itself.
	Malformed = "malformed"
)

// String describes an operation in one line.
func (o Operation) String() string {
	kind, until := "an operation of the cluster clock", fmt.Sprint(o.Completion)
	if o.Oracle {
		kind = "an operation of the oracle"
	}
	if o.Completion == Never {
		until = "never"
	}
	return fmt.Sprintf("%s with %v (process %d, lane %d, from %d to %s)", kind, o.Timestamp, o.Process, o.Lane, o.Invocation, until)
}

// String describes a read in one line.
func (r Read) String() string {
	return fmt.Sprintf("a read of [%d, %d] in term %d (process %d, within %d and %d)", r.Earliest, r.Latest, r.Term, r.Process, r.Lo, r.Hi)
}

// String describes a generator in one line.
func (g Generator) String() string {
	return fmt.Sprintf("a generator with the index %016x (process %d, lane %d, %d timestamps)", g.Index, g.Process, g.Lane, g.Count)
}
