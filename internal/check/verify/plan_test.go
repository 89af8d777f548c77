package verify

import (
	"testing"
	"time"
)

// TestPlanner_SetsClocksBothWays, from milliseconds to an hour; those of nodes that are killed are always ahead, and other faults
// leave clocks alone.
func TestPlanner_SetsClocksBothWays(t *testing.T) {
	p, again := newPlanner(7, FaultKinds, 3), newPlanner(7, FaultKinds, 3)
	ahead, behind := map[string]int{}, map[string]int{}
	least, most := offMax, offMin
	for range 10_000 {
		f := p.next()
		if f != again.next() {
			t.Fatal("the same seed draws another fault")
		}
		switch {
		case f.off > 0:
			ahead[f.kind]++
		case f.off < 0:
			behind[f.kind]++
		}
		if f.off != 0 {
			least, most = min(least, f.off.Abs()), max(most, f.off.Abs())
		}
	}
	if len(ahead) != 2 || ahead[Clock] == 0 || ahead[ClockKill] == 0 || len(behind) != 1 || behind[Clock] == 0 {
		t.Errorf("ahead %v, behind %v", ahead, behind)
	}
	if least < offMin || least > 2*offMin || most > offMax || most < offMax/2 {
		t.Errorf("clocks are off by %v to %v", least, most)
	}
	if least%time.Millisecond != 0 {
		t.Errorf("%v: a report has milliseconds", least)
	}
}
