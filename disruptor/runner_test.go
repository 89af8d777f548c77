package disruptor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// consume is a Handler.
type consume func(lower, upper int64)

func (c consume) Consume(lower, upper int64) { c(lower, upper) }

// TestRunner_GroupsConsumeInOrder runs random groups behind random writers. Every handler writes to
// a field of its own, which later groups read without locks: the race detector
// watches the order as well.
func TestRunner_GroupsConsumeInOrder(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		eachProcs(t, func(t *testing.T) {
			for seed := range uint64(30) {
				p := newPipeline(t, shared, seed)
				if p.run(t); t.Failed() {
					t.Fatalf("seed %d: groups %v, capacity %d", seed, p.sizes, p.capacity)
				}
			}
		})
	})
}

// pipeline is a runner with groups of the given sizes, and what its handlers have seen.
type pipeline struct {
	shared          bool
	capacity, total int
	sizes           []int
	rng             *rand.Rand
	ring            *Ring[stamped]
	runner          *Runner
	next            []int64 // by handler: the first number that it has not consumed
}

// stamped is an element with the number that each handler has left in it, plus 1.
type stamped struct {
	seq  uint64
	seen [9]uint64
}

func newPipeline(t *testing.T, shared bool, seed uint64) *pipeline {
	rng := rand.New(rand.NewPCG(seed, 3))
	p := &pipeline{shared: shared, capacity: 1 << rng.IntN(6), total: 400, rng: rng}
	p.ring = newRing[stamped](t, p.capacity)
	var groups []Group
	id, before := 0, 0 // of the first handler of this group, and of the one before
	for range 1 + rng.IntN(3) {
		size := 1 + rng.IntN(3)
		var group Group
		for range size {
			group = append(group, p.handler(t, len(p.next), before, id))
			p.next = append(p.next, 0)
		}
		before, id = id, id+size
		groups, p.sizes = append(groups, group), append(p.sizes, size)
	}
	var err error
	if p.runner, err = p.ring.Runner(groups...); err != nil {
		t.Fatal(err)
	}
	return p
}

// handler checks that it gets every number in turn, as written, and after the handlers
// from before up to first, the group before its own.
func (p *pipeline) handler(t *testing.T, id, before, first int) Handler {
	return consume(func(lower, upper int64) {
		if lower != p.next[id] || upper < lower || upper-lower >= int64(p.capacity) {
			t.Errorf("handler %d: Consume(%d, %d), want from %d", id, lower, upper, p.next[id])
		}
		p.next[id] = upper + 1
		for seq := lower; seq <= upper; seq++ {
			e := p.ring.At(uint64(seq))
			if e.seq != uint64(seq) {
				t.Errorf("handler %d: element %d is %d", id, seq, e.seq)
			}
			for other := before; other < first; other++ {
				if e.seen[other] != uint64(seq)+1 {
					t.Errorf("handler %d got element %d before handler %d had consumed it", id, seq, other)
				}
			}
			jitter()
			e.seen[id] = uint64(seq) + 1
		}
	})
}

func (p *pipeline) run(t *testing.T) {
	w := writerOf(p.ring, p.shared)
	if err := p.runner.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := patient(t)
	for left := p.total; left > 0; {
		n := min(1+p.rng.IntN(p.capacity), left)
		lo, hi, err := w.Reserve(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		for seq := lo; seq < hi; seq++ {
			p.ring.At(seq).seq = seq
		}
		w.Commit(lo, hi)
		left -= n
	}
	if err := p.runner.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for id, next := range p.next {
		if next != int64(p.total) {
			t.Errorf("handler %d consumed %d elements before Stop returned, want %d", id, next, p.total)
		}
	}
}

// TestRunner_StopDrains stops runners with random rests: all handlers are held in Consume, so
// that Stop begins before any of them is done.
func TestRunner_StopDrains(t *testing.T) {
	eachWriter(t, func(t *testing.T, shared bool) {
		rapid.Check(t, func(rt *rapid.T) {
			sizes := rapid.SliceOfN(rapid.IntRange(1, 3), 1, 3).Draw(rt, "groups")
			total := rapid.IntRange(1, 16).Draw(rt, "committed")
			gate := make(chan struct{})
			var counts []*int
			var groups []Group
			for _, size := range sizes {
				var group Group
				for range size {
					count := new(int)
					counts = append(counts, count)
					group = append(group, consume(func(lower, upper int64) { <-gate; *count += int(upper - lower + 1) }))
				}
				groups = append(groups, group)
			}
			ring := newRing[int](t, 16)
			runner, err := ring.Runner(groups...)
			if err != nil {
				rt.Fatal(err)
			}
			w := writerOf(ring, shared)
			if err := runner.Start(); err != nil {
				rt.Fatal(err)
			}
			for range total {
				lo, hi, err := w.Reserve(t.Context(), 1)
				if err != nil {
					rt.Fatal(err)
				}
				w.Commit(lo, hi)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if err := runner.Stop(over); err != context.Canceled {
				rt.Fatalf("Stop while handlers work: %v", err)
			}
			if _, _, err := w.TryReserve(1); err != ErrClosed {
				rt.Fatalf("TryReserve after Stop: %v", err)
			}
			close(gate)
			if err := runner.Stop(patient(t)); err != nil {
				rt.Fatal(err)
			}
			for i, count := range counts {
				if *count != total {
					rt.Fatalf("handler %d consumed %d of %d", i, *count, total)
				}
			}
			if err := runner.Stop(over); err != nil {
				rt.Fatalf("Stop when all have ended: %v", err)
			}
		})
	})
}

// TestRunner_StopOfSharedProducerIsSafeAnywhere stops while goroutines write: what one of them has
// committed is consumed, and the others get ErrClosed.
func TestRunner_StopOfSharedProducerIsSafeAnywhere(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		ring := newRing[int](t, 8)
		var consumed [2]int64
		one := make(chan struct{})
		runner, err := ring.Runner(
			Group{consume(func(lower, upper int64) { consumed[0] += upper - lower + 1 })},
			Group{consume(func(lower, upper int64) {
				if consumed[1] += upper - lower + 1; lower == 0 {
					close(one)
				}
			})})
		if err != nil {
			t.Fatal(err)
		}
		w := ring.SharedProducer()
		if err := runner.Start(); err != nil {
			t.Fatal(err)
		}
		ctx := patient(t)
		var committed [3]int64
		var writers sync.WaitGroup
		for i := range committed {
			writers.Go(func() {
				for {
					lo, hi, err := w.Reserve(ctx, 1+i)
					if err != nil {
						if err != ErrClosed {
							t.Error(err)
						}
						return
					}
					w.Commit(lo, hi)
					committed[i] += int64(hi - lo)
				}
			})
		}
		wait(t, "the first element is consumed", one)
		if err := runner.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		got := consumed
		writers.Wait()
		if want := committed[0] + committed[1] + committed[2]; got != [2]int64{want, want} {
			t.Fatalf("consumed %v of %d", got, want)
		}
	})
}

