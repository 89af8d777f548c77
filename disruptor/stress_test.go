package disruptor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// stress sends total elements through a ring from several goroutines, and every
// consumer checks every element. At critical points, goroutines yield one time in
// jitter.
type stress struct {
	writers  int // 0: a Producer
	capacity int
	total    int
	batchMax int
	after    [][]int // for each consumer, those it comes after
	wait     Wait
	jitter   int
}

// element records its writer, its number among those of the writer, and which consumers
// have seen it.
type element struct {
	writer, count int
	seen          [4]uint64
}

func (s stress) run(t *testing.T) {
	r := newRing[element](t, s.capacity)
	ctx := patient(t)
	var consumers []*Consumer
	var all []<-chan struct{}
	for _, after := range s.after {
		var before []*Consumer
		for _, j := range after {
			before = append(before, consumers[j])
		}
		c := r.Consumer(before...)
		c.Wait = s.wait
		consumers = append(consumers, c)
	}
	w := writerOf(r, s.writers > 0)
	for i, c := range consumers {
		all = append(all, start(func() { s.read(t, ctx, r, c, i) }))
	}
	var writers sync.WaitGroup
	goroutines := max(s.writers, 1)
	for id := range goroutines {
		share := s.total / goroutines
		if id == 0 {
			share += s.total % goroutines
		}
		writers.Go(func() { s.write(t, ctx, r, w, id, share) })
	}
	writers.Wait()
	w.Close()
	for _, done := range all {
		wait(t, "consumers end", done)
	}
	if flags := atomic.LoadUint64(&r.core.published.flags); flags >= marked {
		t.Errorf("flags are %#x at the end", flags)
	}
}

func (s stress) write(t *testing.T, ctx context.Context, r *Ring[element], w writer, id, share int) {
	rng := rand.New(rand.NewPCG(uint64(id), 1))
	for count := 0; count < share; {
		n := min(1+rng.IntN(s.batchMax), share-count)
		lo, hi, err := w.Reserve(ctx, n)
		if err != nil {
			t.Error(err)
			return
		}
		s.pause(rng)
		for seq := lo; seq < hi; seq++ {
			e := r.At(seq)
			e.writer, e.count = id, count
			count++
		}
		s.pause(rng)
		if cut := lo + uint64(rng.IntN(n)); cut > lo { // in two parts
			w.Commit(lo, cut)
			s.pause(rng)
			lo = cut
		}
		w.Commit(lo, hi)
	}
}

func (s stress) read(t *testing.T, ctx context.Context, r *Ring[element], c *Consumer, id int) {
	rng := rand.New(rand.NewPCG(uint64(id), 2))
	var counts [64]int
	var want uint64
	for {
		lo, hi, err := c.Next(ctx)
		if err == ErrClosed {
			break
		}
		if err != nil || lo != want || hi <= lo {
			t.Errorf("consumer %d: Next at %d: %d, %d, %v", id, want, lo, hi, err)
			return
		}
		s.pause(rng)
		for seq := lo; seq < hi; seq++ {
			e := r.At(seq)
			if e.count != counts[e.writer] {
				t.Errorf("consumer %d: element %d is number %d of writer %d, want %d", id, seq, e.count, e.writer, counts[e.writer])
				return
			}
			counts[e.writer]++
			for _, before := range s.after[id] {
				if e.seen[before] != seq+1 {
					t.Errorf("consumer %d got element %d before consumer %d released it", id, seq, before)
					return
				}
			}
			e.seen[id] = seq + 1
			if rng.IntN(8) == 0 {
				c.Release(seq + 1)
			}
		}
		s.pause(rng)
		c.Release(hi)
		want = hi
	}
	if want != uint64(s.total) {
		t.Errorf("consumer %d: %d elements, want %d", id, want, s.total)
	}
}

func (s stress) pause(rng *rand.Rand) {
	if s.jitter > 0 && rng.IntN(s.jitter) == 0 {
		runtime.Gosched()
	}
}

var topologies = map[string][][]int{
	"one":     {nil},
	"three":   {nil, nil, nil},
	"chain":   {nil, {0}, {1}},
	"diamond": {nil, {0}, {0}, {1, 2}},
	"join":    {nil, nil, {0, 1}},
}

