package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

func at(time uint64) isotone.Timestamp { return isotone.Timestamp{Time: time} }

// TestClock_ContainsTheClusterClock, which it reads from the nodes over and over.
func TestClock_ContainsTheClusterClock(t *testing.T) {
	f := startCluster(t, 3)
	k := clock(t, f.dial(client.Options{}), client.ClockOptions{})
	read := func() (now uint64) {
		f.change(func() { now = f.clock.read() })
		return now
	}
	for k.Stats().Readings < 6 {
		before := read()
		got, err := k.Now()
		if after := read(); err == nil && (got.Earliest > after || got.Latest < before || got.Width() < 0) {
			t.Fatalf("%+v: between %d and %d", got, before, after)
		} else if err != nil && !errors.Is(err, isotone.ErrNoLeader) {
			t.Fatal(err)
		}
		// After may come to be true of what has just been read, so the clock is read again.
		for _, ahead := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond} {
			ts := read() + uint64(ahead)
			if k.After(at(ts)) && read() <= ts {
				t.Fatalf("After(%d) at %d", ts, read())
			}
			soon := before + uint64(ahead)
			if from := read(); k.Before(at(soon)) && from >= soon {
				t.Fatalf("Before(%d) at %d", soon, from)
			}
		}
		// It cannot tell while a busy machine keeps it from asking the nodes.
		await.Until(t, "what has passed is before now", func() bool { return k.After(at(before - uint64(time.Second))) })
		time.Sleep(time.Millisecond)
	}
	await.Until(t, "a good estimate", func() bool {
		s := k.Stats()
		return s.Err == nil && k.Before(at(read()+uint64(time.Second))) && s.Width > 0 && s.Left > 0 && s.Left <= limitLength &&
			s.Age >= 0 && s.Age < limitLength && s.Term == 1 && s.RoundTrip > 0 && strings.Contains(strings.Join(f.addrs(), " "), s.Node)
	})
}

// TestClock_IsGoodUpToTheLimit, and asks at once when it is not.
func TestClock_IsGoodUpToTheLimit(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	k, h := moved(t, f)
	synced(t, k)
	got, err := k.Now()
	if err != nil || got.Earliest != 1e18 || got.Latest != 1e18+1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if s := k.Stats(); s.Left != limitLength-1 || s.Width != 1 {
		t.Errorf("%+v", s)
	}
	f.lead(-1)
	await.Until(t, "a refusal", func() bool { return k.Stats().Failures > 0 })
	h.move(99 * time.Millisecond)
	ts, err := k.Timestamp(t.Context())
	if _, later := k.Now(); err != nil || later != nil || ts.Time != 1e18+99_099_001 || ts.Index < 1<<63 {
		t.Errorf("%v, %v; %v", ts, err, later)
	}
	h.move(time.Millisecond)
	if got, err := k.Now(); !errors.Is(err, isotone.ErrNoLeader) || got != (isotone.Interval{}) || !errors.Is(k.Stats().Err, isotone.ErrNoLeader) {
		t.Errorf("after the limit: %+v, %v", got, err)
	}
	if !k.After(ts) || !k.After(at(1e18+99_899_999)) || k.After(at(1e18+99_900_000)) || k.Before(at(2e18)) {
		t.Error("After and Before after the limit")
	}
	h.move(time.Hour)
	if k.After(at(1e18 + 100e6)) {
		t.Error("the lower bound passes the limit")
	}
	await.Expired(t, func(ctx context.Context) error { _, err := k.Timestamp(ctx); return err }, func(err error) bool {
		return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), f.nodes[0].addr+": no_leader")
	})
	f.lead(0)
	if _, err := k.Timestamp(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	// After a pause of the process, the call itself has a node asked.
	await.Until(t, "calm", func() bool { _, err := k.Now(); return err == nil })
	f.change(func() { f.clock.length = 10 * time.Second })
	soonest := time.Hour // of several pauses: a busy machine makes some calls late
	for range 5 {
		synced(t, k)
		h.move(time.Minute)
		begin := time.Now()
		if _, err := k.Timestamp(within(t, 10*time.Second)); err != nil {
			t.Fatalf("after a pause: %v", err)
		}
		soonest = min(soonest, time.Since(begin))
	}
	if soonest > 150*time.Millisecond {
		t.Errorf("after a pause a call takes %v, and the next regular question is after 250 ms", soonest)
	}
}

