package front

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
)

// Clock reads the cluster clock. It is safe for concurrent use by all loops and goroutines.
type Clock interface {
	// Now returns bounds of the cluster clock at an instant during the call. They may be used, and
	// told to others with the same term and limit. It never blocks and needs no other node.
	//
	// The error matches isotone.ErrNoLeader while no reading is valid, isotone.ErrClock while the
	// rate of a clock is wrong, and isotone.ErrNotFound if the clock is not read here. With
	// isotone.ErrNoLeader the reading counts in one respect: if its Term is not 0, the cluster clock
	// has reached Earliest.
	Now() (interval.Reading, error)
}

// NoClock is the [Clock] of a proxy. A reading that was passed on or kept would be none.
type NoClock struct{}

var errNoClock = isotone.Errorf(isotone.CodeNotFound, "the cluster clock is not read here: ask a node of the cluster, each of them answers")

// Now returns an error that matches isotone.ErrNotFound.
func (NoClock) Now() (interval.Reading, error) { return interval.Reading{}, errNoClock }

// Bounds of waiting until a timestamp is past.
const (
	// ClockWaitMax bounds how long a front waits on behalf of a request. With an interval that is
	// good the wait takes about as long as the interval is wide.
	ClockWaitMax = 10 * time.Second
	// clockLookMax is the longest time between two looks at the clock: a new estimate may have a
	// larger lower bound. clockLookMin is the shortest, about what a timer is late.
	clockLookMax = 10 * time.Millisecond
	clockLookMin = 50 * time.Microsecond
)

// UntilPast looks whether a timestamp is in the past for everyone. again is 0 if it is, else how
// long to wait until the next look. An error says that no wait will help; while no reading is valid
// there is none.
func UntilPast(c Clock, t isotone.Timestamp) (again time.Duration, err error) {
	now, err := c.Now()
	switch {
	case err != nil && !errors.Is(err, isotone.ErrNoLeader):
		return 0, err
	case now.Term == 0:
		return clockLookMax, nil
	case interval.IsPast(t, now):
		return 0, nil
	}
	// At most clockLookMax as a number: a timestamp may be centuries ahead.
	ahead := min(t.Time-min(t.Time, now.Earliest), uint64(clockLookMax))
	return max(time.Duration(ahead), clockLookMin), nil
}

// ErrNotPast is the error for a timestamp that is still ahead after [ClockWaitMax].
var ErrNotPast = isotone.Errorf(isotone.CodeDeadlineExceeded, "the cluster clock has not passed that timestamp within %v", ClockWaitMax)

// StampsMax bounds the timestamps that a node makes for one request: 65 µs of a generator.
const StampsMax = 65536

// stampsAheadMax bounds how far the timestamps of a [Stamper] may be ahead of the cluster clock, in
// nanoseconds: 15 times as far as those of the largest request. Whoever gets one waits for it, so one client must not push those
// of the others far.
const stampsAheadMax = uint64(time.Millisecond)

// Stamps are timestamps that a [Stamper] has made: with consecutive times, and one index.
type Stamps struct {
	First isotone.Timestamp
	Count uint64
}

// At returns the i-th, counted from 0.
func (s Stamps) At(i uint64) isotone.Timestamp {
	return isotone.Timestamp{Time: s.First.Time + i, Index: s.First.Index}
}

// Stamper makes timestamps from readings of the cluster clock. Each loop has its own. It is not safe
// for concurrent use.
type Stamper struct {
	clock     Clock
	generator interval.Generator
	last      uint64 // time of the latest timestamp
}

// NewStamper returns a stamper with a generator of its own.
func NewStamper(c Clock) *Stamper {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return &Stamper{clock: c, generator: interval.NewGenerator(binary.BigEndian.Uint64(b[:]))}
}

var errStampsAhead = isotone.Errorf(isotone.CodeOverloaded, "more timestamps are asked for than there are nanoseconds")

// Make makes n timestamps, 1 to [StampsMax]. It never blocks and needs no other node. Nobody may
// take them for past before the cluster clock's lower bound has passed them. Its error is that of
// [Clock], or matches isotone.ErrOverloaded (too many at once).
func (s *Stamper) Make(n uint64) (Stamps, error) {
	now, err := s.clock.Now()
	if err != nil {
		return Stamps{}, err
	}
	// The last of the n counts: what is refused to a large request is left to smaller ones.
	if max(s.last+1, now.Latest)+n-1 > now.Latest+stampsAheadMax {
		return Stamps{}, errStampsAhead
	}
	first, ok := s.generator.Next(now, n)
	if !ok {
		return Stamps{}, errStampsAhead
	}
	s.last = first.Time + n - 1
	return Stamps{first, n}, nil
}
