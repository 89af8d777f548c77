package node

import (
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// newIdleBundler returns a bundler whose loop does not run, of a node that takes nothing from
// its submit queue.
func newIdleBundler(t *testing.T, requestsMax int) *bundler {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &Node{cfg: Config{RequestsMax: requestsMax}, core: &core{queue: newSubmitQueue(func() {})}}
	return newBundler(n, l)
}

func TestBundler_ABundleIsNoMoreThanTheBufferTakes(t *testing.T) {
	b := newIdleBundler(t, 40) // so 10 in each bundle
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
	list := b.node.core.queue.take(nil)
	for _, u := range list {
		got[sent{u.Mode, len(u.Counts)}]++
	}
	want := map[sent]int{
		{isotone.ReadQuorum, 9}: 2, {isotone.ReadQuorum, 3}: 1, {isotone.ReadQuorum, 25}: 1,
		{isotone.ReadLease, 3}: 1, {isotone.ReadDefault, 1}: 1,
	}
	if len(got) != len(want) || len(list) != 6 || b.underWay != 6 || len(b.submitted) != 0 {
		t.Errorf("%v, %d in all, %d under way, %d left; want %v", got, len(list), b.underWay, len(b.submitted), want)
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
	if answered != 11 || b.underWay != 0 {
		t.Errorf("%d batches were answered, %d bundles are under way", answered, b.underWay)
	}
}

// TestBundler_AFloorIsABundleOfItsOwn: the floor of one client is not that of others.
func TestBundler_AFloorIsABundleOfItsOwn(t *testing.T) {
	b := newIdleBundler(t, 4096)
	submit := func(floor uint64) *front.Batch {
		part := &front.Batch{
			Floor: isotone.Timestamp{Time: floor}, Counts: []uint64{2}, Ranges: make([]isotone.Range, 1), Done: func(*front.Batch) {},
		}
		b.Submit(part)
		return part
	}
	for range 2 { // also with bundles that were used before
		parts := []*front.Batch{submit(0), submit(7), submit(7), submit(0), submit(9)}
		b.bundle()
		list := b.node.core.queue.take(nil)
		got := map[uint64]int{}
		for _, u := range list {
			got[u.Floor.Time] += len(u.Counts)
			for i := range u.Ranges {
				u.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: u.Floor.Time + 1}, Count: 2}
			}
			u.Done(u)
		}
		if len(list) != 4 || got[0] != 2 || got[7] != 2 || got[9] != 1 {
			t.Errorf("%d bundles, %v", len(list), got)
		}
		b.settle()
		for i, part := range parts {
			if part.Ranges[0].First.Time != part.Floor.Time+1 {
				t.Errorf("part %d has the answer of another: %v", i, part.Ranges)
			}
		}
	}
	for range 2 * bundlesMax {
		submit(7)
	}
	if b.bundle(); b.underWay > bundlesMax || len(b.submitted) != 2*bundlesMax-b.underWay {
		t.Errorf("%d bundles are under way, %d batches wait", b.underWay, len(b.submitted))
	}
}

func TestBundler_KeepsWhatCannotGoYet(t *testing.T) {
	b := newIdleBundler(t, 4) // one request in each bundle
	const batches = 3 * bundlesMax
	order := make([]int, 0, batches)
	for i := range batches {
		b.Submit(&front.Batch{
			Counts: make([]uint64, 1), Ranges: make([]isotone.Range, 1), Done: func(*front.Batch) { order = append(order, i) },
		})
	}
	for turn := 0; len(order) < batches; turn++ {
		b.bundle()
		list := b.node.core.queue.take(nil)
		if len(list) == 0 || b.underWay > bundlesMax || turn > batches {
			t.Fatalf("turn %d: %d bundles were sent, %d are under way, %d batches left", turn, len(list), b.underWay, len(b.submitted))
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
