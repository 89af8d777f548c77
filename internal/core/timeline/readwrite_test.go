package timeline_test

import (
	"math/rand/v2"
	"testing"

	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/timeline"
)

const ms = 1_000_000 // in nanoseconds

func TestReadWrite_Answers(t *testing.T) {
	var o timeline.ReadWrite
	for i, c := range []struct {
		op                         timeline.Op
		at, base, now, ceiling, to uint64 // ms but for base and ceiling, which are ns; to 0: refused
	}{
		{timeline.OpRead, 0, 100*ms + 1, 0, 200 * ms, 100},
		{timeline.OpPeek, 0, 100*ms + 1, 150, 200 * ms, 100},
		{timeline.OpWrite, 0, 100*ms + 1, 0, 200 * ms, 101},   // the clock is not known
		{timeline.OpWrite, 0, 100*ms + 1, 150, 200 * ms, 150}, // it is ahead
		{timeline.OpWrite, 0, 100*ms + 1, 149, 200 * ms, 151}, // it goes back
		{timeline.OpRead, 0, 100*ms + 1, 160, 200 * ms, 100},  // nothing is applied
		{timeline.OpApply, 150, 100 * ms, 160, 200 * ms, 150},
		{timeline.OpApply, 101, 100 * ms, 160, 200 * ms, 150}, // late, or again
		{timeline.OpPeek, 0, 100 * ms, 160, 200 * ms, 151},
		{timeline.OpApply, 170, 100 * ms, 160, 200 * ms, 170}, // of which no write was answered
		{timeline.OpWrite, 0, 100 * ms, 160, 200 * ms, 171},
		{timeline.OpApply, 200, 100 * ms, 160, 200 * ms, 0}, // at the ceiling
		{timeline.OpApply, 1 << 63, 100 * ms, 160, 200 * ms, 0},
		{timeline.OpRead, 0, 100 * ms, 160, 200 * ms, 170},
		{timeline.OpWrite, 0, 100 * ms, 200, 200*ms + 1, 200}, // the last time below the ceiling
		{timeline.OpWrite, 0, 100 * ms, 200, 200*ms + 1, 0},
		{timeline.OpWrite, 0, 300 * ms, 250, 400 * ms, 301}, // another tenure
		{timeline.OpRead, 0, 300 * ms, 250, 400 * ms, 300},
	} {
		if got, ok := o.Do(c.op, c.at, c.base, c.now*ms, c.ceiling); got != c.to || ok != (c.to > 0) {
			t.Errorf("%d: %v %d: %d, %v, want %d", i, c.op, c.at, got, ok, c.to)
		}
	}
}

// TestReadWrite_KeepsItsOrderThroughTenures: owners who know nothing of each other but a base at or above the ceiling before are one oracle.
func TestReadWrite_KeepsItsOrderThroughTenures(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var history []lincheck.ReadWrite
		owners := make([]timeline.ReadWrite, 3)
		owner, written := &owners[0], uint64(0)
		base, now, ceiling := uint64(50*ms+3), uint64(40*ms), uint64(60*ms+9)
		for at := range int64(200) {
			switch random.IntN(12) {
			case 0: // it may have been an owner before, or be started again
				owner, base = &owners[random.IntN(3)], ceiling
				ceiling += 1 + random.Uint64N(20*ms)
				if random.IntN(2) == 0 {
					*owner = timeline.ReadWrite{}
				}
			case 1:
				ceiling += random.Uint64N(20 * ms)
			case 2:
				base += random.Uint64N(ceiling - base) // a floor
			}
			now += random.Uint64N(4*ms) - ms
			c := lincheck.ReadWrite{Op: timeline.OpWrite + timeline.Op(random.IntN(4)), Invocation: 2 * at, Completion: 2*at + 1}
			if c.Op == timeline.OpApply {
				c.At = written + random.Uint64N(2)*random.Uint64N(30)
			}
			c.Time, c.Answered = owner.Do(c.Op, c.At, base, now, ceiling)
			if c.Answered && (c.Time < base/ms || c.Time*ms >= ceiling) {
				t.Fatalf("seed %d: %v outside of [%d, %d)", seed, c, base, ceiling)
			}
			if c.Answered && c.Op == timeline.OpWrite {
				written = c.Time
			}
			history = append(history, c)
		}
		if err := lincheck.CheckReadWrite(history); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
