package route_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/core/route"
)

// next returns the addresses of the next n attempts.
func next(r *route.Route, n int) (addrs []string) {
	for range n {
		addrs = append(addrs, r.Next())
	}
	return addrs
}

func TestRoute_Order(t *testing.T) {
	again := slices.Repeat([]string{"b"}, route.AgainMax)
	for _, tt := range []struct {
		name string
		do   func(r *route.Route)
		want []string
	}{
		{"nothing known", func(*route.Route) {}, []string{"", ""}},
		{"one address, for ever", func(r *route.Route) { r.Know("a") }, []string{"a", "a", "a"}},
		{"the most trusted first, then all in turn", func(r *route.Route) { r.Know("a", "b") }, []string{"a", "b", "a", "b"}},
		{"repetitions and empty ones are no addresses", func(r *route.Route) { r.Know("", "a", "a", "", "b") }, []string{"a", "b", "a"}},
		{"no more than the limit", func(r *route.Route) { r.Know("a", "b", "c", "d") }, []string{"a", "b", "c", "a"}},
		{"where it was reached, first and for a while", func(r *route.Route) {
			r.Know("a", "b")
			next(r, 2)
			r.Reached()
		}, append(slices.Clone(again), "a", "b", "a")},
		{"a new address at once", func(r *route.Route) {
			r.Know("b")
			r.Next()
			r.Reached()
			r.Know("a", "b")
		}, []string{"a", "b", "a"}},
		{"a repeated list changes nothing", func(r *route.Route) {
			r.Know("a", "b")
			r.Next()
			r.Know("a", "b")
		}, []string{"b", "a", "b"}},
		{"an address that is dropped is not dialed", func(r *route.Route) {
			r.Know("a", "b")
			next(r, 2)
			r.Reached()
			r.Know("a")
		}, []string{"a", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r route.Route
			tt.do(&r)
			if got := next(&r, len(tt.want)); !slices.Equal(got, tt.want) {
				t.Errorf("dials %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRoute_At(t *testing.T) {
	var r route.Route
	at := []string{r.At()}
	r.Know("a", "b")
	at = append(at, r.At())
	next(&r, 2)
	r.Reached()
	at = append(at, r.At())
	r.Know("c", "a")
	at = append(at, r.At())
	if want := []string{"", "a", "b", "c"}; !slices.Equal(at, want) {
		t.Errorf("the member is taken to be at %v, want %v", at, want)
	}
}

// TestRoute_TriesEachAddressAgain: whatever happened before, AgainMax attempts and one for each
// address include all of them.
func TestRoute_TriesEachAddressAgain(t *testing.T) { rapid.Check(t, triesEachAgain) }

func FuzzRoute(f *testing.F) { f.Fuzz(rapid.MakeFuzz(triesEachAgain)) }

func triesEachAgain(t *rapid.T) {
	var r route.Route
	addrs := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}), 0, 5)
	for _, what := range rapid.SliceOfN(rapid.IntRange(0, 4), 0, 60).Draw(t, "events") {
		switch what {
		case 0:
			r.Know(addrs.Draw(t, "addresses")...)
		case 1:
			r.Reached()
		case 2:
			r.Refused()
		default:
			r.Next()
		}
	}
	known := r.Addresses()
	dialed := next(&r, route.AgainMax+len(known))
	for _, a := range known {
		if !slices.Contains(dialed, a) {
			t.Fatalf("of %v only %v were dialed", known, dialed)
		}
	}
	for _, a := range dialed {
		if a != "" && !slices.Contains(known, a) {
			t.Fatalf("%q was dialed, which is none of %v", a, known)
		}
	}
}

func TestRoute_Pauses(t *testing.T) {
	var r route.Route
	pauses := func(n int, jitter float64) (list []time.Duration) {
		for range n {
			list = append(list, r.Pause(jitter))
		}
		return list
	}
	const ms = time.Millisecond
	for _, tt := range []struct {
		before func()
		jitter float64
		want   []time.Duration
	}{
		{func() {}, 0, []time.Duration{0, 20 * ms, 40 * ms, 80 * ms, 100 * ms, 100 * ms}},
		{r.Refused, 0, []time.Duration{500 * ms, 100 * ms}},
		{r.Lasted, 1, []time.Duration{10 * ms, 20 * ms, 40 * ms, 50 * ms}},
	} {
		tt.before()
		if got := pauses(len(tt.want), tt.jitter); !slices.Equal(got, tt.want) {
			t.Errorf("pauses of %v, want %v", got, tt.want)
		}
	}
}

func TestIsLocal(t *testing.T) {
	local := "localhost:1 127.0.0.1:1 127.1.2.3:60001 [::1]:1 0.0.0.0:1 [::]:1 [::ffff:127.0.0.1]:1 [::1%lo]:1 :60001"
	for addr := range strings.FieldsSeq(local) {
		if !route.IsLocal(addr) {
			t.Errorf("others can dial %q", addr)
		}
	}
	for addr := range strings.FieldsSeq("10.0.0.1:1 [fd00::1]:1 node1.example:60001 localhost.example:1 127.example:1") {
		if route.IsLocal(addr) {
			t.Errorf("others cannot dial %q", addr)
		}
	}
}
