//go:build linux

package chaos

import (
	"fmt"
	"time"

	"github.com/isotone/isotone/internal/host/faults"
)

const (
	clockFaultMin = 200 * time.Millisecond
	clockFaultMax = 15 * time.Second
	jumpMin       = 10 * time.Millisecond
	jumpMax       = 3 * time.Hour
	// driftMaxPPM is the error of a clock's rate that lease mode allows (I5).
	driftMaxPPM = 100_000
	// steadyMaxPPM is the error of a steady clock's rate that intervals allow, less what the machine's
	// own may be wrong by (I14).
	steadyMaxPPM = 150
)

// setClocks sets a fault of clocks, on top of the offset that all clocks have.
func (s *Storm) setClocks(nodes []*Node, f faults.ClockSetting) {
	if s.c.Nodes[0].clock == "" {
		return
	}
	f.OffsetMS += s.ahead
	for _, n := range nodes {
		f.SteadyPPM = s.rand.Int64N(2*steadyMaxPPM+1) - steadyMaxPPM // another one each time
		n.SetClock(f)
	}
}

func (s *Storm) planClock(f faults.ClockSetting, what string) *fault {
	n := s.node()
	nodes, note := []*Node{n}, s.name(n)
	if s.rand.IntN(4) == 0 {
		nodes, note = s.c.Nodes, "all nodes"
	}
	lasts := s.between(clockFaultMin, clockFaultMax)
	plan := &fault{harmless: true, lasts: lasts, note: fmt.Sprintf("%s%s, for %v", note, what, lasts)}
	for _, n := range nodes {
		plan.about = append(plan.about, fmt.Sprint("clock of ", n.ID))
	}
	plan.begin = func() { s.setClocks(nodes, f) }
	plan.end = func() {
		s.furthest = max(s.furthest, s.ahead+f.OffsetMS)
		s.setClocks(nodes, faults.ClockSetting{})
	}
	return plan
}

func (s *Storm) planJump() *fault {
	jump := s.between(jumpMin, jumpMax)
	if s.rand.IntN(2) == 0 {
		jump = -jump
	}
	return s.planClock(faults.ClockSetting{OffsetMS: jump.Milliseconds()}, fmt.Sprintf(" by %v", jump))
}

func (s *Storm) planDrift() *fault {
	ppm := s.rand.Int64N(2*driftMaxPPM+1) - driftMaxPPM
	if s.rand.IntN(2) == 0 {
		ppm = driftMaxPPM * (2*s.rand.Int64N(2) - 1)
	}
	return s.planClock(faults.ClockSetting{RatePPM: ppm}, fmt.Sprintf(" by %+.1f %%", float64(ppm)/1e4))
}

func (s *Storm) planFreeze() *fault { return s.planClock(faults.ClockSetting{Freeze: true}, "") }
