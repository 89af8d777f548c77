package stats_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/internal/stats"
)

func TestAside_WritesInOrderAndDropsWhatDoesNotFit(t *testing.T) {
	let := make(chan bool)
	var got []int
	a := stats.NewAside(3, func(n int) {
		<-let
		got = append(got, n)
	})
	taken := 0
	for n := range 10 {
		if a.Put(n) {
			taken++
			continue
		}
		if taken < 3 || taken > 4 { // one may be on its way already
			t.Errorf("%d were taken, then none", taken)
		}
	}
	close(let)
	if !a.Close() {
		t.Error("not all was written in time")
	}
	if !slices.IsSorted(got) || len(got) != taken {
		t.Errorf("%d were taken, %v written", taken, got)
	}
	if a.Put(1) {
		t.Error("taken after the end")
	}
	a.Close()
}

// TestAside_CloseIsForAll: whoever puts while it is closed either gets in or is told.
func TestAside_CloseIsForAll(t *testing.T) {
	for range 200 {
		written, taken := 0, make(chan bool, 64)
		a := stats.NewAside(1000, func(int) { written++ })
		var wg sync.WaitGroup
		for n := range cap(taken) {
			wg.Go(func() { taken <- a.Put(n) })
		}
		a.Close()
		wg.Wait()
		close(taken)
		in := 0
		for ok := range taken {
			if ok {
				in++
			}
		}
		if in != written {
			t.Fatalf("%d got in, %d were written", in, written)
		}
	}
}

func TestAside_CloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan bool)
		a := stats.NewAside(1, func(int) { <-let })
		a.Put(1)
		begin := time.Now()
		if a.Close() {
			t.Error("what hangs is said to be written")
		}
		if waited := time.Since(begin); waited != 5*time.Second {
			t.Errorf("it waited for %v", waited)
		}
		close(let)
	})
}
