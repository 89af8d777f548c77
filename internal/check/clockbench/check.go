package clockbench

// The checks.
//
// Contradiction. A read i says that the clock of its term was in [Ei, Li] at some instant in [loi, hii]
// of the machine's steady clock. The clock runs at 1±κ of that one. So when read j was made it showed
// at least Ei + g(loj-hii), where g(d) is d(1-κ) for d >= 0 and d(1+κ) otherwise: the time from one
// instant to the other is at least loj-hii. If that is above Lj the two reads contradict each other. Over
// all pairs in both directions, this is the condition that a clock of such a rate can have been within
// all of the intervals. For each j it needs the largest Ei - hii(1-κ) of those with hii <= loj, and
// the largest Ei - hii(1+κ) of the others, so sorting suffices. The arithmetic is in thousandths of
// nanoseconds, from the first record on, and exact.
//
// Order. Whatever was reached when a record ended bounds the ones that began later, of whatever
// process and term: after a read of [E, L] every read has a latest bound of at least E, and every
// timestamp a time of at least E; after an operation with a time t every read has a latest bound of at
// least t or, if it was waited for, above t. Operations among themselves are for package lincheck.
//
// Uniqueness. lincheck compares the recorded operations. Of the others each generator has compared
// its own, and here no two generators may have one index.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// rateError is how far, in thousandths, the rate of a cluster clock may be from that of the steady clock
// of this machine: both rate errors of docs/intervals.md and the slewing together are below it.
const rateError = 1

// violationsMax bounds the violations that Check describes. All are counted.
const violationsMax = 1000

// verdicts collects violations.
type verdicts struct {
	list  []bench.Violation
	count uint64
}

func (v *verdicts) add(kind string, earlier, later any, format string, args ...any) {
	v.count++
	if len(v.list) < violationsMax {
		v.list = append(v.list, bench.Violation{Kind: kind, Message: fmt.Sprintf(format, args...), Earlier: earlier, Later: later})
	}
}

// Check judges what was recorded. It returns at most 1,000 violations, and how many it found; of those
// between operations, at most one. It sorts the records.
func (e *Evidence) Check() (list []bench.Violation, count uint64) {
	var v verdicts
	e.checkReads(&v)
	e.checkContradictions(&v)
	e.checkOrder(&v)
	e.checkOperations(&v)
	e.checkGenerators(&v)
	return v.list, v.count
}

// checkReads looks at each read alone.
func (e *Evidence) checkReads(v *verdicts) {
	for _, r := range e.Reads {
		if r.Earliest > r.Latest || r.Lo > r.Hi || r.Term == 0 {
			v.add(Malformed, nil, r, "%v is impossible in itself", r)
		}
	}
}

// checkContradictions compares the reads of each term.
func (e *Evidence) checkContradictions(v *verdicts) {
	slices.SortFunc(e.Reads, func(a, b Read) int {
		return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Hi, b.Hi))
	})
	for reads := e.Reads; len(reads) > 0; {
		n := 1
		for n < len(reads) && reads[n].Term == reads[0].Term {
			n++
		}
		checkTerm(reads[:n], v)
		reads = reads[n:]
	}
}

// relative bounds the differences that are computed with, in nanoseconds: 13 days, longer than any run.
// A thousand times the sum of four fits in an int64. What is further off is as wrong there.
const relative = 1 << 50

// since returns a-b, limited to relative.
func since[T int64 | uint64](a, b T) int64 {
	if a >= b {
		return int64(min(uint64(a)-uint64(b), relative))
	}
	return -int64(min(uint64(b)-uint64(a), relative))
}

