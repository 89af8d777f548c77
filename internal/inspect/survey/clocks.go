package survey

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// clocks are the clocks of all members as one of them sees them. Only the readings of one
// observer can be compared: each reading was on its way for a while, so that every member finds
// its own clock ahead of the others'.
type clocks struct {
	observer uint64
	// alone is set if the observer is the only voter. Its offset is how far its wall clock has
	// jumped.
	alone bool
	// offsets are ahead of the quorum's clock, which is the largest reading that a quorum of the
	// voters reaches, in seconds by node ID. So one voter at least is not ahead.
	offsets map[uint64]float64
}

// clocks returns what the leader sees, or else the first member that sees enough clocks.
func (r *Report) clocks() clocks {
	leads := func(v View) bool { return r.Leader != nil && v.NodeID == r.Leader.NodeID }
	var best clocks
	for _, v := range r.Views {
		if v.State == nil || best.offsets != nil && !leads(v) {
			continue
		}
		if seen := v.State.clocks(); seen.offsets != nil {
			best = seen
		}
	}
	return best
}

// clocks returns the clocks as this node sees them; without offsets if it knows too few.
func (s *State) clocks() clocks {
	c := clocks{observer: s.Node.ID, alone: s.Clock.SoleVoter}
	if c.alone {
		if jump := s.Clock.OffsetFromQuorumSeconds; jump != nil {
			c.offsets = map[uint64]float64{c.observer: *jump}
		}
		return c
	}
	known := map[uint64]float64{}
	var voters []float64
	count := 0
	for _, m := range s.Members {
		offset := m.ClockOffsetSeconds
		if m.Self {
			offset = new(float64)
		}
		if !m.Learner {
			count++
		}
		if offset == nil {
			continue
		}
		known[m.NodeID] = *offset
		if !m.Learner {
			voters = append(voters, *offset)
		}
	}
	quorum := count/2 + 1
	if count < 2 || len(voters) < quorum {
		return c
	}
	slices.Sort(voters)
	reference := voters[len(voters)-quorum]
	c.offsets = map[uint64]float64{}
	for id, offset := range known {
		c.offsets[id] = offset - reference
	}
	return c
}

// text describes what a machine says about its wall clock.
func (u *UTC) text() string {
	switch {
	case u == nil:
		return "unknown"
	case u.ErrorSeconds == nil:
		return "not synchronized (" + or(u.Source) + ")"
	case !u.Synchronized:
		return "within " + duration(u.ErrorSeconds) + ", running free (" + or(u.Source) + ")"
	}
	return "within " + duration(u.ErrorSeconds) + " (" + or(u.Source) + ")"
}

// writeUTC writes how far the members' wall clocks may be from UTC, if any of them tells.
func (r *Report) writeUTC(w io.Writer) {
	var told []string
	known := false
	for _, v := range r.Views {
		if v.State != nil && v.State.Clock.UTC != nil {
			told = append(told, v.name()+" "+v.State.Clock.UTC.text())
			known = known || v.State.Clock.UTC.ErrorSeconds != nil
		}
	}
	if known {
		fmt.Fprintf(w, "UTC, as the machines tell: %s.\n", strings.Join(told, ", "))
	}
}

// of formats the clock of one member.
func (c clocks) of(id uint64) string {
	if offset, ok := c.offsets[id]; ok {
		return signed(offset)
	}
	return noFigure
}

// legend says what the offsets mean; "" if there are none.
func (c clocks) legend() string {
	switch {
	case c.offsets == nil:
		return ""
	case c.alone:
		return fmt.Sprintf("CLOCK: how far the wall clock of node %d has jumped; nobody else vouches for it\n", c.observer)
	}
	return fmt.Sprintf("CLOCK: ahead of (+) or behind (-) the clock that a quorum of the voters reaches, as node %d sees it\n", c.observer)
}
