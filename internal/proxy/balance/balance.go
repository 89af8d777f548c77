// Package balance chooses one of several backends for a request by a strategy. It also
// decides which backends fail too often to be chosen ([Ejector]), and how many requests may
// be retried ([Budget]).
//
// It owns only these decisions. The caller keeps the state of the backends in a [Set]; the
// time is an argument; random numbers come from a [Source]. The same inputs give the same
// choices. Nothing here is safe for concurrent use: the caller guards all of it with one lock
// or one goroutine. A choice does not allocate.
//
// internal/proxy uses it for HTTP backends and for TCP connections.
package balance

import (
	"strings"

	"github.com/isotone/isotone"
)

// BackendsMax bounds the backends of one [Set] (I7). Every strategy scans all of them, which
// is affordable for some hundreds.
const BackendsMax = 256

// WeightMax bounds a weight, so that sums of weights and loads stay far from overflow.
const WeightMax = 1 << 16

// None is the result of a [Picker] that cannot choose any backend.
const None = -1

// Source generates random numbers; *math/rand/v2.PCG is one, [Seeded] another.
type Source interface{ Uint64() uint64 }

// Seeded is the generator SplitMix64 (Steele, Lea, Flood: Fast splittable
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

// Mask is a set of backends by their index. The zero value is empty.
type Mask [BackendsMax / 64]uint64

// Add adds backend i.
func (m *Mask) Add(i int) { m[i>>6] |= 1 << (i & 63) }

// Has reports whether it contains backend i.
func (m *Mask) Has(i int) bool { return m[i>>6]>>(i&63)&1 != 0 }

// Request has what a choice may depend on.
type Request struct {
	// Key is the [Hash] of the key for [Sticky], if Keyed.
	Key   uint64
	Keyed bool
	// Tried are the backends that must not be chosen because this request failed there.
	Tried Mask
}

// Picker is a strategy with its state. Make it with [New].
type Picker interface {
	// Pick returns the index of a usable backend that was not tried, or None. It does not
	// change the load: the caller calls [Set.Begin] when it sends the request.
	Pick(s *Set, r Request) int
}

// Strategy is a way to choose a backend.
type Strategy string

// The strategies. All of them respect weights.
const (
	// Random draws each backend with a probability in proportion to its weight.
	Random Strategy = "random"
	// RoundRobin takes one after the other, interleaved by weight.
	RoundRobin Strategy = "round-robin"
	// LeastBusy takes the one with the fewest requests in progress.
	LeastBusy Strategy = "least-busy"
	// TwoChoices takes the less busy of two drawn at random.
	TwoChoices Strategy = "p2c"
	// Sticky sends requests with the same key to the same backend, unless that has much more
	// than its share of the load.
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

// New returns a picker. It panics on an unknown strategy and without a source.
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
