package disruptor

import (
	"context"
	"runtime"
	"sync"
	"testing"
)

// The benchmarks measure nanoseconds per element, from its writer to its readers. Every
// reader reads every element and checks the sum. The NoData benchmarks do not use the
// slots and pass only sequence numbers, as benchmarks of disruptors commonly do.
// bench/disruptor.sh prints all as a table.

// benchCapacity is the capacity of both rings and channels.
const benchCapacity = 1 << 16

// bench is one benchmark.
type bench struct {
	writers, readers, reserve int
	shared                    bool
	noData                    bool
	armed                     bool // Poll and Arm instead of Next
	patient                   bool // with armed: Park before Arm
	wait                      Wait
}

func perCore(n int) int { return n * runtime.GOMAXPROCS(0) }

func (k bench) run(b *testing.B) {
	b.ReportAllocs()
	r, err := New[uint64](benchCapacity)
	if err != nil {
		b.Fatal(err)
	}
	var readers, writers sync.WaitGroup
	consumers := make([]*Consumer, max(k.readers, 1))
	for i := range consumers {
		consumers[i] = r.Consumer()
		consumers[i].Wait = k.wait
	}
	var single *Producer
	var shared *SharedProducer
	if k.shared {
		shared = r.SharedProducer()
	} else {
		single = r.Producer()
	}
	for _, c := range consumers {
		readers.Go(func() {
			n := uint64(b.N)
			if sum := k.read(r, c); sum != n*(n-1)/2 {
				b.Errorf("sum %d of %d elements", sum, n)
			}
		})
	}
	b.ResetTimer()
	if !k.shared {
		k.write(r, single, b.N)
		single.Close()
	} else {
		for i := range k.writers {
			writers.Go(func() { k.writeShared(r, shared, share(b.N, i, k.writers)) })
		}
		writers.Wait()
		shared.Close()
	}
	readers.Wait()
}

// share returns the i-th of n nearly equal parts of total.
func share(total, i, n int) int { return total*(i+1)/n - total*i/n }

// write is the measured loop: reserve, fill, commit.
func (k bench) write(r *Ring[uint64], p *Producer, total int) {
	ctx, reserve, data := context.Background(), k.reserve, !k.noData
	for left := total; left > 0; left -= reserve {
		lo, hi, _ := p.Reserve(ctx, min(reserve, left))
		if data {
			for seq := lo; seq < hi; seq++ {
				*r.At(seq) = seq
			}
		}
		p.Commit(lo, hi)
	}
}

// writeShared is the same for a SharedProducer: calls through an interface would add to
// the measurement.
func (k bench) writeShared(r *Ring[uint64], s *SharedProducer, total int) {
	ctx, reserve, data := context.Background(), k.reserve, !k.noData
	for left := total; left > 0; left -= reserve {
		lo, hi, _ := s.Reserve(ctx, min(reserve, left))
		if data {
			for seq := lo; seq < hi; seq++ {
				*r.At(seq) = seq
			}
		}
		s.Commit(lo, hi)
	}
}

