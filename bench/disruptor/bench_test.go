package disruptor

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	smarty "github.com/smarty/go-disruptor"
)

// The benchmarks have the names and do the work of those in ../../disruptor/bench_test.go:
// nanoseconds per element from its writer to its readers, each of which reads every element and
// checks the sum. The mode of go-disruptor follows from the name: SingleWriter is WriterCount(1),
// SharedWriter is WriterCount of at least 2. It waits as it does by default, unless the name says
// otherwise.

const (
	capacity = 1 << 16
	mask     = capacity - 1
)

// slots is what the elements are in: go-disruptor leaves it to its user. An array whose length
// the compiler knows needs no check of the index.
type slots [capacity]uint64

// bench is one benchmark.
type bench struct {
	writers, readers, reserve int
	shared                    bool
	noData                    bool
	wait                      smarty.WaitStrategy // nil: go-disruptor's default
}

// reader is a Handler that reads every element.
type reader struct {
	slots *slots
	last  int64 // the sequence after which done is closed
	done  chan struct{}
	sum   uint64
}

func (r *reader) Handle(lower, upper int64) {
	for seq := lower; seq <= upper; seq++ {
		r.sum += r.slots[seq&mask]
	}
	if upper == r.last {
		close(r.done)
	}
}

// counter is a Handler that adds sequence numbers and leaves the slots alone.
type counter struct{ reader }

func (c *counter) Handle(lower, upper int64) {
	c.sum += uint64((upper - lower + 1) * (lower + upper) / 2)
	if upper == c.last {
		close(c.done)
	}
}

// new makes a disruptor of this kind.
func (k bench) new(size uint32, handlers ...smarty.Handler) (smarty.Disruptor, error) {
	writers := uint8(1)
	if k.shared {
		writers = uint8(min(max(k.writers, 2), 255)) // all from 2 on are the same to it
	}
	if k.wait == nil {
		return smarty.New(smarty.Options.BufferCapacity(size), smarty.Options.WriterCount(writers),
			smarty.Options.NewHandlerGroup(handlers...))
	}
	return smarty.New(smarty.Options.BufferCapacity(size), smarty.Options.WriterCount(writers),
		smarty.Options.WaitStrategy(k.wait), smarty.Options.NewHandlerGroup(handlers...))
}

// pass sends n elements, of which there must be at least one, and returns when all readers have
// them. It calls start when everything is set up and stop when the last element is read.
func (k bench) pass(n int, start, stop func()) error {
	data := new(slots)
	readers := make([]*reader, max(k.readers, 1))
	handlers := make([]smarty.Handler, len(readers))
	for i := range readers {
		c := &counter{reader{slots: data, last: int64(n) - 1, done: make(chan struct{})}}
		readers[i], handlers[i] = &c.reader, &c.reader
		if k.noData {
			handlers[i] = c
		}
	}
	d, err := k.new(capacity, handlers...)
	if err != nil {
		return err
	}
	var listening, writing sync.WaitGroup
	listening.Go(d.Listen)
	start()
	if !k.shared {
		k.write(data, d, n)
	} else {
		for i := range k.writers {
			writing.Go(func() { k.write(data, d, share(n, i, k.writers)) })
		}
		writing.Wait()
	}
	// Close may overtake the last commit: a listener that has seen nothing new ends when it is
	// closed by then. So the end is when the readers have everything.
	for _, r := range readers {
		<-r.done
	}
	stop()
	if err := d.Close(); err != nil {
		return err
	}
	listening.Wait()
	for _, r := range readers {
		if want := uint64(n) * uint64(n-1) / 2; r.sum != want {
			return fmt.Errorf("sum %d of %d elements, want %d", r.sum, n, want)
		}
	}
	return nil
}

// share returns the i-th of n nearly equal parts of total.
func share(total, i, n int) int { return total*(i+1)/n - total*i/n }

// write is the measured loop: reserve, fill, commit.
func (k bench) write(data *slots, d smarty.Sequencer, total int) {
	fill := !k.noData
	for left := total; left > 0; left -= k.reserve {
		n := min(k.reserve, left)
		upper := d.Reserve(uint32(n))
		lower := upper - int64(n) + 1
		if fill {
			for seq := lower; seq <= upper; seq++ {
				data[seq&mask] = uint64(seq)
			}
		}
		d.Commit(lower, upper)
	}
}

func (k bench) run(b *testing.B) {
	b.ReportAllocs()
	if err := k.pass(b.N, b.ResetTimer, b.StopTimer); err != nil {
		b.Fatal(err)
	}
}

func perCore(n int) int { return n * runtime.GOMAXPROCS(0) }

// yield lets other goroutines run and never sleeps.
type yield struct{}

func (yield) Gate(int64)    { runtime.Gosched() }
func (yield) Idle(int64)    { runtime.Gosched() }
func (yield) Reserve(int64) { runtime.Gosched() }

// spin checks continuously. Writers let other goroutines run.
type spin struct{ yield }

func (spin) Gate(int64) {}
func (spin) Idle(int64) {}

func BenchmarkDisruptor_SingleWriter_ReserveOne_OneReader(b *testing.B) {
	bench{reserve: 1}.run(b)
}

