package spec

import (
	"cmp"
	"slices"
)

const second = 1_000_000_000

const (
	// A reading of a wall clock counts for validReadings times the time between two, which is a second, or a tick if that is longer.
	validReadings = 10
	// aheadMax is how far ahead of the clocks a floor that a client carries may move time, or a cluster clock may start, in nanoseconds.
	aheadMax = 10 * second
	// absenceMax is how far ahead of the ceiling a sole voter follows its clock at its start: 366 days, in nanoseconds.
	absenceMax = 366 * 24 * 3600 * second
)

// wallClocks are what a process knows of the wall clocks of the voters. Times are unix nanoseconds, but for those of its steady clock.
type wallClocks struct {
	// jump is how far it may go by its own clock beyond that of the quorum, 0 for any way, reach how far its reservations reach ahead. reserved is the largest ceiling that its log
	// asked for when it started.
	jump, reach, reserved uint64
	wall                  uint64
	atBefore              int64 // the time of the step before
	told                  map[uint64]wallReading
	// quorum is the clock of a quorum, of a sole voter its own as far as it follows that.
	quorum wallReading
	sole   bool
	// vouched is the latest time that it could go by since it last wrote entries. operator is the largest floor that an operator has asked for, mayRaise the largest of a
	// request that may move time ahead of the clocks.
	vouched, operator, mayRaise uint64
}

// wallReading is what a clock showed at a time of the steady clock, if anything is known.
type wallReading struct {
	wall  uint64
	at    int64
	known bool
}

func (c wallReading) now(at int64) uint64 { return c.wall + uint64(max(0, at-c.at)) }

// beginClock notes the time that the process could go by in the step before, and reads its clock.
func (n *node) beginClock(e Event) {
	n.vouched = max(n.vouched, n.time(n.atBefore))
	if l := n.leading; l != nil && l.open {
		l.room, l.roomAt = max(l.room+uint64(e.At-l.roomAt), n.time(n.atBefore)+aheadMax), e.At
	}
	n.wall, n.atBefore = e.Wall, e.At
	if !n.quorum.known {
		n.updateQuorum()
	}
}

// updateQuorum updates the clock of the quorum: the largest reading that a quorum reaches.
func (n *node) updateQuorum() {
	if !n.isAlone() {
		n.sole = false
		var clocks []uint64
		for _, id := range n.config.Voters {
			if told := n.told[id]; id == n.id {
				clocks = append(clocks, n.wall)
			} else if told.known && n.at-told.at <= validReadings*max(second, n.tick) {
				clocks = append(clocks, told.now(n.at))
			}
		}
		slices.SortFunc(clocks, func(a, b uint64) int { return cmp.Compare(b, a) })
		n.quorum = wallReading{}
		if need := len(n.config.Voters)/2 + 1; len(clocks) >= need {
			n.quorum = wallReading{clocks[need-1], n.at, true}
		}
		return
	}
	if !n.sole && n.quorum.known {
		n.sole, n.quorum = true, wallReading{n.quorum.now(n.at), n.at, true} // former voters vouch for it
	}
	if !n.quorum.known {
		began := n.wall
		if ceiling := max(n.ceiling, n.reserved); ceiling != 0 && began > ceiling+absenceMax {
			began = ceiling
		}
		n.sole, n.quorum = true, wallReading{began, n.at, true}
	}
	believed := n.quorum.now(n.at)
	if n.wall > believed && n.wall-believed <= n.jump {
		believed = n.wall
	}
	n.quorum = wallReading{believed, n.at, true}
}

// time returns the time that the process goes by, 0 while too few clocks are known.
func (n *node) time(at int64) uint64 {
	if !n.quorum.known {
		return 0
	}
	quorum := n.quorum.now(at)
	least := quorum - min(quorum, n.jump)
	if n.sole {
		least = 0
	}
	return min(max(n.wall, least), quorum+n.jump)
}

// proposed checks what a leader has put into its log.
func (s *Spec) proposed(n *node, e Event) {
	l := n.leading
	if l == nil {
		return
	}
	n.vouched = max(n.vouched, n.time(n.at))
	for _, p := range e.Proposed {
		c := p.Command
		if c.Interval != nil && *c.Interval == 0 {
			s.require("release", l.told == 0 || l.shows(n.steady) > l.told, "its log is to say that no limit runs, and it told the limit %d, which its clock passes at %d", l.told, l.shows(n.steady))
			l.ends = append(l.ends, p.Index)
		}
		s.require("level", n.knowsLevel(c.Level), "it raises the feature level to %d, and a voter has not said that it knows that", c.Level)
		if n.jump == 0 {
			continue // it may follow any clock
		}
		room := max(n.vouched+aheadMax, l.room, l.shows(n.steady))
		if !l.open {
			room = max(room, n.ceiling)
		}
		s.require("ahead", c.Reserve <= room+n.reach, "it reserves up to %d, the clocks of a quorum show %d, and time was at %d", c.Reserve, n.vouched, room)
		s.require("ahead", c.Shared <= max(n.vouched+n.reach, 1), "it reserves up to %d for timelines, and the clocks of a quorum show %d", c.Shared, n.vouched)
		s.require("ahead", c.Raise <= max(n.vouched, n.operator, min(n.mayRaise, n.vouched+aheadMax)),
			"it raises the floor to %d; operators have asked for %d, clients that may raise it for %d, and the clocks of a quorum show %d", c.Raise, n.operator, n.mayRaise, n.vouched)
	}
	n.vouched = n.time(n.at)
}
