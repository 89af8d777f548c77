package balance

import (
	"fmt"

	"github.com/isotone/isotone"
)

// Set is the current state of the backends. Make it with [NewSet].
//
// A backend that is down, according to its health check, is never chosen. An ejected one is
// chosen only if all that are not down are ejected: ejection is a guess from failures, and when
// every backend fails, the requests are a likelier cause than the backends.
type Set struct {
	all     []backend
	usable  []int  // indexes of those that may be chosen, in order
	weight  uint64 // of the usable ones
	version uint64 // grows with every change of usable
}

type backend struct {
	hash          uint64 // of the name
	weight        uint64
	load          int // requests in progress
	down, ejected bool
}

// Backend describes one backend for [NewSet].
type Backend struct {
	// Name identifies the backend. Sticky choices depend on names, not on indexes, so that
	// proxies with the same backends in any order agree.
	Name string
	// Weight is its share, at most WeightMax; 0 means 1.
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
			return nil, isotone.Errorf(isotone.CodeInvalidArgument, "backend %.100q is listed twice", b.Name)
		}
		names[b.Name] = true
		s.all[i] = backend{hash: Hash(b.Name), weight: uint64(max(b.Weight, 1))}
	}
	s.settle()
	return s, nil
}

// Len returns the number of backends. Their indexes begin at 0.
func (s *Set) Len() int { return len(s.all) }

// Load returns how many requests backend i has in progress.
func (s *Set) Load(i int) int { return s.all[i].load }

// Down reports whether backend i is down.
func (s *Set) Down(i int) bool { return s.all[i].down }

// Ejected reports whether backend i is ejected.
func (s *Set) Ejected(i int) bool { return s.all[i].ejected }

// SetDown sets whether backend i is down.
func (s *Set) SetDown(i int, down bool) {
	if s.all[i].down != down {
		s.all[i].down = down
		s.settle()
	}
}

// SetEjected sets whether backend i is ejected.
func (s *Set) SetEjected(i int, ejected bool) {
	if s.all[i].ejected != ejected {
		s.all[i].ejected = ejected
		s.settle()
	}
}

// Begin counts a request that is sent to backend i.
func (s *Set) Begin(i int) { s.all[i].load++ }

// End counts a request to backend i as ended, with whatever outcome.
func (s *Set) End(i int) {
	if s.all[i].load--; s.all[i].load < 0 {
		panic(fmt.Sprintf("balance: backend %d has ended more requests than it began", i))
	}
}

// settle determines which backends are usable.
func (s *Set) settle() {
	in := 0
	for i := range s.all {
		if !s.all[i].down && !s.all[i].ejected {
			in++
		}
	}
	s.usable, s.weight = s.usable[:0], 0
	s.version++
	for i := range s.all {
		if b := &s.all[i]; !b.down && (!b.ejected || in == 0) {
			s.usable = append(s.usable, i)
			s.weight += b.weight
		}
	}
}

// lighter reports whether backend i has less load per weight than backend j.
func (s *Set) lighter(i, j int) bool {
	a, b := &s.all[i], &s.all[j]
	return uint64(a.load)*b.weight < uint64(b.load)*a.weight
}

// Hash returns the hash of a name or of a key, for [Request.Key]: FNV-1a with a final mix,
// because FNV alone is weak in the high bits.
func Hash[T string | []byte](key T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	return mix(h)
}
