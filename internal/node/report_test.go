package node

import (
	"testing"
	"time"
)

func TestElections_MeasuresTheTimeWithoutALeader(t *testing.T) {
	var e elections
	wall := time.Unix(1000, 0)
	for _, step := range []struct {
		at           time.Duration
		term, leader uint64
	}{
		{1, 1, 0}, {5, 2, 1}, {6, 2, 1}, // the first: nothing was there to miss
		{10, 2, 0}, {12, 2, 1}, // out of sight for a moment
		{20, 3, 0}, {25, 3, 0}, {50, 4, 2},
		{60, 5, 3}, // without a gap
	} {
		e.note(wall.Add(step.at), step.at, step.term, step.leader)
	}
	want := []Election{
		{wall.Add(5), 2, 1, 0}, {wall.Add(50), 4, 2, 30}, {wall.Add(60), 5, 3, 0},
	}
	if len(e.list) != len(want) {
		t.Fatalf("%+v", e.list)
	}
	for i := range want {
		if e.list[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, e.list[i], want[i])
		}
	}
	for term := range uint64(100) {
		e.note(wall, 100, 10+term, 1)
	}
	if len(e.list) != electionsMax || e.list[electionsMax-1].Term != 109 {
		t.Errorf("%d are kept, the last of term %d", len(e.list), e.list[len(e.list)-1].Term)
	}
}