// TestClock_UsesOnlyAnswersToItsQuestions: not those to others, nor late nor doubled ones.
func TestClock_UsesOnlyAnswersToItsQuestions(t *testing.T) {
	f := startCluster(t, 1)
	h := &hands{}
	f.follow(h, 1)
	var asked atomic.Int64
	var late atomic.Pointer[[]byte]
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] != "INTERVAL" {
			return nil, false
		}
		asked.Add(1)
		right := f.answer(0, args)
		f.change(func() {
			foreign := f.clock.reading(0)
			foreign.Earliest += uint64(time.Hour)
			foreign.Latest, foreign.Limit = foreign.Earliest, foreign.Limit+uint64(time.Hour)
			b := answerReading(foreign, nonceOf(args)+1)
			kept := right
			if old := late.Swap(&kept); old != nil {
				b = append(b, *old...)
			}
			right = slices.Concat(b, right, right)
		})
		return right, true
	})
	k := clock(t, f.dial(client.Options{}), client.WithSteady(h.now))
	for range 10 {
		h.move(10 * time.Millisecond)
		synced(t, k)
		got, err := k.Now()
		var shown uint64
		f.change(func() { shown = f.clock.read() })
		if err != nil || got.Earliest > shown || got.Latest < shown || got.Width() > 100*time.Microsecond {
			t.Fatalf("%+v, %v: shows %d", got, err, shown)
		}
	}
	if s := k.Stats(); s.Failures > 0 {
		t.Errorf("%d of %d questions failed", s.Failures, asked.Load())
	}
}

// TestClock_LeavesANodeWithOtherAnswers than the right ones.
func TestClock_LeavesANodeWithOtherAnswers(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]func(f *cluster, args []string) []byte{
		"other nonces": func(f *cluster, args []string) (b []byte) {
			for i := range uint64(40) {
				b = append(b, answerReading(f.clock.reading(1), nonceOf(args)+1+i)...)
			}
			return b
		},
		"short":     func(*cluster, []string) []byte { return []byte("$3\r\nabc\r\n") },
		"null":      func(*cluster, []string) []byte { return []byte("$-1\r\n") },
		"a number":  func(*cluster, []string) []byte { return []byte(":5\r\n") },
		"a refusal": func(*cluster, []string) []byte { return []byte("-ERR unknown command\r\n") },
		"the end":   func(*cluster, []string) []byte { panic(hangUp{}) },
		"out of range": func(f *cluster, args []string) []byte {
			r := f.clock.reading(1)
			r.Term = 0
			return answerReading(r, nonceOf(args))
		},
		"no cluster": func(f *cluster, args []string) []byte {
			r := f.clock.reading(1)
			r.Cluster = 0
			return answerReading(r, nonceOf(args))
		},
		"a limit of the past": func(f *cluster, args []string) []byte {
			r := f.clock.reading(1)
			r.Limit = r.Latest - 1
			return answerReading(r, nonceOf(args))
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := startCluster(t, 2)
			f.change(func() { f.clock.widths = []uint64{50e6} })
			k := clock(t, f.dial(client.Options{}), client.ClockOptions{})
			await.Until(t, "the second node is preferred, or the only one", func() bool { return k.Stats().Node == f.nodes[1].addr || k.Stats().Readings > 20 })
			var bad atomic.Int64
			f.nodes[1].replies(func(args []string) ([]byte, bool) {
				if args[0] != "INTERVAL" {
					return nil, false
				}
				bad.Add(1)
				f.mu.Lock()
				defer f.mu.Unlock()
				return answer(f, args), true
			})
			f.nodes[0].hangUp(false)
			for range 3 {
				synced(t, k)
			}
			await.Until(t, "an estimate", func() bool { s := k.Stats(); return s.Err == nil && s.Node == f.nodes[0].addr })
		})
	}
}

