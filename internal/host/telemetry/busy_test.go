package telemetry

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// pairs are the counts of n requests for two timestamps each.
func pairs(n int) []uint64 { return slices.Repeat([]uint64{2}, n) }

// counted returns the busiest names with their counts.
func counted(b *Busy) (list []string) {
	for _, n := range b.busiest() {
		list = append(list, fmt.Sprint(n.name, n.last))
	}
	return list
}

func TestBusy_CountsInWindows(t *testing.T) {
	var b Busy
	at := time.Hour
	b.Served("a", pairs(1), at)
	b.Served("b", pairs(3), at)
	b.Refused("a", 5, at)
	if list := counted(&b); list != nil {
		t.Errorf("before the window is over: %q", list)
	}
	b.roll(at + 2*time.Second)
	if list, want := counted(&b), []string{"a{1 2 5}", "b{3 6 0}"}; !slices.Equal(list, want) {
		t.Errorf("%q, want %q", list, want)
	}
	if all, want := b.load(b.last), (Load{Requests: 2, Timestamps: 4, Refused: 2.5}); all != want {
		t.Errorf("in all: %+v, want %+v", all, want)
	}
	b.Served("b", pairs(1), at+3*time.Second)
	if list := counted(&b); list != nil {
		t.Errorf("a window in which nothing was asked for: %q", list)
	}
	for i := range 10 {
		b.roll(at + time.Duration(i+4)*time.Second)
	}
	if len(b.names)+len(b.least) > 0 {
		t.Errorf("%d names of timelines that are idle are kept", len(b.names))
	}
}

// TestBusy_FindsTheBusiestOfManyNames: what is seldom asked for comes and goes, and has no effect on what is asked for often.
func TestBusy_FindsTheBusiestOfManyNames(t *testing.T) {
	var b Busy
	const rounds = 4 * BusyMax
	for i := range rounds {
		at := time.Hour + time.Duration(i)*time.Second/rounds
		for hot := range 3 {
			b.Served(fmt.Sprint("hot", hot), pairs(hot+1), at)
		}
		for k := range 3 {
			b.Served(fmt.Sprint("cold", i, "/", k), pairs(1), at)
		}
		if len(b.names) > BusyMax || len(b.least) != len(b.names) {
			t.Fatalf("%d names, %d places", len(b.names), len(b.least))
		}
	}
	b.roll(time.Hour + time.Minute)
	want := []string{fmt.Sprint("hot2", servedCount{requests: 3 * rounds, timestamps: 6 * rounds}), fmt.Sprint("hot1", servedCount{requests: 2 * rounds, timestamps: 4 * rounds}),
		fmt.Sprint("hot0", servedCount{requests: rounds, timestamps: 2 * rounds})}
	if list := counted(&b); !slices.Equal(list[:3], want) {
		t.Errorf("%q, want %q", list[:3], want)
	}
	for i, n := range b.least {
		if n.at != i || b.names[n.name] != n {
			t.Fatalf("place %d has %+v", i, n)
		}
	}
}

// TestBusy_ANewHotNameFindsAPlace among as many as there are places.
func TestBusy_ANewHotNameFindsAPlace(t *testing.T) {
	var b Busy
	at := time.Hour
	for i := range BusyMax {
		b.Served(fmt.Sprint("old", i), pairs(5), at)
	}
	for second := range 3 {
		for i := range 20 * BusyMax {
			now := at + time.Duration(second)*time.Second
			b.Served("new", pairs(1), now)
			b.Served(fmt.Sprint("old", i%BusyMax), pairs(1), now)
		}
	}
	b.roll(at + time.Minute)
	if list := counted(&b); list[0] != fmt.Sprint("new", servedCount{requests: 20 * BusyMax, timestamps: 40 * BusyMax}) {
		t.Errorf("the busiest: %q", list[0])
	}
}

// TestBusy_AWarmNameStaysAmongColdOnes: without the weight of the place that it takes, the next cold name would take its place at once.
func TestBusy_AWarmNameStaysAmongColdOnes(t *testing.T) {
	var b Busy
	for i := range BusyMax {
		b.Served(fmt.Sprint("old", i), pairs(5), time.Hour)
	}
	const asked = 500
	for i := range 20 * asked {
		name := fmt.Sprint("cold", i)
		if i%20 == 0 {
			name = "warm"
		}
		b.Served(name, pairs(1), time.Hour)
	}
	b.roll(time.Hour + time.Second)
	if list := counted(&b); list[0] != fmt.Sprint("warm", servedCount{requests: asked, timestamps: 2 * asked}) {
		t.Errorf("the busiest: %q", list[0])
	}
}

func TestBusy_CountingAllocatesNothing(t *testing.T) {
	var b Busy
	counts := pairs(2)
	b.Served("a", counts, time.Hour)
	if n := testing.AllocsPerRun(100, func() { b.Served("a", counts, time.Hour) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBusy_ReportsUntilItIsEnough(t *testing.T) {
	var b Busy
	for i := range 9 {
		b.Served(fmt.Sprint(i), pairs(i+1), time.Hour)
	}
	var names []string
	all := b.Report(time.Hour+time.Second, func(name string, l Load) bool {
		names = append(names, fmt.Sprint(name, l))
		return len(names) < 2
	})
	if want := []string{"8{9 18 0}", "7{8 16 0}"}; all != (Load{Requests: 45, Timestamps: 90}) || !slices.Equal(names, want) {
		t.Errorf("%+v, %q, want %q", all, names, want)
	}
}
