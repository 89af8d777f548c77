package storm

import (
	"slices"
	"testing"

	"github.com/isotone/isotone"
)

func stampsOf(times ...uint64) (list []isotone.Timestamp) {
	for _, t := range times {
		list = append(list, isotone.Timestamp{Time: t})
	}
	return list
}

func TestStale_FindsWritesUnderAnEarlierToken(t *testing.T) {
	for _, c := range []struct {
		tokens []uint64
		want   []int
	}{
		{nil, nil},
		{[]uint64{1, 1, 2, 5, 5}, nil},
		{[]uint64{1, 2, 1}, []int{2}},
		{[]uint64{2, 1, 1, 2}, []int{1, 2}},
		{[]uint64{1, 9, 3, 4, 9, 10}, []int{2, 3}}, // 4 is larger than what comes before it, and stale
	} {
		if got := stale(stampsOf(c.tokens...)); !slices.Equal(got, c.want) {
			t.Errorf("tokens %v: stale are %v, want %v", c.tokens, got, c.want)
		}
	}
}

func TestLate_FindsWritesAtOrBelowAToldFrontier(t *testing.T) {
	at := func(frontier uint64, writes int) told { return told{isotone.Timestamp{Time: frontier}, writes} }
	tolds := []told{at(0, 0), at(3, 2), at(4, 2), at(5, 3)}
	for _, c := range []struct {
		stamps []uint64
		want   []told
	}{
		{[]uint64{2, 1, 5}, nil},
		{[]uint64{2, 9, 5, 6, 1}, nil},    // writes above all frontiers
		{[]uint64{2, 1, 5, 4}, tolds[2:]}, // a write exactly at a frontier
		{[]uint64{2, 1, 5, 5}, tolds[3:]}, // a stamp that is there twice
		{[]uint64{2, 1, 5, 3}, tolds[1:]}, // and one below several
		{[]uint64{2, 5}, tolds[1:]},       // a write has vanished
		{[]uint64{1, 2, 3, 5}, tolds[1:]}, // in another order
		{nil, tolds[1:]},                  // all have
		{[]uint64{0, 1, 2, 5}, []told{tolds[0], tolds[1], tolds[2], tolds[3]}},
	} {
		if got := late(stampsOf(c.stamps...), tolds); !slices.Equal(got, c.want) {
			t.Errorf("stamps %v: wrong are %v, want %v", c.stamps, got, c.want)
		}
	}
}
