// Package balance chooses one of several backends for a request, by a strategy, and
// keeps two accounts that go with it: which backends fail too often to be chosen
// ([Ejector]), and how many requests may be tried again ([Budget]).
//
// It owns these decisions and nothing else. What is alive and how busy it is, the caller
// says, in a [Set]; the time is an argument; chance comes from a [Source] that is passed
// in. The same inputs give the same choices. Nothing here is safe for concurrent use:
// the caller has one lock, or one goroutine, for all of it. A choice does not allocate.
//
// internal/balance/proxy uses it for plain HTTP backends.
package balance

import (
	"strings"

	"github.com/isotone/isotone"
)

// BackendsMax bounds the backends of one [Set] (I7). Every strategy looks at all of
// them, which is what one proxy can afford for some hundreds.
const BackendsMax = 256

// WeightMax bounds a weight, so that sums of weights and loads stay far from overflow.
const WeightMax = 1 << 16

// None is what a [Picker] returns when there is no backend to choose.
const None = -1

// Source is where chance comes from; *math/rand/v2.PCG is one, [Seeded] another.
type Source interface{ Uint64() uint64 }

// Seeded is a small source of its own: SplitMix64 (Steele, Lea, Flood: Fast splittable
// pseudorandom number generators, OOPSLA 2014). Its value is the seed.
type Seeded uint64

// Uint64 returns the next number.
func (s *Seeded) Uint64() uint64 {
	*s += 0x9e3779b97f4a7c15
	return mix(uint64(*s))
}

// mix scrambles x so that every bit of it can change every bit of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Mask is a set of backends by their position. The zero value is empty.
type Mask [BackendsMax / 64]uint64

// Add puts backend i in.
func (m *Mask) Add(i int) { m[i>>6] |= 1 << (i & 63) }

// Has reports whether backend i is in.
func (m *Mask) Has(i int) bool { return m[i>>6]>>(i&63)&1 != 0 }

// Request is what a choice may depend on.
type Request struct {
	// Key is the [Hash] of what the request is to stick to, if Keyed.
	Key   uint64
	Keyed bool
	// Tried are backends that must not be chosen: this request has failed there.
	Tried Mask
}

// Picker is a strategy with its state. Make it with [New].
type Picker interface {
	// Pick returns the position of a usable backend that was not tried, or None. It
	// changes no load: the caller calls [Set.Begin] if it goes there.
	Pick(s *Set, r Request) int
}

// Strategy is a way to choose.
type Strategy string

// All strategies. Weights count in each.
const (
	// Random: each with its probability.
	Random Strategy = "random"
	// RoundRobin: one after the other, interleaved.
	RoundRobin Strategy = "round-robin"
	// LeastBusy: the one with the fewest requests under way.
	LeastBusy Strategy = "least-busy"
	// TwoChoices: the less busy of two that are drawn at random.
	TwoChoices Strategy = "p2c"
	// Sticky: requests with the same key go to the same backend, as long as that one has
	// not much more than its share.
	Sticky Strategy = "sticky"
)

// Strategies returns all of them.
func Strategies() []Strategy { return []Strategy{Random, RoundRobin, LeastBusy, TwoChoices, Sticky} }

// ParseStrategy reads the name of a strategy. Its errors match
// isotone.ErrInvalidArgument.
func ParseStrategy(name string) (Strategy, error) {
	var names []string
	for _, s := range Strategies() {
		if string(s) == name {
			return s, nil
		}
		names = append(names, string(s))
	}
	return "", isotone.Errorf(isotone.CodeInvalidArgument, "strategy %.40q: want one of %s", name, strings.Join(names, ", "))
}

// New returns a picker. It panics on a strategy that ParseStrategy does not know, and
// without a source.
func New(s Strategy, source Source) Picker {
	if source == nil {
		panic("balance: no source")
	}
	switch s {
	case Random:
		return &random{source}
	case RoundRobin:
		return &roundRobin{}
	case LeastBusy:
		return &leastBusy{}
	case TwoChoices:
		return &twoChoices{source}
	case Sticky:
		return NewSticky(StickyPercent)
	}
	panic("balance: no strategy " + string(s))
}