// TestClock_UsesNoOtherCluster, neither for its first reading nor later (I10).
func TestClock_UsesNoOtherCluster(t *testing.T) {
	f := startCluster(t, 1)
	var rejected atomic.Int64
	c := f.dial(client.Options{Hooks: client.Hooks{Rejected: func(_ string, err error) {
		if errors.Is(err, isotone.ErrWrongCluster) {
			rejected.Add(1)
		}
	}}})
	f.change(func() { f.clock.id = fakeID + 1 })
	await.Expired(t, func(ctx context.Context) error {
		k, err := c.NewClock(ctx, client.ClockOptions{})
		if k != nil {
			t.Error("it has a clock")
		}
		return err
	}, func(err error) bool { return errors.Is(err, isotone.ErrWrongCluster) && rejected.Load() > 0 })
	f.change(func() { f.clock.id = 0 })
	k := clock(t, c, client.ClockOptions{})
	f.change(func() { f.clock.id = fakeID + 1 })
	before := rejected.Load()
	await.Until(t, "it is rejected", func() bool { return rejected.Load() > before })
	await.Until(t, "the last reading ends", func() bool { _, err := k.Now(); return errors.Is(err, isotone.ErrNoLeader) })
}

// TestClock_ALaterTermReplacesAll, and an earlier one is ignored, as long as it may tell that.
func TestClock_ALaterTermReplacesAll(t *testing.T) {
	f := startCluster(t, 1)
	k, h := moved(t, f)
	f.change(func() {
		f.clock.term, f.clock.now = 2, func() uint64 { return 3e18 + uint64(h.at.Load()) - 1e15 }
	})
	await.Until(t, "the next term", func() bool { return k.Stats().Term == 2 })
	if got, err := k.Now(); err != nil || got.Earliest != 3e18 || got.Latest != 3e18+1 {
		t.Errorf("%+v, %v", got, err)
	}
	f.change(func() { f.clock.term, f.clock.now = 1, func() uint64 { return 4e18 } })
	synced(t, k)
	if got, err := k.Now(); err != nil || got.Earliest != 3e18 || k.Stats().Term != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	h.move(limitLength)
	if got, err := k.Now(); !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestClock_AWrongRateIsFound, and believed again after 10 s of agreement.
func TestClock_AWrongRateIsFound(t *testing.T) {
	f := startCluster(t, 1)
	k, h := moved(t, f)
	for range 5 {
		h.move(20 * time.Millisecond)
		synced(t, k)
	}
	if _, err := k.Now(); err != nil {
		t.Fatal(err)
	}
	f.follow(h, 1.05)
	for range 2 {
		h.move(20 * time.Millisecond)
		synced(t, k)
	}
	_, err := k.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, late := k.Timestamp(ctx)
	if !errors.Is(err, isotone.ErrClock) || !errors.Is(late, isotone.ErrClock) || !errors.Is(late, context.DeadlineExceeded) || k.After(at(1)) {
		t.Errorf("5 %% too fast: %v, %v", err, late)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := k.Timestamp(within(t, 10*time.Second))
		waiting <- err
	}()
	f.follow(h, 1)
	synced(t, k)
	for passed := time.Duration(0); passed < 9900*time.Millisecond; passed += 1100 * time.Millisecond {
		if _, err := k.Now(); !errors.Is(err, isotone.ErrClock) {
			t.Fatalf("after %v: %v", passed, err)
		}
		h.move(1100 * time.Millisecond)
		synced(t, k)
	}
	h.move(200 * time.Millisecond)
	if err := receive(t, waiting); err != nil {
		t.Error(err)
	}
	await.Until(t, "a good estimate", func() bool { _, err := k.Now(); return err == nil })
}