func (k bench) read(r *Ring[uint64], c *Consumer) (sum uint64) {
	ctx := context.Background()
	bell := make(chan struct{}, 1)
	c.Wake = func() {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	last, attempt := 0, 0
	for {
		var lo, hi uint64
		var err error
		if k.armed {
			if lo, hi, err = c.Poll(); lo == hi && err == nil {
				if k.patient && Park(attempt, last) {
					attempt++
				} else if c.Arm() {
					<-bell
				}
				continue
			}
			last, attempt = int(hi-lo), 0
		} else {
			lo, hi, err = c.Next(ctx)
		}
		if err != nil {
			return sum
		}
		if k.noData {
			sum += (hi - lo) * (lo + hi - 1) / 2
		} else {
			first, rest := r.Slots(lo, hi)
			for _, v := range first {
				sum += v
			}
			for _, v := range rest {
				sum += v
			}
		}
		c.Release(hi)
	}
}

func BenchmarkDisruptor_SingleWriter_ReserveOne_OneReader(b *testing.B) {
	bench{reserve: 1}.run(b)
}

func BenchmarkDisruptor_SingleWriter_ReserveOne_YieldingReader(b *testing.B) {
	bench{reserve: 1, wait: Yield}.run(b)
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

func BenchmarkDisruptor_SharedWriter_Armed_256Writers(b *testing.B) {
	bench{shared: true, reserve: 1, writers: 256, armed: true}.run(b)
}

func BenchmarkDisruptor_SharedWriter_ParkThenArm_256Writers(b *testing.B) {
	bench{shared: true, reserve: 1, writers: 256, armed: true, patient: true}.run(b)
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

func BenchmarkChannel_Blocking_OneWriter(b *testing.B)    { benchChannel(b, 1, 1, true) }
func BenchmarkChannel_Blocking_ThreeReaders(b *testing.B) { benchChannel(b, 1, 3, true) }
func BenchmarkChannel_Blocking_WriterPerCore(b *testing.B) {
	benchChannel(b, perCore(1), 1, true)
}

func BenchmarkChannel_Blocking_FourWritersPerCore(b *testing.B) {
	benchChannel(b, perCore(4), 1, true)
}
func BenchmarkChannel_Blocking_256Writers(b *testing.B)   { benchChannel(b, 256, 1, true) }
func BenchmarkChannel_NonBlocking_OneWriter(b *testing.B) { benchChannel(b, 1, 1, false) }
func BenchmarkChannel_NonBlocking_FourWritersPerCore(b *testing.B) {
	benchChannel(b, perCore(4), 1, false)
}

// benchChannel gives each reader its own channel and sends every element to all of them,
// as a program without a ring would.
func benchChannel(b *testing.B, writers, readers int, blocking bool) {
	b.ReportAllocs()
	var sending, receiving sync.WaitGroup
	channels := make([]chan uint64, readers)
	for i := range channels {
		channels[i] = make(chan uint64, benchCapacity)
		receiving.Go(func() {
			var sum uint64
			if blocking {
				for v := range channels[i] {
					sum += v
				}
			} else {
				sum = receiveNonBlocking(channels[i])
			}
			if n := uint64(b.N); sum != n*(n-1)/2 {
				b.Errorf("sum %d of %d elements", sum, n)
			}
		})
	}
	b.ResetTimer()
	for i := range writers {
		from := b.N * i / writers
		sending.Go(func() {
			for v := range share(b.N, i, writers) {
				for _, ch := range channels {
					if blocking {
						ch <- uint64(from + v)
					} else {
						sendNonBlocking(ch, uint64(from+v))
					}
				}
			}
		})
	}
	sending.Wait()
	for _, ch := range channels {
		close(ch)
	}
	receiving.Wait()
}

func sendNonBlocking(ch chan uint64, v uint64) {
	for {
		select {
		case ch <- v:
			return
		default:
			runtime.Gosched()
		}
	}
}

func receiveNonBlocking(ch chan uint64) (sum uint64) {
	for {
		select {
		case v, ok := <-ch:
			if !ok {
				return sum
			}
			sum += v
		default:
			runtime.Gosched()
		}
	}
}

func BenchmarkDisruptor_RoundTrip_Park(b *testing.B)  { benchRoundTrip(b, Park) }
func BenchmarkDisruptor_RoundTrip_Yield(b *testing.B) { benchRoundTrip(b, Yield) }
func BenchmarkDisruptor_RoundTrip_Spin(b *testing.B)  { benchRoundTrip(b, Spin) }

// benchRoundTrip sends one element to another goroutine and waits for it to come
// back: two hand-overs, with no other element in the rings.
func benchRoundTrip(b *testing.B, how Wait) {
	b.ReportAllocs()
	there, back := newRing[uint64](b, 64), newRing[uint64](b, 64)
	far, near := there.Consumer(), back.Consumer()
	far.Wait, near.Wait = how, how
	send, reply := there.Producer(), back.Producer()
	ctx := context.Background()
	echo := start(func() {
		defer reply.Close()
		for {
			lo, hi, err := far.Next(ctx)
			if err != nil {
				return
			}
			v := *there.At(lo)
			far.Release(hi)
			lo, hi, _ = reply.Reserve(ctx, 1)
			*back.At(lo) = v
			reply.Commit(lo, hi)
		}
	})
	b.ResetTimer()
	for i := range uint64(b.N) {
		lo, hi, _ := send.Reserve(ctx, 1)
		*there.At(lo) = i
		send.Commit(lo, hi)
		lo, hi, _ = near.Next(ctx)
		if got := *back.At(lo); got != i {
			b.Fatalf("%d came back, want %d", got, i)
		}
		near.Release(hi)
	}
	send.Close()
	<-echo
}

func BenchmarkChannel_RoundTrip(b *testing.B) {
	b.ReportAllocs()
	there, back := make(chan uint64, 64), make(chan uint64, 64)
	echo := start(func() {
		for v := range there {
			back <- v
		}
	})
	b.ResetTimer()
	for i := range uint64(b.N) {
		there <- i
		if got := <-back; got != i {
			b.Fatalf("%d came back, want %d", got, i)
		}
	}
	close(there)
	<-echo
}
