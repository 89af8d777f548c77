package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// patience is how long a call of a store gets whose syncs are held or fail. It decides how long the tests
// take, and not what they find.
const patience = 500 * time.Millisecond

// Faults are a store, with no rows and zero points, and means to have it fail in the ways that it claims to
// survive.
type Faults struct {
	Store txn.Store
	// Hold has nothing become durable any more, until FailOver: an fsync that does not return, or a
	// replica that does not answer. Nil if a test cannot bring that about.
	Hold func()
	// Break has all attempts fail from now on to make a write durable, until FailOver: an fsync with an
	// error. Nil if a test cannot bring that about, or the store does not claim to survive it.
	Break func()
	// FailOver loses as much as the store may lose, for instance by a crash, or by taking a replica into
	// service. It returns the store as clients reach it after that. It is called once.
	FailOver func() txn.Store
}

// RunDurable tests that everything survives that a store has answered: writes and raises that have succeeded,
// and also what reads, scans and points have returned, since clients act on what they read. Each subtest
// calls newStore once.
func RunDurable(t *testing.T, newStore func(t *testing.T) Faults) {
	for _, check := range durableChecks {
		t.Run(check.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			faults := newStore(t)
			if err := check.run(ctx, &faults); errors.Is(err, errImpossible) {
				t.Skip(err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

var durableChecks = []struct {
	name string
	run  func(context.Context, *Faults) error
}{
	{"Answered_Survives", func(ctx context.Context, f *Faults) error { return survives(ctx, f, func() {}) }},
	{"ShownWhileSyncsAreHeld_Survives", func(ctx context.Context, f *Faults) error { return survives(ctx, f, f.Hold) }},
	{"ShownAfterAFailedSync_Survives", func(ctx context.Context, f *Faults) error { return survives(ctx, f, f.Break) }},
}

var errImpossible = errors.New("the test of this store cannot bring that about")

// sights are what calls have returned.
type sights struct {
	mu     sync.Mutex
	rows   []sight
	points []isotone.Timestamp64
}

// sight is a row as it was before or after the last write of it.
type sight struct {
	how, key string
	changed  bool
}

const (
	revisionBefore = 7
	revisionAfter  = 8
	pointBefore    = 2
	pointAfter     = 3
)

// survives writes, has the store fail, writes again, and reads what the store shows. All that was answered
// must be there after a failover.
func survives(ctx context.Context, f *Faults, fail func()) error {
	if fail == nil {
		return errImpossible
	}
	for _, w := range lastWrites {
		if w.before.Next == 0 {
			continue
		}
		if done, err := f.Store.Write(ctx, []byte(w.key), w.before); !done || err != nil {
			return fmt.Errorf("the first write of %q: %v, %w", w.key, done, err)
		}
	}
	if err := f.Store.Raise(ctx, txn.Points{Safe: pointBefore}); err != nil {
		return fmt.Errorf("the first raise: %w", err)
	}
	fail()
	var seen sights
	seen.write(ctx, f.Store)
	// Twice: the first read may wait, be given up, and leave the store so that the second does not wait.
	seen.look(ctx, f.Store)
	seen.look(ctx, f.Store)
	return seen.compare(ctx, f.FailOver())
}

// lastWrites are a write that adds, one that removes, one of a new row, and one of a lock.
var lastWrites = []struct {
	key           string
	before, after txn.Change
}{
	{"add", change(0, revisionBefore, 1), change(revisionBefore, revisionAfter, 2)},
	{"remove", change(0, revisionBefore, 1), txn.Change{If: revisionBefore, Next: revisionAfter, DropVersions: 9}},
	{"new", txn.Change{}, change(0, revisionAfter, 1)},
	{"lock", change(0, revisionBefore, 1), txn.Change{If: revisionBefore, Next: revisionAfter, Lock: []byte("lock")}},
}

func change(compare, next uint64, commit isotone.Timestamp64) txn.Change {
	return txn.Change{If: compare, Next: next, Put: txn.Version{Commit: commit, Value: []byte("value")}}
}

// isChanged reports whether a row is as the last write of it leaves it, by its revision.
func isChanged(key string, revision uint64) (bool, error) {
	for _, w := range lastWrites {
		before, after := w.before.Next, w.after.Next
		if w.key == "remove" {
			after = 0
		}
		switch {
		case w.key != key:
		case revision == after:
			return true, nil
		case revision == before:
			return false, nil
		}
	}
	return false, fmt.Errorf("row %q has revision %d, which it never got", key, revision)
}

func (s *sights) add(how, key string, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, sight{how, key, changed})
}

func (s *sights) raised(to isotone.Timestamp64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points = append(s.points, to)
}

// write writes everything at once, and notes which of it was answered.
func (s *sights) write(ctx context.Context, store txn.Store) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range lastWrites {
		wg.Go(func() {
			if done, err := store.Write(ctx, []byte(w.key), w.after); done && err == nil {
				s.add("Write", w.key, true)
			}
		})
	}
	wg.Go(func() {
		if err := store.Raise(ctx, txn.Points{Safe: pointAfter}); err == nil {
			s.raised(pointAfter)
		}
	})
	wg.Wait()
}

// look reads everything in all ways at once, and notes what was answered. A read may also fail.
func (s *sights) look(ctx context.Context, store txn.Store) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range lastWrites {
		wg.Go(func() {
			row, points, err := store.Read(ctx, []byte(w.key), math.MaxInt64, 0)
			if err != nil {
				return
			}
			s.raised(points.Safe)
			if changed, err := isChanged(w.key, row.Revision); err == nil {
				s.add("Read", w.key, changed)
			}
		})
	}
	wg.Go(func() {
		page, err := store.Scan(ctx, txn.Range{Limit: 10}, math.MaxInt64)
		if err != nil {
			return
		}
		s.raised(page.Points.Safe)
		revisions := map[string]uint64{}
		for _, e := range page.Entries {
			revisions[string(e.Key)] = e.Row.Revision
		}
		for _, w := range lastWrites {
			if changed, err := isChanged(w.key, revisions[w.key]); err == nil {
				s.add("Scan", w.key, changed)
			}
		}
	})
	wg.Go(func() {
		if points, err := store.Points(ctx); err == nil {
			s.raised(points.Safe)
		}
	})
	wg.Wait()
}

// compare returns an error if a store lacks what was seen.
func (s *sights) compare(ctx context.Context, store txn.Store) error {
	for _, seen := range s.rows {
		row, _, err := store.Read(ctx, []byte(seen.key), math.MaxInt64, 0)
		if err != nil {
			return fmt.Errorf("after the failover: %w", err)
		}
		changed, err := isChanged(seen.key, row.Revision)
		if err != nil {
			return fmt.Errorf("after the failover: %w", err)
		}
		if seen.changed && !changed {
			return fmt.Errorf("%s has answered with the last write of row %q, and a failover has lost that", seen.how, seen.key)
		}
	}
	points, err := store.Points(ctx)
	if err != nil {
		return fmt.Errorf("after the failover: %w", err)
	}
	for _, seen := range s.points {
		if points.Safe < seen {
			return fmt.Errorf("the safe point %d was answered, and is %d after a failover", seen, points.Safe)
		}
	}
	return nil
}
