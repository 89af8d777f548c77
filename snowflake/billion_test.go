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
	// billionWorkers is the number of workers that make the IDs of TestBillion.
	billionWorkers = 256
	// generatorAsks is the number of requests after which a generator is replaced.
	generatorAsks = 40
)

// A billion IDs (with SNOWFLAKE_BILLION=1; otherwise some millions) of many workers, whose
// clocks jump both ways, and whose generators are often replaced, each with the lease that
// its predecessor gave back. No ID comes twice: those of a worker strictly increase, across
// all its generators, and those of different workers have different worker bits. To check
// this, the test needs only the last ID of each worker.
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
	t.Logf("%d IDs of %d workers and %d generators in %v, %.1f million/s; %d times the clock went back, %d refusals",
		sum.ids, billionWorkers, sum.generators, took.Round(time.Millisecond), float64(sum.ids)/1e6/took.Seconds(), sum.back, sum.refused)
}

// history is the history of one worker.
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

// run makes and checks total IDs.
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
		if h.clock.ms < h.lease.Start-1000 { // waiting for a clock this far back would take too long
			h.clock.ms = h.lease.Start
		}
	}
}

// ask requests IDs and checks them; it reports whether there were any.
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
			t.Errorf("worker %d: ID %d at %d after %d; lease [%d, %d), clock at %d", h.worker, id, ms, last, h.lease.Start, end, h.clock.ms)
			return false
		}
		last = id
	}
	h.last = last
	h.ids += len(dst)
	return err == nil
}

// jump sets the clock: usually it stands or ticks, sometimes it jumps forward or back.
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