func TestStress_NothingLostOrTwice(t *testing.T) {
	total := 8000
	if testing.Short() {
		total = 2000
	}
	eachProcs(t, func(t *testing.T) {
		for name, after := range topologies {
			for _, writers := range []int{0, 1, 2, 16} {
				for _, capacity := range []int{1, 4, 256} {
					t.Run(fmt.Sprintf("%s/writers=%d/capacity=%d", name, writers, capacity), func(t *testing.T) {
						stress{
							writers: writers, capacity: capacity, total: total / 10 * min(capacity, 10),
							batchMax: min(capacity, 5), after: after, jitter: 4,
						}.run(t)
					})
				}
			}
		}
	})
}

func TestStress_EveryWait(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		for name, wait := range map[string]Wait{
			"spin": Spin, "yield": Yield, "park": Park,
			"at once": func(int, int) bool { return false },
		} {
			t.Run(name, func(t *testing.T) {
				stress{writers: 3, capacity: 64, total: 1000, batchMax: 3, after: topologies["diamond"], wait: wait, jitter: 3}.run(t)
			})
		}
	})
}

// Goroutines that give up while they wait for room lose no reservations, and do not
// affect the places of others in line.
func TestStress_WritersThatGiveUp(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		r := newRing[int](t, 4)
		c := r.Consumer()
		s := r.SharedProducer()
		var sent, received atomic.Int64
		reader := start(func() {
			rng := rand.New(rand.NewPCG(1, 1))
			for {
				lo, hi, err := c.Next(context.Background())
				if err != nil {
					return
				}
				for range rng.IntN(20) {
					runtime.Gosched()
				}
				received.Add(int64(hi - lo))
				c.Release(hi)
			}
		})
		var writers sync.WaitGroup
		for id := range 12 {
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(id), 3))
				for range 300 {
					ctx, cancel := context.WithCancel(context.Background())
					ended := start(func() {
						for range rng.IntN(30) {
							runtime.Gosched()
						}
						cancel()
					})
					lo, hi, err := s.Reserve(ctx, 1+id%4)
					if err == nil {
						sent.Add(int64(hi - lo))
						s.Commit(lo, hi)
					}
					<-ended
				}
			})
		}
		wait(t, "writers end", start(writers.Wait))
		s.Close()
		wait(t, "reader ends", reader)
		if sent.Load() != received.Load() {
			t.Errorf("%d sent, %d received", sent.Load(), received.Load())
		}
	})
}

// Closing at any moment loses no reservation that Reserve has returned.
func TestStress_CloseWhileOthersReserve(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		for round := range 100 {
			r := newRing[int](t, 8)
			c := r.Consumer()
			s := r.SharedProducer()
			var sent, received uint64
			reader := start(func() {
				for {
					lo, hi, err := c.Next(context.Background())
					if err != nil {
						return
					}
					received += hi - lo
					c.Release(hi)
				}
			})
			var writers sync.WaitGroup
			var mu sync.Mutex
			for range 4 {
				writers.Go(func() {
					for {
						lo, hi, err := s.Reserve(context.Background(), 1+round%8)
						if err != nil {
							if err != ErrClosed {
								t.Error(err)
							}
							return
						}
						mu.Lock()
						sent += hi - lo
						mu.Unlock()
						s.Commit(lo, hi)
					}
				})
			}
			for range round {
				runtime.Gosched()
			}
			s.Close()
			wait(t, "writers end", start(writers.Wait))
			wait(t, "reader ends", reader)
			if sent != received {
				t.Fatalf("%d sent, %d received", sent, received)
			}
		}
	})
}

// Closing at any moment wakes goroutines that are about to sleep, when no other goroutine
// would.
func TestStress_CloseWhileOthersFallAsleep(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		for round := range 300 {
			r := newRing[int](t, 2)
			c := r.Consumer()
			late := r.Consumer(c)
			s := r.SharedProducer()
			lo, hi, _ := s.Reserve(context.Background(), 2)
			s.Commit(lo, hi)
			_, hi, _ = c.Poll()
			var sleepers sync.WaitGroup
			for range 2 {
				sleepers.Go(func() {
					if _, _, err := s.Reserve(context.Background(), 1); err != ErrClosed {
						t.Errorf("Reserve: %v", err)
					}
				})
			}
			sleepers.Go(func() {
				if _, _, err := c.Next(context.Background()); err != ErrClosed {
					t.Errorf("Next: %v", err)
				}
			})
			for range round % 40 {
				runtime.Gosched()
			}
			s.Close()
			wait(t, "sleepers end", start(sleepers.Wait))
			c.Release(hi)
			if _, hi, err := late.Poll(); hi != 2 || err != nil {
				t.Fatalf("Poll: up to %d, %v", hi, err)
			}
		}
	})
}
