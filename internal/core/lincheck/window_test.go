package lincheck

import (
	"math"
	"testing"

	"github.com/isotone/isotone"
	"pgregory.net/rapid"
)

// TestWindow_IsTheSetOfTimestampsAboveForgotten compares with a plain set of
// single timestamps, in so little space that spans join, split places and slide.
func TestWindow_IsTheSetOfTimestampsAboveForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		w.init(rapid.IntRange(1, 8).Draw(t, "limit"))
		model := map[isotone.Timestamp]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := isotone.Range{
				First: isotone.Timestamp{Time: rapid.Uint64Range(1, 3).Draw(t, "time"), Index: rapid.Uint64Range(0, 20).Draw(t, "index")},
				Count: rapid.Uint64Range(1, 4).Draw(t, "count"),
			}
			if rapid.Bool().Draw(t, "at the end of the epoch") {
				r.First.Index = math.MaxUint64 - r.First.Index - (r.Count - 1)
			}
			addBoth(t, &w, model, r)
			checkWindow(t, &w, model)
		}
	})
}

// addBoth adds r to the window and the model and compares the answers.
func addBoth(t *rapid.T, w *window, model map[isotone.Timestamp]bool, r isotone.Range) {
	repeats := false
	for stamp := range r.All() {
		repeats = repeats || model[stamp] && !stamp.Before(w.forgotten)
	}
	common, unique := w.add(r)
	if unique == repeats {
		t.Fatalf("adding %v: unique is %v, want %v", r, unique, !repeats)
	}
	for stamp := range common.All() {
		if !model[stamp] || stamp.Before(r.First) || r.Last().Before(stamp) {
			t.Fatalf("adding %v: %v is reported as repeated", r, stamp)
		}
	}
	if unique {
		for stamp := range r.All() {
			model[stamp] = true
		}
	}
}

// checkWindow asserts what the window promises, and that it lost no place.
func checkWindow(t *rapid.T, w *window, model map[isotone.Timestamp]bool) {
	if len(w.order) > w.limit || len(w.order)+len(w.unused) != len(w.spans) {
		t.Fatalf("%d spans in use, %d places free of %d, limit %d", len(w.order), len(w.unused), len(w.spans), w.limit)
	}
	if w.forgotten != (isotone.Timestamp{}) && !model[w.forgotten] {
		t.Fatalf("forgot %v, which was never added", w.forgotten)
	}
	held := map[isotone.Timestamp]bool{}
	for i := range w.order {
		s := w.at(i)
		if i > 0 && (!w.at(i-1).end().Before(isotone.Timestamp{Time: s.time, Index: s.first}) ||
			w.at(i-1).time == s.time && w.at(i-1).last+1 == s.first) {
			t.Fatalf("spans %v and %v are not apart", *w.at(i - 1), *s)
		}
		for n := range s.last - s.first + 1 {
			held[isotone.Timestamp{Time: s.time, Index: s.first + n}] = true
		}
	}
	for stamp := range model {
		if w.forgotten.Before(stamp) && !held[stamp] {
			t.Fatalf("%v is above %v, but not in the window", stamp, w.forgotten)
		}
	}
	for stamp := range held {
		if !model[stamp] || !w.forgotten.Before(stamp) {
			t.Fatalf("%v is in the window, but was never added or is forgotten", stamp)
		}
	}
}
