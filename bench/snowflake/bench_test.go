package snowflake_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	other "github.com/bwmarrin/snowflake"

	"github.com/isotone/isotone/snowflake"
)

// All benchmarks measure nanoseconds per ID, by the system clock. The Wide layout has
// 2,097,152 IDs per millisecond, so that the clock does not limit the rate. Twitter's
// has 4,096, which limits each worker to one ID per 244 ns.

const sequencesWide = 21

// generate returns a function that makes IDs of a worker, and waits if it must.
type generate func(b *testing.B, worker int, sequenceBits uint8) (one func() int64)

func isotone(b *testing.B, worker int, sequenceBits uint8) func() int64 {
	ctx := b.Context()
	l := snowflake.Layout{TimeBits: 41, WorkerBits: 22 - sequenceBits, SequenceBits: sequenceBits, Epoch: snowflake.Twitter.Epoch}
	g, err := snowflake.NewGenerator(worker, snowflake.Options{Layout: l, AheadMax: 5 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	return func() int64 {
		id, err := g.Next(ctx)
		if err != nil {
			panic(err)
		}
		return int64(id)
	}
}

func bwmarrin(b *testing.B, worker int, sequenceBits uint8) func() int64 {
	other.NodeBits, other.StepBits = 22-sequenceBits, sequenceBits
	node, err := other.NewNode(int64(worker))
	if err != nil {
		b.Fatal(err)
	}
	return func() int64 { return int64(node.Generate()) }
}

var generators = []struct {
	name string
	generate
}{{"isotone", isotone}, {"bwmarrin", bwmarrin}}

// run makes b.N IDs in goroutines, which share one generator or have one each.
// Every goroutine checks that its IDs increase.
func run(b *testing.B, make generate, goroutines int, each bool, sequenceBits uint8) {
	b.ReportAllocs()
	one := make(b, 0, sequenceBits)
	var group sync.WaitGroup
	b.ResetTimer()
	for i := range goroutines {
		one := one
		if each && i > 0 {
			one = make(b, i, sequenceBits)
		}
		group.Go(func() {
			last := int64(-1)
			for range b.N*(i+1)/goroutines - b.N*i/goroutines {
				id := one()
				if id <= last {
					b.Errorf("ID %d after %d", id, last)
					return
				}
				last = id
			}
		})
	}
	group.Wait()
}

func BenchmarkWide_OneGoroutine(b *testing.B) {
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) { run(b, g.generate, 1, false, sequencesWide) })
	}
}

func BenchmarkWide_SharedByACore(b *testing.B) {
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) { run(b, g.generate, runtime.GOMAXPROCS(0), false, sequencesWide) })
	}
}

func BenchmarkWide_SharedBy64(b *testing.B) {
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) { run(b, g.generate, 64, false, sequencesWide) })
	}
}

func BenchmarkTwitter_OneGoroutine(b *testing.B) {
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) { run(b, g.generate, 1, false, 12) })
	}
}

func BenchmarkTwitter_32Workers(b *testing.B) {
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) { run(b, g.generate, 32, true, 12) })
	}
}

// Only one of the two generators has batches.
func BenchmarkTwitter_32WorkersBatchesOf256(b *testing.B) {
	b.Run("isotone", func(b *testing.B) {
		b.ReportAllocs()
		const workers, batch = 32, 256
		var generators [workers]*snowflake.Generator
		for worker := range generators {
			g, err := snowflake.NewGenerator(worker, snowflake.Options{AheadMax: 10 * time.Millisecond})
			if err != nil {
				b.Fatal(err)
			}
			generators[worker] = g
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
	})
}
