package pd

import (
	"math/rand/v2"
	"testing"

	"github.com/isotone/isotone"
)

func TestBatch_EveryRequestFitsIntoAMillisecond(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		var b Batch
		most := 1 + random.Uint64N(CountMax)
		for b.Add(1+random.Uint64N(most)) && len(b.Counts) < 100 {
		}
		if b.Ask() > isotone.Range64CountMax {
			t.Fatalf("a batch of %v asks for %d timestamps", b.Counts, b.Ask())
		}
		r := isotone.Range64{First: isotone.NewTimestamp64(1_800_000_000_000, random.Uint64N(1<<18)), Count: b.Ask()}
		least, at := r.First, 0
		err := b.Place(r, func(count uint64, last isotone.Timestamp64) error {
			first := last - isotone.Timestamp64(count-1)
			if count != b.Counts[at] || first < least || last > r.Last() || first.Milli() != last.Milli() {
				t.Fatalf("range %v, counts %v: request %d got %v to %v", r, b.Counts, at, first, last)
			}
			least, at = last+1, at+1
			return nil
		})
		if err != nil || at != len(b.Counts) {
			t.Fatalf("%d of %d requests were answered: %v", at, len(b.Counts), err)
		}
	}
}

func TestBatch_TakesTheLargestCountAndNothingBesides(t *testing.T) {
	var b Batch
	if !b.Add(CountMax) || b.Ask() != isotone.Range64CountMax-1 {
		t.Fatalf("a batch of %d asks for %d", uint64(CountMax), b.Ask())
	}
	if !b.Add(1) || b.Add(1) {
		t.Fatal("want room for exactly one more")
	}
	b.Reset()
	if !b.Add(1) || b.Ask() != 1 {
		t.Fatalf("one timestamp is asked for as %d", b.Ask())
	}
}
