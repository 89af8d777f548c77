package gateway

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isotone/isotone"
)

func TestBatch_EveryRequestFitsIntoAMillisecond(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		var b batch
		most := 1 + random.Uint64N(CountMax)
		for b.add(1+random.Uint64N(most)) && len(b.counts) < 100 {
		}
		if b.ask() > isotone.Range64CountMax {
			t.Fatalf("a batch of %v asks for %d timestamps", b.counts, b.ask())
		}
		r := isotone.Range64{First: isotone.NewTimestamp64(1_800_000_000_000, random.Uint64N(1<<18)), Count: b.ask()}
		least, at := r.First, 0
		err := b.place(r, func(count uint64, last isotone.Timestamp64) error {
			first := last - isotone.Timestamp64(count-1)
			if count != b.counts[at] || first < least || last > r.Last() || first.Milli() != last.Milli() {
				t.Fatalf("range %v, counts %v: request %d got %v to %v", r, b.counts, at, first, last)
			}
			least, at = last+1, at+1
			return nil
		})
		if err != nil || at != len(b.counts) {
			t.Fatalf("%d of %d requests were answered: %v", at, len(b.counts), err)
		}
	}
}

func TestBatch_TakesTheLargestCountAndNothingBesides(t *testing.T) {
	var b batch
	if !b.add(CountMax) || b.ask() != isotone.Range64CountMax-1 {
		t.Fatalf("a batch of %d asks for %d", uint64(CountMax), b.ask())
	}
	if !b.add(1) || b.add(1) {
		t.Fatal("want room for exactly one more")
	}
	b.reset()
	if !b.add(1) || b.ask() != 1 {
		t.Fatalf("one timestamp is asked for as %d", b.ask())
	}
}

func TestCollect_TakesAllThatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		waiting []request
		counts  []uint64
		next    request
	}{
		"nothing":           {nil, []uint64{7}, request{}},
		"requests":          {[]request{{count: 1}, {count: 500}, {count: 2}}, []uint64{7, 1, 500, 2}, request{}},
		"one without place": {[]request{{count: 1}, {count: CountMax}, {count: 2}}, []uint64{7, 1}, request{count: CountMax}},
		"the end":           {[]request{{count: 1}, {end: io.EOF}}, []uint64{7, 1}, request{end: io.EOF}},
	} {
		queue := make(chan request, queueMax)
		for _, r := range c.waiting {
			queue <- r
		}
		var b batch
		if next := b.collect(request{count: 7}, queue); next != c.next || !slices.Equal(b.counts, c.counts) {
			t.Errorf("%s: the batch has %v, and %v follows; want %v and %v", name, b.counts, next, c.counts, c.next)
		}
	}
}
