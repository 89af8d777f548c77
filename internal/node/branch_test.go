package node

import (
	"log/slog"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// newLoneBranch returns a branch that does not run, of a node that takes nothing from its
// door.
func newLoneBranch(t *testing.T, requestsMax int) *branch {
	t.Helper()
	n := &Node{cfg: Config{Log: slog.New(slog.DiscardHandler), RequestsMax: requestsMax}, door: newDoor(func() {})}
	b, err := newBranch(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.loop.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestBranch_ABundleIsNoMoreThanTheBufferTakes(t *testing.T) {
	b := newLoneBranch(t, 40) // so 10 in each bundle
	answered := 0
	submit := func(mode isotone.ReadMode, requests int) {
		b.Submit(&front.Batch{
			Mode: mode, Counts: make([]uint64, requests), Ranges: make([]isotone.Range, requests), Done: func(*front.Batch) { answered++ },
		})
	}
	for range 7 {
		submit(isotone.ReadQuorum, 3)
	}
	submit(isotone.ReadLease, 1)
	submit(isotone.ReadQuorum, 25) // of one connection: as it is
	submit(isotone.ReadLease, 2)
	submit(isotone.ReadDefault, 1)
	b.bundle()
	type sent struct {
		mode     isotone.ReadMode
		requests int
	}
	got := map[sent]int{}
	list := b.node.door.take(nil)
	for _, u := range list {
		got[sent{u.Mode, len(u.Counts)}]++
	}
	want := map[sent]int{
		{isotone.ReadQuorum, 9}: 2, {isotone.ReadQuorum, 3}: 1, {isotone.ReadQuorum, 25}: 1,
		{isotone.ReadLease, 3}: 1, {isotone.ReadDefault, 1}: 1,
	}
	if len(got) != len(want) || len(list) != 6 || b.bundles != 6 || len(b.submitted) != 0 {
		t.Errorf("%v, %d in all, %d under way, %d left; want %v", got, len(list), b.bundles, len(b.submitted), want)
	}
	for s, n := range want {
		if got[s] != n {
			t.Errorf("%+v: %d, want %d", s, got[s], n)
		}
	}
	for _, u := range list {
		u.Done(u)
	}
	b.settle()
	if answered != 11 || b.bundles != 0 {
		t.Errorf("%d batches were answered, %d bundles are under way", answered, b.bundles)
	}
}

func TestBranch_KeepsWhatCannotGoYet(t *testing.T) {
	b := newLoneBranch(t, 4) // one request in each bundle
	const batches = 3 * bundlesMax
	order := make([]int, 0, batches)
	for i := range batches {
		b.Submit(&front.Batch{
			Counts: make([]uint64, 1), Ranges: make([]isotone.Range, 1), Done: func(*front.Batch) { order = append(order, i) },
		})
	}
	for turn := 0; len(order) < batches; turn++ {
		b.bundle()
		list := b.node.door.take(nil)
		if len(list) == 0 || b.bundles > bundlesMax || turn > batches {
			t.Fatalf("turn %d: %d bundles were sent, %d are under way, %d batches left", turn, len(list), b.bundles, len(b.submitted))
		}
		for _, u := range list {
			u.Done(u) // there is room for all of them
		}
		b.settle()
	}
	for i, at := range order {
		if i != at {
			t.Fatalf("batch %d was answered in place %d", at, i)
		}
	}
}
