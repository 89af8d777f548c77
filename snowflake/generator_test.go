package snowflake_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// manual is a clock that a test sets. It is for one goroutine.
type manual struct{ ms int64 }

func (c *manual) now() int64 { return c.ms }

func TestNew_WorksAlone(t *testing.T) {
	before := time.Now().UnixMilli()
	g := snowflake.New(1023)
	a, b := next(t, g), next(t, g)
	after := time.Now().UnixMilli()
	l := snowflake.Twitter
	if b <= a || l.Worker(a) != 1023 || l.Worker(b) != 1023 {
		t.Error(a, b)
	}
	if l.Millis(a) < before || l.Millis(b) > after {
		t.Errorf("made at %d and %d, in [%d, %d]", l.Millis(a), l.Millis(b), before, after)
	}
	if g.Worker() != 1023 || g.Layout() != l || g.Lease() != (snowflake.Lease{}) {
		t.Error(g.Worker(), g.Layout(), g.Lease())
	}
}

func TestNew_PanicsOutsideTheWorkers(t *testing.T) {
	for _, worker := range []int{-1, 1024, math.MaxInt, math.MinInt} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("worker %d is taken", worker)
				}
			}()
			snowflake.New(worker)
		}()
	}
}

func TestNewGenerator_NamesEveryFault(t *testing.T) {
	_, err := snowflake.NewGenerator(1024, snowflake.Options{Lease: snowflake.Lease{Start: 9, End: 8}, AheadMax: -1})
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, fault := range []string{"worker 1024", "lease [9, 8)", "AheadMax"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q is missing in %q", fault, err)
		}
	}
	for name, o := range map[string]snowflake.Options{
		"a layout with faults":         {Layout: snowflake.Layout{TimeBits: 41}},
		"an epoch alone":               {Layout: snowflake.Layout{Epoch: 1}},
		"more than an hour ahead":      {AheadMax: time.Hour + 1},
		"a lease that ends too early":  {Lease: snowflake.Lease{Start: 9, End: 8}},
		"a lease before 1970":          {Lease: snowflake.Lease{Start: -1, End: 8}},
		"a lease with no end":          {Lease: snowflake.Lease{Start: 9}},
		"a lease after all the layout": {Lease: snowflake.Lease{Start: snowflake.Twitter.LastMillis() + 1, End: math.MaxInt64}},
	} {
		if _, err := snowflake.NewGenerator(0, o); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTryNext_FollowsTheClockAndCountsInAMillisecond(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 5, snowflake.Options{Now: clock.now})
	l := g.Layout()
	for ms := range int64(3) {
		clock.ms = epoch + ms*10
		for sequence := range 5 {
			if id := next(t, g); l.Millis(id) != clock.ms || l.Sequence(id) != sequence || l.Worker(id) != 5 {
				t.Fatalf("%d ms, sequence %d, worker %d", l.Millis(id), l.Sequence(id), l.Worker(id))
			}
		}
	}
}

func TestTryNext_BorrowsUntilAheadMaxAndIsThenExhausted(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, AheadMax: 2 * time.Millisecond})
	ids := fill(t, g, 3*4096-1)
	last := next(t, g)
	if l := g.Layout(); l.Millis(last) != epoch+2 || l.Sequence(last) != 4095 || last <= ids[len(ids)-1] {
		t.Errorf("the last ID is at %d, sequence %d", l.Millis(last)-epoch, l.Sequence(last))
	}
	for range 3 {
		if _, err := g.TryNext(); err != snowflake.ErrExhausted {
			t.Fatal(err)
		}
	}
	clock.ms++
	if id := next(t, g); g.Layout().Millis(id) != epoch+3 || g.Layout().Sequence(id) != 0 {
		t.Error("a refusal used up IDs")
	}
}

func TestTryNext_NeverAheadWithANanosecond(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, AheadMax: time.Nanosecond})
	fill(t, g, 4096)
	if _, err := g.TryNext(); err != snowflake.ErrExhausted {
		t.Error(err)
	}
	clock.ms--
	if _, err := g.TryNext(); !errors.Is(err, snowflake.ErrInvalidSystemClock) {
		t.Error(err)
	}
}

func TestTryNext_KeepsOrderWhileTheClockIsABitBack(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now})
	first := next(t, g)
	clock.ms = epoch - 1000
	if second := next(t, g); second != first+1 {
		t.Errorf("%d after %d", second, first)
	}
	clock.ms = epoch - 1001
	_, err := g.TryNext()
	var fault *snowflake.InvalidSystemClock
	if !errors.As(err, &fault) || *fault != (snowflake.InvalidSystemClock{Fault: snowflake.ClockBehind, Now: epoch - 1001, Bound: epoch}) {
		t.Errorf("%+v", err)
	}
	clock.ms = epoch - 1000
	if third := next(t, g); third != first+2 {
		t.Errorf("%d after %d, which is not two more", third, first)
	}
}