// TestRunner_EachHandlerHasAGoroutine lets all handlers of a group wait for each other.
func TestRunner_EachHandlerHasAGoroutine(t *testing.T) {
	ring := newRing[int](t, 4)
	var together sync.WaitGroup
	together.Add(3)
	meet := consume(func(int64, int64) { together.Done(); together.Wait() })
	runner, err := ring.Runner(Group{meet, meet, meet})
	if err != nil {
		t.Fatal(err)
	}
	runner.Wait = Yield
	p := ring.Producer()
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	lo, hi, _ := p.Reserve(t.Context(), 1)
	p.Commit(lo, hi)
	if err := runner.Stop(patient(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRunner_UsesItsWait(t *testing.T) {
	ring := newRing[int](t, 4)
	none := consume(func(int64, int64) {})
	runner, err := ring.Runner(Group{none}, Group{none})
	if err != nil {
		t.Fatal(err)
	}
	var waits atomic.Int64
	runner.Wait = func(int, int) bool { waits.Add(1); return false } // and park
	ring.Producer()
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both handlers wait", func() bool { return waits.Load() >= 2 })
	if err := runner.Stop(patient(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRunner_WrongSetUp(t *testing.T) {
	none := consume(func(int64, int64) {})
	for name, groups := range map[string][]Group{
		"no group":    nil,
		"empty group": {{none}, {}},
		"nil group":   {nil},
		"nil handler": {{none}, {none, nil}},
	} {
		ring := newRing[int](t, 4)
		if runner, err := ring.Runner(groups...); !errors.Is(err, ErrHandlers) || runner != nil {
			t.Errorf("%s: %v, %v", name, runner, err)
		}
		if n := len(ring.core.consumers); n != 0 {
			t.Errorf("%s: %d consumers were added", name, n)
		}
	}
	ring := newRing[int](t, 4)
	runner, err := ring.Runner(Group{none})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(); !errors.Is(err, ErrProducer) {
		t.Errorf("Start without a producer: %v", err)
	}
	w := ring.SharedProducer()
	if _, err := ring.Runner(Group{none}); !errors.Is(err, ErrProducer) {
		t.Errorf("Runner after the producer: %v", err)
	}
	if err := runner.Stop(t.Context()); err != ErrNotStarted {
		t.Errorf("Stop before Start: %v", err)
	}
	if _, _, err := w.TryReserve(1); err != nil {
		t.Errorf("TryReserve after a Stop that failed: %v", err)
	}
	w.Commit(0, 1)
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(); err != ErrStarted {
		t.Errorf("second Start: %v", err)
	}
	if err := runner.Stop(patient(t)); err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(); err != ErrStarted {
		t.Errorf("Start after Stop: %v", err)
	}
}

// TestRunner_APanicEndsTheProgram runs itself in a process of its own.
func TestRunner_APanicEndsTheProgram(t *testing.T) {
	const variable = "DISRUPTOR_TEST_PANIC"
	if os.Getenv(variable) != "" {
		panicInHandler(t)
		return
	}
	command := exec.CommandContext(patient(t), os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), variable+"=1")
	out, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "panic: element 0") {
		t.Fatalf("%v:\n%s", err, out)
	}
}

func panicInHandler(t *testing.T) {
	ring := newRing[int](t, 4)
	runner, err := ring.Runner(Group{consume(func(lower, _ int64) { panic(fmt.Sprint("element ", lower)) })})
	if err != nil {
		t.Fatal(err)
	}
	p := ring.Producer()
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	lo, hi, _ := p.Reserve(t.Context(), 1)
	p.Commit(lo, hi)
	t.Fatal(runner.Stop(patient(t)))
}

func TestRunner_AHandlerThatRecoversHasConsumed(t *testing.T) {
	ring := newRing[int](t, 4)
	var after int64
	runner, err := ring.Runner(
		Group{consume(func(int64, int64) {
			defer func() { _ = recover() }()
			panic("of one range")
		})},
		Group{consume(func(_, upper int64) { after = upper + 1 })})
	if err != nil {
		t.Fatal(err)
	}
	p := ring.Producer()
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		lo, hi, err := p.Reserve(patient(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Commit(lo, hi)
	}
	if err := runner.Stop(patient(t)); err != nil || after != 10 {
		t.Fatalf("%v; the second group consumed %d of 10", err, after)
	}
}