// checkTerm compares reads of one term, sorted by Hi.
func checkTerm(reads []Read, v *verdicts) {
	const slow, fast = 1000 - rateError, 1000 + rateError
	origin := reads[0]
	earliest := func(i int) int64 { return 1000 * since(reads[i].Earliest, origin.Earliest) }
	hi := func(i int) int64 { return since(reads[i].Hi, origin.Hi) }
	before := make([]int, len(reads)) // of those up to here, the one that bounds what comes later
	after := make([]int, len(reads))  // of those from here on, the one that bounds what came before
	for i := range reads {
		before[i] = i
		if i > 0 && earliest(before[i-1])-slow*hi(before[i-1]) > earliest(i)-slow*hi(i) {
			before[i] = before[i-1]
		}
	}
	for i := len(reads) - 1; i >= 0; i-- {
		after[i] = i
		if i+1 < len(reads) && earliest(after[i+1])-fast*hi(after[i+1]) > earliest(i)-fast*hi(i) {
			after[i] = after[i+1]
		}
	}
	for j, r := range reads {
		lo, latest := since(r.Lo, origin.Hi), 1000*since(r.Latest, origin.Earliest)
		k, _ := slices.BinarySearchFunc(reads, r.Lo, func(s Read, lo int64) int { // the first with Hi > lo
			if s.Hi <= lo {
				return -1
			}
			return 1
		})
		tell := func(i int, excess int64) {
			if excess > 0 && i != j {
				v.add(Contradiction, reads[i], r, "no clock can have been within both, by %d ns: %v, and %v", (excess+999)/1000, reads[i], r)
			}
		}
		if k > 0 {
			i := before[k-1]
			tell(i, earliest(i)+slow*(lo-hi(i))-latest)
		}
		if k < len(reads) {
			i := after[k]
			tell(i, earliest(i)+fast*(lo-hi(i))-latest)
		}
	}
}

// point is a bound: at an instant, a value had been reached, or has to have been.
type point struct {
	at     int64
	value  uint64
	record any // *Read or *Operation
}

// checkOrder compares reads with what was reached before them, and timestamps with reads before them.
func (e *Evidence) checkOrder(v *verdicts) {
	var told, reached, reads, stamps []point
	for i := range e.Reads {
		r := &e.Reads[i]
		told = append(told, point{r.Hi, r.Earliest, r})
		reads = append(reads, point{r.Lo, r.Latest, r})
	}
	for i := range e.Operations {
		o := &e.Operations[i]
		stamps = append(stamps, point{o.Invocation, o.Timestamp.Time, o})
		if o.Completion == Never {
			continue
		}
		p := point{o.Completion, o.Timestamp.Time, o}
		if !o.Oracle && p.value < math.MaxUint64 {
			p.value++
		}
		reached = append(reached, p)
	}
	sweep(slices.Concat(reached, told), reads, v)
	sweep(told, stamps, v)
}

// sweep has every one of later be at least what earlier ones that ended before it had reached.
func sweep(earlier, later []point, v *verdicts) {
	byTime := func(a, b point) int { return cmp.Compare(a.at, b.at) }
	slices.SortFunc(earlier, byTime)
	slices.SortFunc(later, byTime)
	var highest *point
	for _, p := range later {
		for len(earlier) > 0 && earlier[0].at < p.at {
			if highest == nil || earlier[0].value > highest.value {
				highest = &earlier[0]
			}
			earlier = earlier[1:]
		}
		if highest != nil && p.value < highest.value {
			v.add(ReadOrder, highest.record, p.record, "%v; after it %v", highest.record, p.record)
		}
	}
}

// checkOperations has lincheck judge the merged history.
func (e *Evidence) checkOperations(v *verdicts) {
	history := make([]lincheck.Operation, len(e.Operations))
	for i, o := range e.Operations {
		if clock := o.Timestamp.Index >= 1<<63; clock == o.Oracle {
			v.add(Malformed, nil, o, "%v has an index of the other kind", o)
		}
		history[i] = lincheck.Operation{
			Client: uint64(i), Invocation: o.Invocation, Completion: o.Completion,
			Range: isotone.Range{First: o.Timestamp, Count: 1}, Answered: true,
		}
	}
	var found *lincheck.Violation
	if !errors.As(lincheck.Check(history), &found) {
		return
	}
	later := e.Operations[found.Later.Client]
	if found.Kind == lincheck.Malformed {
		v.add(Malformed, nil, later, "%v: %s", later, found.Fault)
		return
	}
	earlier := e.Operations[found.Earlier.Client]
	kind, text := Inversion, "%v; after its end began %v"
	if found.Kind == lincheck.Duplicate {
		kind, text = Duplicate, "%v; the same timestamp has %v"
	}
	v.add(kind, earlier, later, text, earlier, later)
}

// checkGenerators has every generator be in order, and have an index of its own.
func (e *Evidence) checkGenerators(v *verdicts) {
	slices.SortFunc(e.Generators, func(a, b Generator) int { return cmp.Compare(a.Index, b.Index) })
	for i, g := range e.Generators {
		if g.Fault != "" {
			v.add(Malformed, nil, g, "%v: %s", g, g.Fault)
		}
		if i > 0 && e.Generators[i-1].Index == g.Index {
			v.add(Duplicate, e.Generators[i-1], g, "two generators have the same random bits: %v, and %v", e.Generators[i-1], g)
		}
	}
}
