package snowflake_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/snowflake"
)

const (
	// billionWorkers share the ids of TestBillion among them.
	billionWorkers = 256
	// generatorAsks is how often a generator is asked for ids until another comes.
	generatorAsks = 40
)

// A billion ids (SNOWFLAKE_BILLION=1; some millions otherwise) of many workers, whose
// clocks jump both ways, and whose generators are replaced all the time, each with the
// lease that the one before gave back. No id comes twice: those of a worker strictly
// increase, over all its generators, and those of different workers have different
// worker bits. That needs the last id of each worker and no other memory.
func TestBillion_IDsOfManyWorkersNeverRepeat(t *testing.T) {
	total := 4_000_000
	if os.Getenv("SNOWFLAKE_BILLION") != "" {
		total = 1_000_000_000
	} else if testing.Short() {
		total = 1_000_000
	}
	workers := make(chan int, billionWorkers)
	for worker := range billionWorkers {
		workers <- worker * 4
	}
	close(workers)
	var mu sync.Mutex
	var sum history
	var group sync.WaitGroup
	begin := time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for worker := range workers {
				h := newHistory(worker)
				h.run(t, total/billionWorkers)
				mu.Lock()
				sum.ids += h.ids
				sum.generators += h.generators
				sum.back += h.back
				sum.refused += h.refused
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if sum.ids < total/billionWorkers*billionWorkers || sum.back == 0 || sum.refused == 0 || sum.generators <= billionWorkers {
		t.Errorf("too little happened: %+v", sum)
	}
	took := time.Since(begin)
	t.Logf("%d ids of %d workers and %d generators in %v, %.1f million/s; %d times the clock went back, %d refusals",
		sum.ids, billionWorkers, sum.generators, took.Round(time.Millisecond), float64(sum.ids)/1e6/took.Seconds(), sum.back, sum.refused)
}

// history is what one worker did.
type history struct {
	worker int
	random *rand.Rand
	clock  manual
	lease  snowflake.Lease
	last   snowflake.ID

	ids, generators, back, refused int
}

func newHistory(worker int) *history {
	return &history{
		worker: worker,
		random: rand.New(rand.NewPCG(uint64(worker), 1)),
		clock:  manual{epoch},
		lease:  snowflake.Lease{Start: epoch, End: epoch + 10_000},
		last:   -1,
	}
}

// run makes and checks total ids.
func (h *history) run(t *testing.T, total int) {
	dst := make([]snowflake.ID, 512)
	for h.ids < total && !t.Failed() {
		g := newGenerator(t, h.worker, snowflake.Options{Now: h.clock.now, Lease: h.lease, AheadMax: 20 * time.Millisecond})
		h.generators++
		for asked := 0; asked < generatorAsks && h.ids < total; asked++ {
			h.jump()
			if !h.ask(t, g, dst[:1+h.random.IntN(len(dst))]) {
				g.Extend(g.Lease().End + int64(h.random.IntN(1000)))
			}
		}
		h.lease.Start = g.Stop()
		h.lease.End = max(g.Lease().End, h.lease.Start+1)
		if h.clock.ms < h.lease.Start-1000 { // a clock that far back would take ages
			h.clock.ms = h.lease.Start
		}
	}
}

// ask asks for ids and checks them; it reports whether there were any.
func (h *history) ask(t *testing.T, g *snowflake.Generator, dst []snowflake.ID) bool {
	var err error
	if len(dst)%8 == 0 {
		for i := range dst {
			if dst[i], err = g.TryNext(); err != nil {
				dst = dst[:i]
				break
			}
		}
	} else if err = g.TryFill(dst); err != nil {
		dst = nil
	}
	if err != nil {
		h.refused++
	}
	end := g.Lease().End
	l, last := snowflake.Twitter, h.last
	for _, id := range dst {
		if ms := l.Millis(id); id <= last || l.Worker(id) != h.worker || ms < h.lease.Start || ms >= end || ms > h.clock.ms+20 {
			t.Errorf("worker %d: id %d at %d after %d; lease [%d, %d), clock at %d", h.worker, id, ms, last, h.lease.Start, end, h.clock.ms)
			return false
		}
		last = id
	}
	h.last = last
	h.ids += len(dst)
	return err == nil
}

// jump sets the clock: mostly it stands or ticks, at times it jumps forth or back.
func (h *history) jump() {
	switch n := h.random.IntN(1000); {
	case n < 300:
		h.clock.ms++
	case n < 305:
		h.clock.ms += int64(h.random.IntN(50))
	case n < 310:
		h.clock.ms -= int64(h.random.IntN(50))
		h.back++
	}
}
