package balance

import (
	"fmt"

	"github.com/isotone/isotone"
)

// Set is the backends as the caller knows them now. Make it with [NewSet].
//
// A backend that is down, by what a health check says, is never chosen. One that is
// ejected is chosen only if all that are not down are ejected: ejection is a guess from
// failures, and when everything fails it says more about the requests than about the
// backends.
type Set struct {
	all    []backend
	usable []int  // positions of those that may be chosen, in order
	weight uint64 // of the usable ones
	shift  uint64 // grows when usable or a weight changes
}

type backend struct {
	hash          uint64 // of the name
	weight        uint64
	load          int // requests under way
	down, ejected bool
}

// Backend describes one backend for [NewSet].
type Backend struct {
	// Name tells it from the others. Sticky choices depend on it and not on its place, so
	// that proxies with the same backends in any order agree.
	Name string
	// Weight is its share; 0 means 1.
	Weight int
}

// NewSet returns a set of backends that are all up and idle. Its errors match
// isotone.ErrInvalidArgument.
func NewSet(backends ...Backend) (*Set, error) {
	if len(backends) == 0 || len(backends) > BackendsMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%d backends: want 1 to %d", len(backends), BackendsMax)
	}
	s := &Set{all: make([]backend, len(backends)), usable: make([]int, 0, len(backends))}
	names := map[string]bool{}
	for i, b := range backends {
		if b.Weight < 0 || b.Weight > WeightMax {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.100q has weight %d: want 1 to %d", b.Name, b.Weight, WeightMax)
		}
		if names[b.Name] {
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.100q is there twice", b.Name)
		}
		names[b.Name] = true
		s.all[i] = backend{hash: Hash(b.Name), weight: uint64(max(b.Weight, 1))}
	}
	s.settle()
	return s, nil
}

// Len returns how many backends there are. They are numbered from 0.
func (s *Set) Len() int { return len(s.all) }

// Load returns how many requests backend i has under way.
func (s *Set) Load(i int) int { return s.all[i].load }

// Down reports whether backend i is down.
func (s *Set) Down(i int) bool { return s.all[i].down }

// Ejected reports whether backend i is ejected.
func (s *Set) Ejected(i int) bool { return s.all[i].ejected }

// Usable returns how many backends may be chosen.
func (s *Set) Usable() int { return len(s.usable) }

// SetDown says whether backend i is down.
func (s *Set) SetDown(i int, down bool) {
	if s.all[i].down != down {
		s.all[i].down = down
		s.settle()
	}
}

// SetEjected says whether backend i is ejected.
func (s *Set) SetEjected(i int, ejected bool) {
	if s.all[i].ejected != ejected {
		s.all[i].ejected = ejected
		s.settle()
	}
}

// Begin counts a request that goes to backend i.
func (s *Set) Begin(i int) { s.all[i].load++ }

// End counts a request that has come back from backend i, in whatever way.
func (s *Set) End(i int) {
	if s.all[i].load--; s.all[i].load < 0 {
		panic(fmt.Sprintf("balance: backend %d has ended more than it began", i))
	}
}

// settle works out which backends are usable.
func (s *Set) settle() {
	in := 0
	for i := range s.all {
		if !s.all[i].down && !s.all[i].ejected {
			in++
		}
	}
	s.usable, s.weight = s.usable[:0], 0
	s.shift++
	for i := range s.all {
		if b := &s.all[i]; !b.down && (!b.ejected || in == 0) {
			s.usable = append(s.usable, i)
			s.weight += b.weight
		}
	}
}

// lighter reports whether backend i has less to do than j for its weight. i and j are
// positions.
func (s *Set) lighter(i, j int) bool {
	a, b := &s.all[i], &s.all[j]
	return uint64(a.load)*b.weight < uint64(b.load)*a.weight
}

// Hash returns a number for a name or key, as [Request.Key] wants it: FNV-1a, then
// scrambled, because FNV alone is weak in the high bits.
func Hash[T string | []byte](key T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	return mix(h)
}
