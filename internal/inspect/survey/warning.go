package survey

import (
	"fmt"
	"math"
	"time"
)

// absence is the longest downtime, in seconds, after which a sole voter trusts its wall
// clock when it starts.
const absence = float64(366 * 24 * time.Hour / time.Second)

// clockWarning warns that timestamps do not follow a member's clock, and says what to do. It
// returns "" if they do, or if this document does not tell.
func (s *State) clockWarning(m Member) string {
	c := s.Clock
	if c.OffsetFromQuorumSeconds == nil {
		return ""
	}
	offset, exceeded := *c.OffsetFromQuorumSeconds, c.Exceeded
	switch {
	case m.Self:
	case m.ClockOffsetSeconds == nil || c.SoleVoter:
		return ""
	default:
		offset += *m.ClockOffsetSeconds
		exceeded = c.LimitSeconds > 0 && math.Abs(offset) > c.LimitSeconds
	}
	switch {
	case !exceeded:
		return ""
	case c.SoleVoter && offset > absence:
		return fmt.Sprintf("node %d's wall clock has jumped by %s: timestamps follow the steady clock; "+
			"restart the node with CLOCK_JUMP_MAX_MS=0 if the wall clock is right", m.NodeID, span(offset))
	case c.SoleVoter:
		return fmt.Sprintf("node %d's wall clock has jumped by %s: timestamps follow the steady clock; "+
			"restart the node if the wall clock is right", m.NodeID, span(offset))
	}
	side := "ahead of"
	if offset < 0 {
		side = "behind"
	}
	return fmt.Sprintf("node %d's clock is %s %s the quorum's: timestamps follow the quorum's clock; correct the node's", m.NodeID, span(math.Abs(offset)), side)
}

// spanMax is larger than any difference of two clocks, in seconds.
const spanMax = 1e12

// span formats a time as two digits and a unit or, from 99.5 s on, by its two largest units.
func span(seconds float64) string {
	if math.IsNaN(seconds) || math.Abs(seconds) > spanMax {
		return noFigure
	}
	if math.Abs(seconds) < 99.5 {
		return digits(seconds, 2)
	}
	sign, whole := "", int64(math.Round(math.Abs(seconds)))
	if seconds < 0 {
		sign = "-"
	}
	units := []struct {
		name string
		size int64
	}{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"min", 60}, {"s", 1}}
	for i, u := range units[:len(units)-1] {
		n, next := whole/u.size, units[i+1]
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%s%d %s", sign, n, u.name)
		if rest := whole % u.size / next.size; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, next.name)
		}
		return text
	}
	return fmt.Sprintf("%s%d s", sign, whole)
}
