package proxy

import (
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
)

// TestMeter_DividesEveryTurn: the costs of the requests add up to the cost of the turns, whether
// a request takes one turn or several, and a client has one in a turn or two.
func TestMeter_DividesEveryTurn(t *testing.T) {
	m := newMeter()
	a, b := &clientConn{}, &clientConn{}
	var costs []time.Duration
	tell := func(r *record, reported bool) {
		if !reported || !r.section.Measured || r.section.System != r.section.User/3 {
			t.Errorf("%+v, reported %v", r.section, reported)
		}
		costs = append(costs, r.section.CPU())
	}
	settle := func(ms int) {
		lap := time.Duration(ms) * time.Millisecond
		m.settle(stats.Section{User: lap * 3 / 4, System: lap / 4, Measured: true}, tell)
	}
	end := func(h *clientConn) { m.end(h, &ended{record{}, true}) }

	m.touch(a)
	m.touch(b)
	m.touch(a)
	settle(16) // 8 each
	settle(999)
	end(a)
	m.touch(a) // its next one
	settle(8)  // 4 each: 12 for the first of a
	end(b)
	end(a)
	settle(8) // 4 each: 12 for b, 8 for the second of a
	m.touch(a)
	end(a)
	settle(4)
	want := []time.Duration{12, 12, 8, 4}
	for i, cost := range costs {
		if len(costs) != len(want) || cost != want[i]*time.Millisecond {
			t.Fatalf("the requests cost %v, want %v", costs, want)
		}
	}
	if len(costs) == 0 {
		t.Error("no request has ended")
	}
}

func TestMeter_WallIsNoShorterThanTheWork(t *testing.T) {
	m := newMeter()
	h := &clientConn{}
	m.end(h, &ended{record{section: stats.Section{Wall: 1}}, false}) // begun and ended in one turn
	m.settle(stats.Section{User: 5, Measured: true}, func(r *record, reported bool) {
		if r.section.Wall != 5 || r.section.Stall() != 0 || reported {
			t.Errorf("%+v", r.section)
		}
	})
}
