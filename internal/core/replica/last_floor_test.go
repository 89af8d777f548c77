package replica_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// TestFloor_EvenForceLeavesTime: leaders come and go beyond the largest floor, and nearly all of the
// time after it is left.
func TestFloor_EvenForceLeavesTime(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	for _, floor := range []uint64{oracle.FloorMax + 1, oracle.CeilingMax - 2, oracle.CeilingMax, math.MaxUint64} {
		in := &replica.Input{RaiseFloor: &replica.FloorRequest{Time: floor, Force: true}}
		in.Mono, in.Now, in.Steady = c.mono, uint64(c.mono), l.steady(c.mono)
		e := l.Step(in)
		if e.FloorRefused == nil || !errors.Is(e.FloorRefused, isotone.ErrInvalidArgument) || !strings.Contains(e.FloorRefused.Error(), "at most 2080-07-10T17:30:30Z, even with force") {
			t.Errorf("%d: %v", floor, e.FloorRefused)
		}
	}
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: oracle.FloorMax, Force: true}})
	c.settle()
	for range 4 {
		if first := c.must(l); first.Time <= oracle.FloorMax {
			t.Errorf("%v is not above the floor", first)
		}
		former := l
		former.down = true
		if !c.answers() {
			t.Fatal("the next leader does not answer")
		}
		l = c.leader()
		former.down = false
		c.tick(100)
	}
	if left := time.Duration(oracle.CeilingMax - l.Status().Ceiling); left < 181*365*24*time.Hour {
		t.Errorf("%v of time are left", left)
	}
}

// The largest floor is the last millisecond of IDs in the default layout.
func TestFloor_LargestIsTheEndOfIDs(t *testing.T) {
	if end := time.UnixMilli(snowflake.Twitter.Epoch + 1<<41).Add(-1); end.UnixNano() != int64(oracle.FloorMax) {
		t.Errorf("IDs end at %v, floors at %v", end.UTC(), time.Unix(0, int64(oracle.FloorMax)).UTC())
	}
}