func BenchmarkDisruptor_SingleWriter_ReserveOne_YieldingReader(b *testing.B) {
	bench{reserve: 1, wait: yield{}}.run(b)
}

func BenchmarkDisruptor_SingleWriter_ReserveOne_ThreeReaders(b *testing.B) {
	bench{reserve: 1, readers: 3}.run(b)
}

func BenchmarkDisruptor_SingleWriter_Reserve4_OneReader(b *testing.B) {
	bench{reserve: 4}.run(b)
}

func BenchmarkDisruptor_SingleWriter_Reserve16_OneReader(b *testing.B) {
	bench{reserve: 16}.run(b)
}

func BenchmarkDisruptor_SingleWriter_Reserve16_ThreeReaders(b *testing.B) {
	bench{reserve: 16, readers: 3}.run(b)
}

func BenchmarkDisruptor_SharedWriter_ReserveOne_OneWriter(b *testing.B) {
	bench{shared: true, reserve: 1, writers: 1}.run(b)
}

func BenchmarkDisruptor_SharedWriter_Reserve16_OneWriter(b *testing.B) {
	bench{shared: true, reserve: 16, writers: 1}.run(b)
}

func BenchmarkDisruptor_SharedWriter_ReserveOne_WriterPerCore(b *testing.B) {
	bench{shared: true, reserve: 1, writers: perCore(1)}.run(b)
}

func BenchmarkDisruptor_SharedWriter_ReserveOne_FourWritersPerCore(b *testing.B) {
	bench{shared: true, reserve: 1, writers: perCore(4)}.run(b)
}

func BenchmarkDisruptor_SharedWriter_Reserve16_FourWritersPerCore(b *testing.B) {
	bench{shared: true, reserve: 16, writers: perCore(4)}.run(b)
}

func BenchmarkDisruptor_SharedWriter_ReserveOne_256Writers(b *testing.B) {
	bench{shared: true, reserve: 1, writers: 256}.run(b)
}

func BenchmarkDisruptor_NoData_SingleWriter_ReserveOne_OneReader(b *testing.B) {
	bench{reserve: 1, noData: true}.run(b)
}

func BenchmarkDisruptor_NoData_SingleWriter_Reserve4_OneReader(b *testing.B) {
	bench{reserve: 4, noData: true}.run(b)
}

func BenchmarkDisruptor_NoData_SingleWriter_Reserve16_OneReader(b *testing.B) {
	bench{reserve: 16, noData: true}.run(b)
}

func BenchmarkDisruptor_NoData_SharedWriter_ReserveOne_OneWriter(b *testing.B) {
	bench{shared: true, reserve: 1, writers: 1, noData: true}.run(b)
}

func BenchmarkDisruptor_RoundTrip_Park(b *testing.B)  { benchRoundTrip(b, nil) }
func BenchmarkDisruptor_RoundTrip_Yield(b *testing.B) { benchRoundTrip(b, yield{}) }
func BenchmarkDisruptor_RoundTrip_Spin(b *testing.B)  { benchRoundTrip(b, spin{}) }

// side is a Handler at one end of two rings, which answers every element.
type side struct {
	to   smarty.Sequencer
	stop int64 // the sequence that is not answered; after it done is closed
	done chan struct{}
}

func (s *side) Handle(lower, upper int64) {
	for seq := lower; seq <= upper; seq++ {
		if seq == s.stop {
			close(s.done)
			return
		}
		next := s.to.Reserve(1)
		s.to.Commit(next, next)
	}
}

// benchRoundTrip sends one element to another goroutine and back, b.N times, with no other
// element in the rings.
func benchRoundTrip(b *testing.B, how smarty.WaitStrategy) {
	b.ReportAllocs()
	far, near := &side{stop: -1}, &side{stop: int64(b.N) - 1, done: make(chan struct{})}
	there, err := bench{wait: how}.new(64, far)
	if err != nil {
		b.Fatal(err)
	}
	back, err := bench{wait: how}.new(64, near)
	if err != nil {
		b.Fatal(err)
	}
	far.to, near.to = back, there
	var listening sync.WaitGroup
	listening.Go(there.Listen)
	listening.Go(back.Listen)
	b.ResetTimer()
	there.Commit(0, there.Reserve(1))
	<-near.done
	b.StopTimer()
	_, _ = there.Close(), back.Close()
	listening.Wait()
}

func TestBench_ReadsEveryElement(t *testing.T) {
	none := func() {}
	for name, k := range map[string]bench{
		"one writer":      {reserve: 1},
		"three readers":   {reserve: 16, readers: 3},
		"no data":         {reserve: 4, noData: true},
		"shared, one":     {shared: true, reserve: 1, writers: 1},
		"shared, eight":   {shared: true, reserve: 16, writers: 8},
		"shared, no data": {shared: true, reserve: 1, writers: 2, noData: true},
		"yielding":        {reserve: 1, wait: yield{}},
	} {
		for _, n := range []int{1, 17, 3 * capacity} {
			if err := k.pass(n, none, none); err != nil {
				t.Errorf("%s, %d elements: %v", name, n, err)
			}
		}
	}
}
