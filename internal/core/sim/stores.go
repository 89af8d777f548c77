package sim

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// The stores of groups, each with a fence of its own. A group gets another one in two steps: first every process seals it, then processes write into it. A process
// knows what was so when it began, and begins anew for each step.

// storesRuns is one in how many runs with sessions has groups of several stores.
const storesRuns = 2

// storesMax is how many stores a group has at most.
const storesMax = 3

// layout says how many of its stores a group seals, and into how many of those it writes.
type layout struct{ seals, writes int }

// stores are the stores of all groups. What one of them does is one step.
type stores struct {
	rng *rand.Rand
	// several is set if groups may have more than one.
	several bool
	fences  map[string][]isotone.Timestamp
	layouts map[string]layout              // of processes that begin now
	locks   map[string]isotone.Timestamp64 // the fences of locks
	// told is the largest frontier of each group.
	told map[string]isotone.Timestamp
}

func newStores(seed uint64, groups []string) stores {
	s := stores{
		rng: rand.New(rand.NewPCG(seed, 0x570e5)), fences: map[string][]isotone.Timestamp{}, layouts: map[string]layout{},
		locks: map[string]isotone.Timestamp64{}, told: map[string]isotone.Timestamp{},
	}
	s.several = s.rng.IntN(storesRuns) == 0
	for _, group := range groups {
		n := 1
		if s.several {
			n += s.rng.IntN(storesMax - 1)
		}
		s.fences[group], s.layouts[group] = make([]isotone.Timestamp, n), layout{n, n}
	}
	return s
}

// writeLocked accepts a write under a token, or reports false (R9).
func (s *stores) writeLocked(name string, token isotone.Timestamp64) bool {
	if token < s.locks[name] {
		return false
	}
	s.locks[name] = token
	return true
}

// pick returns the stores of a write.
func (s *stores) pick(l layout) []int {
	switch {
	case l.writes == 1:
		return []int{0}
	case s.rng.IntN(3) > 0:
		return []int{s.rng.IntN(l.writes)}
	}
	return s.rng.Perm(l.writes)
}

// arriveAtStore has a store accept a write, or fence it.
func (w *world) arriveAtStore(u *sessionUser, group string, store int, stamp isotone.Timestamp) {
	s := &w.sessions.stores
	w.stats.StampedWrites++
	if stamp.Before(s.fences[group][store]) {
		w.stats.StampedFenced++
		return
	}
	if told := s.told[group]; !told.Before(stamp) {
		w.fail("R14: a write of user %d in %q, stamped %v, is accepted by store %d after the frontier %v was told", u.number, group, stamp, store, told)
	}
}

// raise raises the fence of a store above a stamp.
func (s *stores) raise(group string, store int, through isotone.Timestamp) {
	if up := after(through); s.fences[group][store].Before(up) {
		s.fences[group][store] = up
	}
}

// sealAll raises the fences of all stores that a process knows, each at a time of its own, and calls done when they are.
func (w *world) sealAll(l layout, group string, through isotone.Timestamp, done func()) {
	s := &w.sessions.stores
	left := mutant.Pick(mutant.SealSomeStores, 1, l.seals)
	for store := range left {
		rng := s.rng
		if store == 0 {
			rng = w.sessions.rng
		}
		w.after(time.Duration(rng.Int64N(int64(w.cfg.tick))), func() {
			s.raise(group, store, through)
			if left--; left == 0 {
				done()
			}
		})
	}
}

// runStores has groups get more stores.
func (w *world) runStores() {
	s := &w.sessions.stores
	if !s.several {
		return
	}
	w.after(time.Duration(s.rng.Int64N(int64(100*w.cfg.tick))), func() {
		if w.closing {
			return
		}
		group := w.sessions.groups[s.rng.IntN(len(w.sessions.groups))]
		switch l := s.layouts[group]; {
		case l.writes < l.seals:
			if w.allSeal(group, l.seals) || mutant.On(mutant.StoreJoinsAtOnce) {
				w.trace("writes in %q go into %d stores", group, l.seals)
				s.layouts[group] = layout{l.seals, l.seals}
			}
		case l.seals < storesMax && !w.quiet:
			w.trace("store %d of %q is to be sealed", l.seals, group)
			s.fences[group] = append(s.fences[group], isotone.Timestamp{})
			s.layouts[group] = layout{l.seals + 1, l.writes}
		}
		w.runStores()
	})
}

// allSeal reports whether each process that writes in a group seals so many stores.
func (w *world) allSeal(group string, stores int) bool {
	for _, u := range w.sessions.users {
		if !u.dead && u.layouts[group].seals < stores {
			return false
		}
	}
	return true
}

// isBehind reports whether a process is to begin anew, as a group has other stores than it knows.
func (w *world) isBehind(u *sessionUser) bool {
	for _, g := range u.writes {
		if u.layouts[g.name] != w.sessions.stores.layouts[g.name] {
			return true
		}
	}
	return false
}

// startProcess gives a user the stores that there are now.
func (w *world) startProcess(u *sessionUser) {
	u.leaving, u.layouts = false, maps.Clone(w.sessions.stores.layouts)
}
