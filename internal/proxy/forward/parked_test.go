package forward_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// TestUpstream_FloorsOfClientsWithoutTheRightTakeNoPlace: four of them, and four hundred, are waited for, and others with floors are
// answered meanwhile.
func TestUpstream_FloorsOfClientsWithoutTheRightTakeNoPlace(t *testing.T) {
	u := newTurns(t, forward.Config{BundlesMax: 2})
	submit := func(floor isotone.Timestamp) *submitted {
		b := &submitted{Batch: front.Batch{Mode: isotone.ReadQuorum, Floor: floor, Counts: []uint64{1}, Ranges: make([]isotone.Range, 1)}}
		b.Done = func(*front.Batch) { b.done++ }
		u.Submit(&b.Batch)
		return b
	}
	// The source is at 7 ns: in a while it would be there.
	ahead := isotone.Timestamp{Time: 7 + uint64(900*time.Millisecond)}
	var waiting []*submitted
	for range 1024 { // flooredMax
		waiting = append(waiting, submit(ahead))
	}
	asked := 0
	u.until(t, "all were asked for once", func() bool {
		u.set(func() { asked = len(u.asks) })
		return asked > 0
	})
	for range 20 {
		b := submit(isotone.Timestamp{Time: 7})
		u.until(t, "one with a floor that was issued is answered", func() bool { return b.done == 1 })
		if b.Err != nil || b.Ranges[0].First.Index == 0 {
			t.Fatalf("%v, %v", b.Ranges, b.Err)
		}
	}
	answered := func(b *submitted) bool { return b.done == 1 && errors.Is(b.Err, isotone.ErrRegressed) }
	if late := submit(ahead); true { // one too many is not waited for
		u.until(t, "it is refused", func() bool { return late.done == 1 })
		if !answered(late) {
			t.Errorf("%v", late.Err)
		}
	}
	u.until(t, "they are refused, as the source does not get there", func() bool {
		return !slices.ContainsFunc(waiting, func(b *submitted) bool { return !answered(b) })
	})
	if u.set(func() { asked = len(u.asks) }); asked > 100 {
		t.Errorf("the source was asked %d times", asked)
	}
}
