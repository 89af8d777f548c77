package interval

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// IndexMin is the smallest index of a timestamp that was made from an interval. Those of the oracle
// are below it.
const IndexMin = 1 << 63

// Generator makes unique timestamps from bounds of the cluster clock: each has a time of its own, and
// the index of the generator, of which 63 bits are random.
type Generator struct {
	index uint64
	last  uint64 // time of the latest timestamp
}

// NewGenerator makes a generator of 63 random bits.
func NewGenerator(random uint64) Generator { return Generator{index: random | IndexMin} }

// Next returns the first of n timestamps with consecutive times, none of them below the latest that
// the cluster clock can be by bounds, which are good. ok is false, and nothing is made, if the last one
// would be above the limit. n is at least 1.
func (g *Generator) Next(bounds Reading, n uint64) (first isotone.Timestamp, ok bool) {
	at, ok := NextTime(bounds, g.last, n)
	if !ok {
		return isotone.Timestamp{}, false
	}
	g.last = at + n - 1
	return isotone.Timestamp{Time: at, Index: g.index}, true
}

// NextTime is [Generator.Next] for a generator that keeps the time of its latest timestamp, last,
// elsewhere: it returns the time of the first of n timestamps, at + n - 1 being that of the last one.
func NextTime(bounds Reading, last, n uint64) (at uint64, ok bool) {
	at = mutant.Pick(mutant.StampEarliest, bounds.Earliest, bounds.Latest)
	if !mutant.On(mutant.GeneratorForgets) {
		at = max(at, last+1)
	}
	if n > bounds.Limit || at > bounds.Limit-(n-1) {
		return 0, false
	}
	return at, true
}

// IsPast reports whether a timestamp is in the past for everyone, by a read of bounds: whatever begins
// now gets a larger one. The bounds need not be good.
func IsPast(t isotone.Timestamp, bounds Reading) bool {
	return mutant.Pick(mutant.WaitOnLatest, bounds.Latest, bounds.Earliest) > t.Time
}
