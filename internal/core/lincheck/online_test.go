package lincheck_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
	"pgregory.net/rapid"
)

// driver runs an Online and a recorded history side by side, one step at a time.
type driver struct {
	online  *lincheck.Online
	source  counter
	history []lincheck.Operation
	floors  []isotone.Timestamp // by place in history
	open    []int               // places in history
	now     int64
}

func (d *driver) begin() {
	d.open = append(d.open, len(d.history))
	d.history = append(d.history, lincheck.Operation{Client: uint64(len(d.history)), Invocation: d.now})
	d.floors = append(d.floors, d.online.Begin())
	d.now++
}

// end completes the n-th open operation.
func (d *driver) end(n int) error {
	at := d.open[n]
	d.open = slices.Delete(d.open, n, n+1)
	op := &d.history[at]
	op.Completion, op.Answered = d.now, true
	d.now++
	return d.online.End(d.floors[at], op.Range)
}

// step does something that rapid chooses. It returns the verdict if an operation
// ended. The oracle answers correctly but for the answers that rapid damages.
func (d *driver) step(t *rapid.T) (error, bool) {
	choice := rapid.IntRange(0, 9).Draw(t, "step")
	if len(d.open) == 0 || choice < 4 {
		d.begin()
		return nil, false
	}
	n := rapid.IntRange(0, len(d.open)-1).Draw(t, "operation")
	op := &d.history[d.open[n]]
	if op.Range.Count == 0 {
		op.Range = d.source.next(rapid.Uint64Range(1, 3).Draw(t, "count"))
	}
	switch {
	case choice < 8:
		return d.end(n), true
	case choice == 8: // no answer will come
		d.open = slices.Delete(d.open, n, n+1)
	case rapid.IntRange(0, 4).Draw(t, "damage") == 0:
		other := d.history[rapid.IntRange(0, len(d.history)-1).Draw(t, "other")].Range.First
		back := rapid.Uint64Range(0, 6).Draw(t, "back")
		if rapid.Bool().Draw(t, "repeat") && other != (isotone.Timestamp{}) {
			op.Range.First = other
		} else {
			op.Range.First.Index = max(back, op.Range.First.Index) - back
		}
	}
	return nil, false
}

// TestOnline_FindsWhatCheckFinds: Online fails at exactly the operation that
// makes the history of completed operations fail Check.
func TestOnline_FindsWhatCheckFinds(t *testing.T) {
	found := map[lincheck.Kind]int{}
	rapid.Check(t, func(t *rapid.T) {
		d := &driver{online: lincheck.NewOnline(64)}
		for range 60 {
			got, ended := d.step(t)
			if !ended {
				continue
			}
			want := lincheck.Check(d.history)
			if (got == nil) != (want == nil) {
				t.Fatalf("Online says %v, Check says %v, of\n%s", got, want, list(d.history))
			}
			var v *lincheck.Violation
			if errors.As(got, &v) {
				found[v.Kind]++
				break
			}
		}
		if stats := d.online.Stats(); stats.Unverified != 0 {
			t.Fatalf("%+v: a window larger than the history must verify all of it", stats)
		}
	})
	if found[lincheck.Duplicate] == 0 || found[lincheck.Inversion] == 0 {
		t.Errorf("the generator hardly ever gives a violation: %v", found)
	}
}

// TestOnline_OwnsUpToWhatItForgot: with a window that is too small, Online still
// never cries wolf, and what it misses it has counted as unverified. And it
// verifies all operations that were overtaken by at most the window.
func TestOnline_OwnsUpToWhatItForgot(t *testing.T) {
	missed := 0
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 4).Draw(t, "window")
		d := &driver{online: lincheck.NewOnline(window)}
		for range 60 {
			before := d.online.Stats()
			got, ended := d.step(t)
			if !ended {
				continue
			}
			want := lincheck.Check(d.history)
			after := d.online.Stats()
			unverified := after.Unverified > before.Unverified
			switch {
			case got != nil && want == nil:
				t.Fatalf("false alarm %v, of\n%s", got, list(d.history))
			case got == nil && want != nil && !unverified:
				t.Fatalf("Online missed %v and did not count it, of\n%s", want, list(d.history))
			case unverified && overtaken(d.history) <= window:
				t.Fatalf("window %d, overtaken by %d, but not verified, of\n%s", window, overtaken(d.history), list(d.history))
			case want != nil && got == nil:
				missed++
			}
			if want != nil {
				break
			}
		}
	})
	if missed == 0 {
		t.Error("the generator never overtaxed the window")
	}
}

// overtaken returns by how many operations the one that completed last was
// overtaken while it was open.
func overtaken(history []lincheck.Operation) int {
	last := slices.MaxFunc(history, func(a, b lincheck.Operation) int { return int(a.Completion - b.Completion) })
	count := 0
	for _, op := range history {
		if op.Answered && last.Invocation < op.Completion && !op.Range.Last().Before(last.Range.First) && op != last {
			count++
		}
	}
	return count
}