func TestTryNext_RefusesClocksOutsideTheLayout(t *testing.T) {
	clock := &manual{}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now})
	l := g.Layout()
	for _, c := range []struct {
		now   int64
		fault snowflake.ClockFault
		bound int64
	}{
		{l.FirstMillis() - 1, snowflake.ClockBeforeLayout, l.FirstMillis()},
		{0, snowflake.ClockBeforeLayout, l.FirstMillis()},
		{-1, snowflake.ClockBeforeLayout, l.FirstMillis()},
		{math.MinInt64, snowflake.ClockBeforeLayout, l.FirstMillis()},
		{l.LastMillis() + 1, snowflake.ClockAfterLayout, l.LastMillis()},
		{math.MaxInt64, snowflake.ClockAfterLayout, l.LastMillis()},
	} {
		clock.ms = c.now
		_, err := g.TryNext()
		var got *snowflake.InvalidSystemClock
		if want := (snowflake.InvalidSystemClock{Fault: c.fault, Now: c.now, Bound: c.bound}); !errors.As(err, &got) || *got != want {
			t.Errorf("%d: %+v, want %+v", c.now, err, want)
		}
	}
	clock.ms = l.FirstMillis()
	if id := next(t, g); id != 0 {
		t.Error("the first ID of worker 0 is", int64(id))
	}
	clock.ms = l.LastMillis()
	ids := fill(t, g, 4096)
	if l.Millis(ids[4095]) != l.LastMillis() {
		t.Error("the last millisecond is not used")
	}
	if _, err := g.TryNext(); !errors.Is(err, snowflake.ErrInvalidSystemClock) {
		t.Error("after the last ID:", err)
	}
}

func TestTryNext_UsesTheVeryLastNumber(t *testing.T) {
	clock := &manual{math.MaxInt64}
	g := newGenerator(t, 0, snowflake.Options{Layout: snowflake.Layout{TimeBits: 63}, Now: clock.now, AheadMax: time.Hour})
	if id := next(t, g); id != math.MaxInt64 {
		t.Error(int64(id))
	}
	if _, err := g.TryNext(); !errors.Is(err, snowflake.ErrInvalidSystemClock) {
		t.Error(err)
	}
	if _, err := g.TryNext(); !errors.Is(err, snowflake.ErrInvalidSystemClock) {
		t.Error("taken for stopped:", err)
	}
}

func TestTryFill_IsConsecutiveAcrossMilliseconds(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 3, snowflake.Options{Now: clock.now})
	first := next(t, g)
	ids := fill(t, g, 10_000)
	l := g.Layout()
	for i, id := range ids {
		at := int(l.Sequence(first)) + 1 + i
		if l.Millis(id) != epoch+int64(at/4096) || l.Sequence(id) != at%4096 || l.Worker(id) != 3 {
			t.Fatalf("ID %d: %d ms, sequence %d, worker %d", i, l.Millis(id)-epoch, l.Sequence(id), l.Worker(id))
		}
	}
}

func TestTryFill_TakesAllOrNone(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, AheadMax: time.Millisecond})
	if g.BatchMax() != 8192 {
		t.Fatal(g.BatchMax())
	}
	fill(t, g, 8000)
	dst := make([]snowflake.ID, 193)
	if err := g.TryFill(dst); err != snowflake.ErrExhausted {
		t.Fatal(err)
	}
	if slices.Max(dst) != 0 {
		t.Error("some IDs were written")
	}
	if ids := fill(t, g, 192); g.Layout().Sequence(ids[0]) != 8000-4096 {
		t.Error("the refusal used up IDs")
	}
}

func TestTryFill_RefusesWhatNeverFits(t *testing.T) {
	clock := &manual{epoch}
	g := newGenerator(t, 0, snowflake.Options{Now: clock.now, AheadMax: time.Millisecond})
	if err := g.TryFill(make([]snowflake.ID, 8193)); err != snowflake.ErrBatch {
		t.Error(err)
	}
	if err := g.NextN(t.Context(), make([]snowflake.ID, 8193)); err != snowflake.ErrBatch {
		t.Error(err)
	}
	fill(t, g, 8192)
}

func TestTryFill_OfNothingIsNothing(t *testing.T) {
	g := newGenerator(t, 0, snowflake.Options{Now: func() int64 { return -1 }})
	if err := g.TryFill(nil); err != nil {
		t.Error(err)
	}
	if err := g.NextN(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestBatchMax_IsBoundedByTheLayout(t *testing.T) {
	for _, c := range []struct {
		layout string
		ahead  time.Duration
		want   int
	}{
		{"41/5/5/12", 0, 1001 * 4096},
		{"41/5/5/12", time.Nanosecond, 4096},
		{"20/25/18", time.Second, 1001 << 18},
		{"62/1/0", time.Second, 1001},
		{"2/0/61", time.Second, math.MaxInt},
	} {
		l, err := snowflake.ParseLayout(c.layout, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := newGenerator(t, 0, snowflake.Options{Layout: l, AheadMax: c.ahead}).BatchMax(); got != c.want {
			t.Errorf("%s, %v: %d, want %d", c.layout, c.ahead, got, c.want)
		}
	}
}

func TestGenerators_OfDifferentWorkersDiffer(t *testing.T) {
	clock := &manual{epoch}
	seen := map[snowflake.ID]int{}
	for worker := range snowflake.Twitter.Workers() {
		g := newGenerator(t, worker, snowflake.Options{Now: clock.now})
		for _, id := range fill(t, g, 10) {
			if other, twice := seen[id]; twice {
				t.Fatalf("ID %d of workers %d and %d", id, other, worker)
			}
			seen[id] = worker
			if snowflake.Twitter.Worker(id) != worker {
				t.Fatalf("ID %d says worker %d, want %d", id, snowflake.Twitter.Worker(id), worker)
			}
		}
	}
}
