package forward_test

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// base64 is the first 64-bit timestamp of a cluster.
var base64 = isotone.NewTimestamp64(1_700_000_000_000, 1<<18-5)

// Timestamps64 counts as Timestamps does, and notes a request with a negated count.
func (c *cluster) Timestamps64(ctx context.Context, w forward.Want) (isotone.Range64, error) {
	r, err := c.Timestamps(ctx, w)
	if w.Timeline == "" {
		c.set(func() { c.asks[len(c.asks)-1].Count = -w.Count })
	}
	return isotone.Range64{First: base64 + isotone.Timestamp64(r.First.Index), Count: w.Count}, err
}

func TestUpstream_AsksForEachFormByItself(t *testing.T) {
	u := newTurns(t, forward.Config{BundlesMax: 1})
	var batches []*submitted
	for i, counts := range [][]uint64{{1, 2}, {3}, {4}, {5, 6}, {isotone.Range64CountMax}} {
		b := &submitted{Batch: front.Batch{Mode: isotone.ReadQuorum, U64: i%2 == 0, Counts: counts, Ranges: make([]isotone.Range, len(counts))}}
		b.Done = func(*front.Batch) { b.done++ }
		u.Submit(&b.Batch)
		batches = append(batches, b)
	}
	u.until(t, "all are answered", func() bool {
		return !slices.ContainsFunc(batches, func(b *submitted) bool { return b.done == 0 })
	})
	minus := func(n uint64) uint64 { return -n }
	want := []ask{{isotone.ReadQuorum, minus(7)}, {isotone.ReadQuorum, 14}, {isotone.ReadQuorum, minus(isotone.Range64CountMax)}}
	if got := u.asked(); !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	next := base64
	for _, i := range []int{0, 2} {
		for _, r := range batches[i].Ranges {
			if got := front.Range64(r); got.First < next || got.First > next+1 {
				t.Errorf("batch %d: %v, want %v", i, got, next)
			} else {
				next = got.Last() + 1
			}
		}
	}
}

func TestUpstream_GivesEverybodyTheirOwn64(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := newTurns(t, forward.Config{BundlesMax: rapid.IntRange(1, 4).Draw(rt, "bundles")})
		defer u.Upstream.Close()
		var batches []*submitted
		for range rapid.IntRange(1, 20).Draw(rt, "batches") {
			counts := rapid.SliceOfN(rapid.SampledFrom([]uint64{1, 1, 2, 100, 1 << 17, 1 << 18}), 1, 5).Draw(rt, "counts")
			b := &submitted{Batch: front.Batch{Mode: isotone.ReadQuorum, U64: true, Counts: counts, Ranges: make([]isotone.Range, len(counts))}}
			b.Done = func(*front.Batch) { b.done++ }
			u.Submit(&b.Batch)
			batches = append(batches, b)
			if rapid.Bool().Draw(rt, "turn") {
				u.Turn(0)
			}
		}
		u.until(t, "all are answered", func() bool {
			return !slices.ContainsFunc(batches, func(b *submitted) bool { return b.done == 0 })
		})
		var all []isotone.Range64
		for _, b := range batches {
			for i, r := range b.Ranges {
				if b.Err != nil || r.Count != b.Counts[i] {
					rt.Fatalf("%v for %v, %v", b.Ranges, b.Counts, b.Err)
				}
				all = append(all, front.Range64(r))
			}
		}
		slices.SortFunc(all, func(a, b isotone.Range64) int { return int(int64(a.First) - int64(b.First)) })
		for i := 1; i < len(all); i++ {
			if all[i-1].Last() >= all[i].First {
				rt.Fatalf("%v and %v share timestamps", all[i-1], all[i])
			}
		}
	})
}
