package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/fence"
)

// store is a fence with a list beside it, to which each accepted write appends a word.
type store interface {
	raise(ctx context.Context, token isotone.Timestamp, word string) error
	check(ctx context.Context, stamp isotone.Timestamp, word string) error
	fence.Sealer
	words(ctx context.Context) ([]string, error)
}

// at returns a timestamp.
func at(time uint64) isotone.Timestamp { return isotone.Timestamp{Time: time, Index: 1<<63 + time} }

// testStore runs what all stores have to do; open returns one that is empty.
func testStore(t *testing.T, open func(t *testing.T) store) {
	t.Run("a write of a former holder is refused", func(t *testing.T) { formerHolder(t, open(t)) })
	t.Run("the fence does not sink", func(t *testing.T) { neverSinks(t, open(t)) })
	t.Run("a group is sealed", func(t *testing.T) { sealed(t, open(t)) })
	t.Run("many holders", func(t *testing.T) { manyHolders(t, open(t)) })
	t.Run("many writers", func(t *testing.T) { manyWriters(t, open(t)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails unless err says that a write was below the fence, and where that is.
func refused(t *testing.T, err error, stamp, at isotone.Timestamp) {
	t.Helper()
	var e *fence.Error
	if !errors.Is(err, fence.ErrFenced) || !errors.As(err, &e) || e.Stamp != stamp || e.Fence != at || e.Name == "" {
		t.Fatalf("a write stamped %v under a fence at %v: %v", stamp, at, err)
	}
}

func hasWords(t *testing.T, s store, want string) {
	t.Helper()
	got, err := s.words(t.Context())
	if err != nil || strings.Join(got, " ") != want {
		t.Fatalf("the store has %q, %v; want %q", got, err, want)
	}
}

// formerHolder has a process write that held the lock and was paused before the write.
func formerHolder(t *testing.T, s store) {
	ctx := t.Context()
	must(t, s.raise(ctx, at(1), "a1"))
	must(t, s.raise(ctx, at(2), "b1"))
	refused(t, s.raise(ctx, at(1), "a2"), at(1), at(2))
	must(t, s.raise(ctx, at(2), "b2"))
	must(t, s.raise(ctx, at(10), "c1")) // a digit that is a letter
	refused(t, s.raise(ctx, at(9), "d1"), at(9), at(10))
	must(t, s.raise(ctx, at(10), "c2"))
	hasWords(t, s, "a1 b1 b2 c1 c2")
}

func neverSinks(t *testing.T, s store) {
	ctx := t.Context()
	must(t, s.raise(ctx, isotone.Timestamp{Time: 1 << 60, Index: 1<<53 + 1}, "a")) // a float64 has no such numbers
	refused(t, s.raise(ctx, isotone.Timestamp{Time: 1 << 60, Index: 1 << 53}, "b"), isotone.Timestamp{Time: 1 << 60, Index: 1 << 53}, isotone.Timestamp{Time: 1 << 60, Index: 1<<53 + 1})
	refused(t, s.raise(ctx, isotone.Timestamp{Time: 9, Index: 1<<64 - 1}, "b"), isotone.Timestamp{Time: 9, Index: 1<<64 - 1}, isotone.Timestamp{Time: 1 << 60, Index: 1<<53 + 1})
	must(t, s.Seal(ctx, at(5)))
	refused(t, s.raise(ctx, at(7), "b"), at(7), isotone.Timestamp{Time: 1 << 60, Index: 1<<53 + 1})
	must(t, s.Seal(ctx, isotone.Timestamp{Time: 1 << 61, Index: 1<<64 - 1})) // the next one has another time
	refused(t, s.raise(ctx, isotone.Timestamp{Time: 1 << 61}, "b"), isotone.Timestamp{Time: 1 << 61}, isotone.Timestamp{Time: 1<<61 + 1})
	if err := s.Seal(ctx, isotone.Timestamp{Time: 1<<64 - 1, Index: 1<<64 - 1}); err == nil {
		t.Error("all timestamps are sealed, and the largest is accepted")
	}
	hasWords(t, s, "a")
}

func sealed(t *testing.T, s store) {
	ctx := t.Context()
	if err := s.check(ctx, at(9), "a"); !errors.Is(err, fence.ErrNoFence) {
		t.Fatalf("a write of a group whose fence is not there: %v", err)
	}
	must(t, s.Seal(ctx, at(3)))
	must(t, s.check(ctx, at(9), "a"))
	must(t, s.check(ctx, at(5), "b")) // in any order
	refused(t, s.check(ctx, at(3), "c"), at(3), isotone.Timestamp{Time: at(3).Time, Index: at(3).Index + 1})
	must(t, s.check(ctx, isotone.Timestamp{Time: at(3).Time, Index: at(3).Index + 1}, "d"))
	must(t, s.Seal(ctx, at(5)))
	must(t, s.Seal(ctx, at(4)))
	refused(t, s.check(ctx, at(5), "e"), at(5), isotone.Timestamp{Time: at(5).Time, Index: at(5).Index + 1})
	hasWords(t, s, "a b d")
}

// manyHolders has processes write that all believe to hold the lock: the accepted writes are in the order of the grants.
func manyHolders(t *testing.T, s store) {
	const holders, writes = 6, 25
	var accepted atomic.Int64
	var all sync.WaitGroup
	for h := range holders {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(h)))
			for i := range writes {
				token := uint64(10*i) + rng.Uint64N(40)
				switch err := s.raise(t.Context(), at(token), fmt.Sprint(token)); {
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, fence.ErrFenced):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	words, err := s.words(t.Context())
	must(t, err)
	if int64(len(words)) != accepted.Load() || len(words) == 0 {
		t.Errorf("%d writes were accepted, and %d are there", accepted.Load(), len(words))
	}
	last := uint64(0)
	for _, w := range words {
		token, err := strconv.ParseUint(w, 10, 64)
		must(t, err)
		if token < last {
			t.Errorf("a write under the token %d comes after one under %d", token, last)
		}
		last = token
	}
}

// manyWriters has a group written to while it is sealed: nothing is accepted at or below a stamp that was sealed before the write.
func manyWriters(t *testing.T, s store) {
	const writers, writes = 6, 25
	must(t, s.Seal(t.Context(), at(0)))
	var through atomic.Uint64
	var accepted, late atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(w)))
			for i := range writes {
				known, stamp := through.Load(), 1+uint64(10*i)+rng.Uint64N(20)
				switch err := s.check(t.Context(), at(stamp), fmt.Sprint(stamp)); {
				case err == nil && stamp <= known:
					t.Errorf("a write stamped %d is accepted after %d was sealed", stamp, known)
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, fence.ErrFenced):
					t.Error(err)
				default:
					late.Add(1)
				}
				if w == 0 {
					must(t, s.Seal(t.Context(), at(uint64(10*i))))
					through.Store(uint64(10 * i))
				}
			}
		})
	}
	all.Wait()
	words, err := s.words(t.Context())
	must(t, err)
	if int64(len(words)) != accepted.Load() || accepted.Load() == 0 {
		t.Errorf("%d writes were accepted, %d are there, and %d were too late", accepted.Load(), len(words), late.Load())
	}
}
