package snowflake_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/isotone/isotone/snowflake"
)

func TestLease_BeginsAtItsStart(t *testing.T) {
	clock := &manual{epoch}
	lease := snowflake.Lease{Start: epoch + 1001, End: epoch + 5000}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: lease})
	if _, err := g.TryNext(); err != snowflake.ErrLeaseNotBegun {
		t.Fatal(err)
	}
	clock.ms++
	if id := next(t, g); g.Layout().Millis(id) != lease.Start || g.Layout().Sequence(id) != 0 {
		t.Error("the first ID is not at the start of the lease")
	}
	if g.Lease() != lease {
		t.Error(g.Lease())
	}
}

func TestLease_EndedIsFinalUntilExtended(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: snowflake.Lease{Start: epoch, End: epoch + 2}})
	if err := g.TryFill(make([]snowflake.ID, 2*4096+1)); err != snowflake.ErrLeaseEnded {
		t.Fatal("a batch beyond the end:", err)
	}
	fill(t, g, 2*4096)
	for range 2 {
		if _, err := g.TryNext(); err != snowflake.ErrLeaseEnded {
			t.Fatal(err)
		}
	}
	clock.ms = epoch + 10
	if _, err := g.TryNext(); err != snowflake.ErrLeaseEnded {
		t.Fatal(err)
	}
	g.Extend(epoch + 10)
	if _, err := g.TryNext(); err != snowflake.ErrLeaseEnded {
		t.Fatal("an ID at the end:", err)
	}
	g.Extend(epoch + 11)
	if id := next(t, g); g.Layout().Millis(id) != epoch+10 {
		t.Error("not at the clock")
	}
	g.Extend(epoch + 3) // never shrinks
	if got := g.Lease(); got != (snowflake.Lease{Start: epoch, End: epoch + 11}) {
		t.Error(got)
	}
	next(t, g)
}

func TestLease_IsKeptWhateverTheLayout(t *testing.T) {
	clock := &manual{epoch}
	before := snowflake.Lease{Start: 5, End: 10}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: before})
	if _, err := g.TryNext(); err != snowflake.ErrLeaseEnded {
		t.Error("a lease before the layout:", err)
	}
	if got := g.Stop(); got != 5 {
		t.Error("without any ID, Stop returned", got)
	}
	g = newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: snowflake.Lease{Start: 5, End: math.MaxInt64}})
	next(t, g)
	g.Extend(math.MaxInt64)
	if got := g.Lease(); got != (snowflake.Lease{Start: 5, End: math.MaxInt64}) {
		t.Error(got)
	}
	clock.ms = g.Layout().LastMillis()
	next(t, g)
}

func TestLease_MayEndJustBeforeTheLayout(t *testing.T) {
	last := snowflake.Twitter.LastMillis()
	clock := &manual{last}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: snowflake.Lease{Start: last - 5, End: last}})
	if _, err := g.TryNext(); err != snowflake.ErrLeaseEnded {
		t.Error(err)
	}
	g.Extend(last + 1)
	fill(t, g, 4096)
	if _, err := g.TryNext(); !errors.Is(err, snowflake.ErrInvalidSystemClock) {
		t.Error("it is the layout that has ended:", err)
	}
}

func TestExtend_WithoutALeaseDoesNothing(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now})
	g.Extend(epoch - 1)
	g.Extend(math.MaxInt64)
	if g.Lease() != (snowflake.Lease{}) {
		t.Error(g.Lease())
	}
	next(t, g)
}

func TestStop_ReturnsTheFirstMillisecondNeverUsed(t *testing.T) {
	lease := snowflake.Lease{Start: epoch, End: epoch + 100}
	for name, c := range map[string]struct {
		lease snowflake.Lease
		ids   int
		want  int64
	}{
		"no lease, no ID":           {snowflake.Lease{}, 0, snowflake.Twitter.Epoch},
		"no lease, an ID":           {snowflake.Lease{}, 1, epoch + 51},
		"no ID":                     {lease, 0, epoch},
		"one ID":                    {lease, 1, epoch + 51},
		"a whole millisecond":       {lease, 4096, epoch + 51},
		"one more":                  {lease, 4097, epoch + 52},
		"all that the lease allows": {lease, 50 * 4096, epoch + 100},
	} {
		clock := &manual{epoch + 50}
		g := newGenerator(t, 0, snowflake.Options{Now: clock.now, Lease: c.lease})
		fill(t, g, c.ids)
		for range 2 {
			if got := g.Stop(); got != c.want {
				t.Errorf("%s: %d, want %d", name, got-epoch, c.want-epoch)
			}
		}
		g.Extend(epoch + 1000)
		clock.ms += 500
		if _, err := g.TryNext(); err != snowflake.ErrLeaseEnded {
			t.Errorf("%s: after Stop: %v", name, err)
		}
		if _, err := g.Next(t.Context()); err != snowflake.ErrLeaseEnded {
			t.Errorf("%s: after Stop: %v", name, err)
		}
	}
}

// A generator uses what its predecessor gave back: their IDs differ, though the clock goes
// back by an hour in between.
func TestLease_HandedOnNeverRepeats(t *testing.T) {
	clock := &manual{epoch}
	lease := snowflake.Lease{Start: epoch, End: epoch + 10_000}
	var last snowflake.ID = -1
	for i := range int64(100) {
		clock.ms = epoch + i*13 - i%7*3_600_000
		g := newGenerator(t, 9, snowflake.Options{Now: clock.now, Lease: lease, AheadMax: time.Second})
		for range 300 {
			id, err := g.TryNext()
			if err != nil {
				break
			}
			if id <= last {
				t.Fatalf("ID %d after %d", id, last)
			}
			last = id
		}
		lease.Start = g.Stop()
	}
	if ms := snowflake.Twitter.Millis(last); ms < epoch+1000 {
		t.Errorf("IDs reached only %d ms", ms-epoch)
	}
}
