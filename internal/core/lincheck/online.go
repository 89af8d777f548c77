package lincheck

// The online checker: the two conditions of check.go for a load of any length.
//
// Order. Say that an operation ends in the critical section of End and begins in
// that of Begin. The lock puts all of these in one order that respects real time.
// The floor that Begin returns is the highest timestamp of all operations that
// ended before.
//
//   - No false alarm: an operation counted in that floor had its answer before
//     Begin returned, so before the new request was sent. It does precede.
//   - No miss: if End of A returned before Begin of B was called, then A ended
//     before B began and B's floor is at least A's highest timestamp. So
//     B.First <= A.Last implies B.First <= floor.
//
// The time between an answer and the entry into End counts as part of the
// operation, as the time between the reading of a clock and a system call does
// in a recorded history.
//
// Uniqueness. Suppose that B repeats a timestamp t of A, and A ended before B
// did. If t is not above B's floor, the order check fails. Otherwise A ended
// after B began: only what ended while B was open can escape the order check,
// and for that there is the window. It holds every timestamp above
// window.forgotten, so either it holds t, and B is caught, or t, hence B.First,
// is not above forgotten, and B is counted in Stats.Unverified (unless B contains
// forgotten itself, and is caught).
//
// Say that an operation overtakes B if it ends while B is open and its last
// timestamp is not below B.First. The window forgets a span only when there are
// limit spans above it, and no operation reaches into two spans. So if B.First is
// not above forgotten, then limit+1 operations that are not below B.First have
// ended; and if B is in order none of them before B began, because B's floor
// would show it. Hence: B is verified if at most limit operations overtook it.
// Operations may take any time, and open ones need no record: a request that is
// never answered needs no call of End.
//
// There is one lock, because uniqueness needs one window, and because it is fast
// enough: see BenchmarkOnline. Tried and dropped: a sequence lock of atomic words, so
// that Begin need not wait (too little gain for the proof that it takes); yielding
// instead of queueing for the lock (not measurably faster). Not tried: a floor for
// each goroutine, which makes Begin read as many cache lines as there are goroutines.

import (
	"sync"

	"github.com/isotone/isotone"
)

// WindowDefault suits a load generator: an answer that 65,536 others overtook is still
// verified; far more if no one else uses the oracle, since the ranges then join. It takes
// about 2.4 MB.
const WindowDefault = 1 << 16

// WindowMax bounds the memory of one Online at about 600 MB.
const WindowMax = 1 << 24

// Online checks a running load. Around each request call
//
//	floor := online.Begin()
//	// send the request, wait for the answer
//	err := online.End(floor, answer)
//
// from any number of goroutines; neither call allocates. Do not call End for a request
// without an answer. Use [NewOnline]; the zero value does not work.
type Online struct {
	mu     sync.Mutex
	stats  Stats // Highest is the floor of what begins now
	window window
}

// Stats counts what an [Online] has seen.
type Stats struct {
	// Checked is the number of calls to End.
	Checked uint64
	// Violations is how many of them returned an error. The first one proves that the history
	// is not linearizable; later ones may be consequences.
	Violations uint64
	// Unverified is how many of them passed the order check but were overtaken by more
	// operations than the window holds: a duplicate may be unnoticed. If it is 0 the verdict
	// is exact.
	Unverified uint64
	// Highest is the highest timestamp seen.
	Highest isotone.Timestamp
}

// NewOnline returns a checker that verifies every operation but those overtaken by more than
// window others, that is, open while more than window others with larger timestamps ended. 0
// or less stands for [WindowDefault]; more than [WindowMax] for WindowMax.
func NewOnline(window int) *Online {
	if window <= 0 {
		window = WindowDefault
	}
	o := new(Online)
	o.window.init(min(window, WindowMax))
	return o
}

// Begin returns the floor of an operation that is about to be sent: the highest timestamp
// passed to any End so far. The answer must be above it.
func (o *Online) Begin() isotone.Timestamp {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats.Highest
}

// End checks the answer to the operation for which Begin returned floor. It returns nil or a
// *[Violation]. Operations that begin later must be above the answer.
func (o *Online) End(floor isotone.Timestamp, answer isotone.Range) error {
	if fault := rangeFault(answer); fault != "" {
		o.mu.Lock()
		o.stats.Checked++
		o.stats.Violations++
		o.mu.Unlock()
		return onlineViolation(Malformed, isotone.Range{}, answer, fault)
	}
	ordered := floor.Before(answer.First)

	o.mu.Lock()
	remembered := o.window.forgotten.Before(answer.First)
	common, unique := o.window.add(answer)
	o.stats.Checked++
	if !ordered || !unique {
		o.stats.Violations++
	} else if !remembered {
		o.stats.Unverified++
	}
	if last := answer.Last(); o.stats.Highest.Before(last) {
		o.stats.Highest = last
	}
	o.mu.Unlock()

	switch {
	case !unique:
		return onlineViolation(Duplicate, common, answer, "")
	case !ordered:
		return onlineViolation(Inversion, isotone.Range{First: floor, Count: 1}, answer, "")
	default:
		return nil
	}
}

// onlineViolation returns a violation that has only ranges.
func onlineViolation(kind Kind, earlier, later isotone.Range, fault string) *Violation {
	return &Violation{
		Kind:       kind,
		Earlier:    Operation{Range: earlier, Answered: kind != Malformed},
		Later:      Operation{Range: later, Answered: true},
		Fault:      fault,
		rangesOnly: true,
	}
}

// Stats returns the counts so far, without operations under way.
func (o *Online) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}
