package node

import (
	"maps"
	"slices"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/trace"
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

// TestBundler_ABundleBelongsToItsFirstTrace, and to none when it is used again.
func TestBundler_ABundleBelongsToItsFirstTrace(t *testing.T) {
	b := newIdleBundler(t, 1000)
	first, second := &trace.Context{Span: [8]byte{1}}, &trace.Context{Span: [8]byte{2}}
	for _, tt := range []struct {
		traces []*trace.Context
		want   *trace.Context
	}{{[]*trace.Context{nil, first, second, nil}, first}, {[]*trace.Context{nil, nil}, nil}} {
		for _, c := range tt.traces {
			b.Submit(&front.Batch{Trace: c, Counts: make([]uint64, 1), Ranges: make([]isotone.Range, 1), Done: func(*front.Batch) {}})
		}
		b.bundle()
		list := b.node.core.queue.take(nil)
		if len(list) != 1 || list[0].Trace != tt.want {
			t.Errorf("%d bundles, the trace is %v", len(list), list[0].Trace)
		}
		list[0].Done(list[0])
		b.settle()
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

// TestBundler_ATimelineIsABundleOfItsOwn, and a bundle that was of one is used again for the default order.
func TestBundler_ATimelineIsABundleOfItsOwn(t *testing.T) {
	b := newIdleBundler(t, 4096)
	for _, round := range [][]string{{"", "a", "a", "b", ""}, {"", "", "", "", ""}, {"b", "", "a", "", ""}} {
		for _, timeline := range round {
			b.Submit(&front.Batch{Timeline: timeline, Counts: []uint64{1}, Ranges: make([]isotone.Range, 1), Done: func(*front.Batch) {}})
		}
		b.bundle()
		got, want := map[string]int{}, map[string]int{}
		for _, timeline := range round {
			want[timeline]++
		}
		for _, u := range b.node.core.queue.take(nil) {
			if got[u.Timeline] += len(u.Counts); u.Timeline != "" && len(u.Counts) > 1 {
				t.Errorf("%q: %d requests of two batches are one bundle", u.Timeline, len(u.Counts))
			}
			u.Done(u)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: requests by timeline %v, want %v", round, got, want)
		}
		b.settle()
	}
}

// TestBundler_TellsWhatIsApart of each batch, also if a bundle that was is used again.
func TestBundler_TellsWhatIsApart(t *testing.T) {
	b := newIdleBundler(t, 4096)
	for range 2 {
		var told []string
		for _, timeline := range []string{"apart", "a", ""} {
			b.Submit(&front.Batch{Timeline: timeline, Counts: []uint64{1}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) {
				if b.Apart {
					told = append(told, b.Timeline)
				}
			}})
		}
		b.bundle()
		for _, u := range b.node.core.queue.take(nil) {
			if u.Apart {
				t.Errorf("a bundle of %q begins as one that is apart", u.Timeline)
			}
			u.Apart, u.Err = u.Timeline == "apart", isotone.ErrNotLeader
			u.Done(u)
		}
		if b.settle(); !slices.Equal(told, []string{"apart"}) {
			t.Errorf("%q are apart", told)
		}
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
