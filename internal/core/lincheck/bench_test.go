package lincheck_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// BenchmarkOnline is Begin, one atomic addition and End in many goroutines at
// once, with nothing between that would take the strain off the checker. A
// goroutine that is descheduled between Begin and End is overtaken by thousands.
func BenchmarkOnline(b *testing.B) {
	for _, goroutines := range []int{1, 2, 64, 1024} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			online, source := lincheck.NewOnline(0), new(counter)
			var workers sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			for range goroutines {
				workers.Go(func() {
					for left.Add(-64) > -64 { // a share of 64, to keep this loop cheap
						for range 64 {
							floor := online.Begin()
							if err := online.End(floor, source.next(1)); err != nil {
								b.Error(err)
							}
						}
					}
				})
			}
			workers.Wait()
			report(b, online)
		})
	}
}

// BenchmarkOnline_Yielding gives up the processor while the operation is open,
// as a real client does, so that all goroutines have one open at all times.
func BenchmarkOnline_Yielding(b *testing.B) {
	for _, goroutines := range []int{64, 1024, 10000} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			online, source := lincheck.NewOnline(0), new(counter)
			b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					floor := online.Begin()
					answer := source.next(1)
					runtime.Gosched()
					if err := online.End(floor, answer); err != nil {
						b.Error(err)
					}
				}
			})
			report(b, online)
		})
	}
}

// BenchmarkOnline_Shuffled ends open operations in random order, one goroutine:
// the cost of the window when answers are as unordered as can be. "shared" means
// that others use the oracle too, so that no two ranges join.
func BenchmarkOnline_Shuffled(b *testing.B) {
	for _, open := range []int{1, 64, 1000, 10000} {
		for _, shared := range []bool{false, true} {
			b.Run(fmt.Sprintf("open=%d/shared=%v", open, shared), func(b *testing.B) {
				type operation struct {
					floor  isotone.Timestamp
					answer isotone.Range
				}
				b.ReportAllocs()
				online, source := lincheck.NewOnline(0), new(counter)
				random := rand.New(rand.NewPCG(1, 2))
				begin := func() operation {
					if shared {
						source.next(1)
					}
					return operation{online.Begin(), source.next(1)}
				}
				operations := make([]operation, open)
				for i := range operations {
					operations[i] = begin()
				}
				for b.Loop() {
					i := random.IntN(open)
					if err := online.End(operations[i].floor, operations[i].answer); err != nil {
						b.Fatal(err)
					}
					operations[i] = begin()
				}
				report(b, online)
			})
		}
	}
}

func report(b *testing.B, online *lincheck.Online) {
	b.Helper()
	stats := online.Stats()
	b.ReportMetric(float64(stats.Checked)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(stats.Unverified), "unverified")
}

// BenchmarkCheck is one check of a history by 64 clients per iteration.
func BenchmarkCheck(b *testing.B) {
	for _, size := range []int{1000, 1000000} {
		b.Run(fmt.Sprintf("operations=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			history := linearizableHistory(rand.New(rand.NewPCG(1, 2)), size, 64)
			for b.Loop() {
				if err := lincheck.Check(history); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}
