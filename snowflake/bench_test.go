package snowflake_test

import (
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/snowflake"
)

// All benchmarks measure nanoseconds per ID. Those with Fast in their name use a clock that
// costs nothing and ticks as fast as the sequences are used up, so they measure the
// generator alone. All others use the system clock.

// fast is a clock for one goroutine that ticks at every 2,048th reading.
type fast struct{ looks int64 }

func (c *fast) now() int64 { c.looks++; return epoch + c.looks>>11 }

// wide is a layout whose sequence is never used up: 2,097,152 IDs per millisecond.
var wide = snowflake.Layout{TimeBits: 41, WorkerBits: 1, SequenceBits: 21, Epoch: snowflake.Twitter.Epoch}

func BenchmarkTryNext_Fast(b *testing.B) {
	b.ReportAllocs()
	clock := &fast{}
	g := newGenerator(b, 1, snowflake.Options{Now: clock.now})
	for b.Loop() {
		if _, err := g.TryNext(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNext_Fast(b *testing.B) {
	b.ReportAllocs()
	clock := &fast{}
	ctx := b.Context()
	g := newGenerator(b, 1, snowflake.Options{Now: clock.now})
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// The system clock, and more sequence numbers than can be used.
func BenchmarkTryNext_Wide(b *testing.B) {
	b.ReportAllocs()
	g := newGenerator(b, 1, snowflake.Options{Layout: wide})
	for b.Loop() {
		if _, err := g.TryNext(); err != nil {
			b.Fatal(err)
		}
	}
}

// The same with time.Now as the clock, to show what the generator's own clock saves.
func BenchmarkTryNext_WideTimeNow(b *testing.B) {
	b.ReportAllocs()
	now := func() int64 { return time.Now().UnixMilli() }
	g := newGenerator(b, 1, snowflake.Options{Layout: wide, Now: now})
	for b.Loop() {
		if _, err := g.TryNext(); err != nil {
			b.Fatal(err)
		}
	}
}

// One generator, shared by a goroutine on every core.
func BenchmarkTryNext_WideShared(b *testing.B) {
	b.ReportAllocs()
	g := newGenerator(b, 1, snowflake.Options{Layout: wide})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.TryNext(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkTryFill_Wide(b *testing.B) {
	for _, n := range []int{16, 256, 4096} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			g := newGenerator(b, 1, snowflake.Options{Layout: wide})
			dst := make([]snowflake.ID, n)
			b.ResetTimer()
			for left := b.N; left > 0; left -= n {
				if err := g.TryFill(dst[:min(n, left)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Twitter's layout and the system clock, which allow at most 4,096 IDs per millisecond, or
// one per 244 ns.
func BenchmarkNext_Sustained(b *testing.B) {
	b.ReportAllocs()
	ctx := b.Context()
	g := newGenerator(b, 1, snowflake.Options{AheadMax: 5 * time.Millisecond})
	for b.Loop() {
		if _, err := g.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// 32 workers with a goroutine each, batches of 256, Twitter's layout and the system clock:
// the sequences allow 131 million IDs per second. A goroutine that gets no IDs yields.
func BenchmarkTryFill_32Workers(b *testing.B) {
	b.ReportAllocs()
	const workers, batch = 32, 256
	var generators [workers]*snowflake.Generator
	for worker := range generators {
		generators[worker] = newGenerator(b, worker, snowflake.Options{AheadMax: 10 * time.Millisecond})
	}
	var group sync.WaitGroup
	b.ResetTimer()
	for worker, g := range generators {
		group.Go(func() {
			dst := make([]snowflake.ID, batch)
			for left := b.N*(worker+1)/workers - b.N*worker/workers; left > 0; left -= batch {
				for g.TryFill(dst[:min(batch, left)]) != nil {
					runtime.Gosched()
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/1e6/b.Elapsed().Seconds(), "million/s")
}

func BenchmarkTimeNow(b *testing.B) {
	var sum int64
	for b.Loop() {
		sum += time.Now().UnixMilli()
	}
	runtime.KeepAlive(sum)
}

func BenchmarkAppendDecimal(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, 0, 32)
	for b.Loop() {
		buf = snowflake.ID(1541815603606036480).AppendDecimal(buf[:0])
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := snowflake.Parse("1541815603606036480"); err != nil {
			b.Fatal(err)
		}
	}
}