func TestOnline_ReportsRanges(t *testing.T) {
	stamp := func(index uint64) isotone.Timestamp { return isotone.Timestamp{Time: 7, Index: index} }
	online := lincheck.NewOnline(0)
	floor := online.Begin()
	if err := online.End(floor, isotone.Range{First: stamp(16), Count: 4}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		floor  isotone.Timestamp
		answer isotone.Range
		kind   lincheck.Kind
		past   isotone.Range
		want   string
	}{
		{
			floor, isotone.Range{First: stamp(18), Count: 9}, lincheck.Duplicate, isotone.Range{First: stamp(18), Count: 2},
			"duplicate timestamps: got 00000000000000070000000000000012 and on, 2 in all; " +
				"then got 00000000000000070000000000000012 and on, 9 in all",
		},
		{
			stamp(19), isotone.Range{First: stamp(15), Count: 1}, lincheck.Inversion, isotone.Range{First: stamp(19), Count: 1},
			"real-time order inverted: got 00000000000000070000000000000013; " +
				"invoked after that, got 0000000000000007000000000000000f",
		},
		{
			floor, isotone.Range{First: stamp(math.MaxUint64), Count: 2}, lincheck.Malformed, isotone.Range{},
			"malformed operation: got 0000000000000007ffffffffffffffff and on, 2 in all: the index overflows within the range",
		},
	}
	for _, test := range tests {
		err := online.End(test.floor, test.answer)
		var v *lincheck.Violation
		if !errors.As(err, &v) || v.Kind != test.kind || v.Earlier.Range != test.past || v.Later.Range != test.answer {
			t.Fatalf("want a %v of %v, got %v", test.kind, test.past, err)
		}
		if err.Error() != test.want {
			t.Errorf("got  %s\nwant %s", err, test.want)
		}
	}
	if got := online.Stats(); got.Checked != 4 || got.Violations != 3 || got.Unverified != 0 || got.Highest != stamp(26) {
		t.Errorf("%+v", got)
	}
}

// TestOnline_NeedsNoWindowForOrder: a timestamp far below all that the window
// holds is repeated by an operation that began after it.
func TestOnline_NeedsNoWindowForOrder(t *testing.T) {
	single := func(index uint64) isotone.Range {
		return isotone.Range{First: isotone.Timestamp{Time: 7, Index: index}, Count: 1}
	}
	online := lincheck.NewOnline(1)
	if err := online.End(online.Begin(), single(5)); err != nil {
		t.Fatal(err)
	}
	floor := online.Begin()
	for index := uint64(10); index < 20; index += 2 {
		if err := online.End(online.Begin(), single(index)); err != nil {
			t.Fatal(err)
		}
	}
	var v *lincheck.Violation
	if err := online.End(floor, single(5)); !errors.As(err, &v) || v.Kind != lincheck.Inversion {
		t.Errorf("want an inversion, got %v", err)
	}
	if err := online.End(floor, single(6)); err != nil || online.Stats().Unverified != 1 {
		t.Errorf("%v, %+v", err, online.Stats())
	}
}

// crowd runs operations in many goroutines and returns how many failed.
func crowd(online *lincheck.Online, goroutines, each int, next func() isotone.Range) uint64 {
	var workers sync.WaitGroup
	var failed atomic.Uint64
	for range goroutines {
		workers.Go(func() {
			for n := range each {
				floor := online.Begin()
				answer := next()
				if n%4 == 0 {
					runtime.Gosched() // be overtaken
				}
				if online.End(floor, answer) != nil {
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return failed.Load()
}

func TestOnline_RaisesNoFalseAlarmInACrowd(t *testing.T) {
	for _, count := range []uint64{1, 3, 4096} {
		t.Run(fmt.Sprintf("count=%d", count), func(t *testing.T) {
			online, source := lincheck.NewOnline(0), new(counter)
			failed := crowd(online, 100, 500, func() isotone.Range { return source.next(count) })
			stats := online.Stats()
			if failed != 0 || stats.Violations != 0 || stats.Checked != 50000 || stats.Unverified != 0 {
				t.Errorf("%d failed, %+v", failed, stats)
			}
		})
	}
}

// TestOnline_CatchesEveryDuplicateInACrowd: each second answer repeats another
// one, given to some other goroutine at about the same time. Whichever of the two
// ends last must fail, so exactly half of them do.
func TestOnline_CatchesEveryDuplicateInACrowd(t *testing.T) {
	online := lincheck.NewOnline(0)
	var asked atomic.Uint64
	failed := crowd(online, 100, 500, func() isotone.Range { return place((asked.Add(1)-1)/2, 1) })
	if stats := online.Stats(); failed != 25000 || stats.Violations != failed || stats.Unverified != 0 {
		t.Errorf("%d failed, %+v", failed, stats)
	}
}

// TestOnline_CatchesAnInversionInACrowd: in the middle of the load one answer
// comes from before the first operation that ended.
func TestOnline_CatchesAnInversionInACrowd(t *testing.T) {
	online, source := lincheck.NewOnline(0), new(counter)
	stale := source.next(1) // given to no one
	if err := online.End(online.Begin(), source.next(1)); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Uint64
	failed := crowd(online, 100, 500, func() isotone.Range {
		if asked.Add(1) == 25000 {
			return stale
		}
		return source.next(1)
	})
	if failed != 1 {
		t.Errorf("%d failed, %+v", failed, online.Stats())
	}
}

func TestOnline_DoesNotAllocate(t *testing.T) {
	online, source := lincheck.NewOnline(8), new(counter)
	allocations := testing.AllocsPerRun(100, func() {
		for range 100 { // the window slides back several times
			floor := online.Begin()
			source.next(1) // a gap, so that the window fills and forgets
			if err := online.End(floor, source.next(1)); err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func ExampleOnline() {
	online := lincheck.NewOnline(lincheck.WindowDefault)
	request := func(answer isotone.Timestamp) {
		floor := online.Begin()
		// Send the request and wait for the answer.
		if err := online.End(floor, isotone.Range{First: answer, Count: 1}); err != nil {
			fmt.Println(err)
		}
	}
	request(isotone.Timestamp{Time: 1, Index: 5})
	request(isotone.Timestamp{Time: 1, Index: 4})
	// Output: real-time order inverted: got 00000000000000010000000000000005; invoked after that, got 00000000000000010000000000000004
}
