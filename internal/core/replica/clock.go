package replica

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// The clamped clock of a node (I11). The ceiling never sinks: a leader's clock that showed
// the year 2100 for a second would leave time there for 74 years. So the members tell each
// other their clocks. The quorum's clock is the largest reading that a quorum of the voters
// reaches; of three the median. A leader uses its own clock, clamped to within
// Config.ClockJumpMax of the quorum's clock. While too few clocks are known, time holds.
//
// A sole voter compares its wall clock with its steady clock. It does not follow a jump ahead
// by more than ClockJumpMax while the process runs. At the start it follows its clock unless
// that is more than a year ahead of the ceiling. ClockJumpMax 0 follows anything. See
// docs/decisions/0011-a-quorum-of-clocks.md.

const (
	// clockInterval is the time between two readings that a node sends to its peers.
	clockInterval = time.Second
	// clockStep is the jump of the wall clock that is sent at once.
	clockStep = 50 * time.Millisecond
	// clockValidFactor times clockInterval a reading counts, continued by the steady clock.
	clockValidFactor = 10
	// absenceMax is how far ahead of the ceiling a sole voter follows its clock at the start:
	// so long the machine may have been off.
	absenceMax = 366 * 24 * time.Hour
	// clockMax is the year 2200. Later readings count as that, which leaves room below
	// oracle.CeilingMax.
	clockMax = 7_258_118_400_000_000_000
	// SkewMax is how far this node's clock may be off the median of its peers' clocks
	// before it stops making ids, as in Twitter's Snowflake.
	SkewMax = 10 * time.Second
)

// PeerClock is a reading of a peer's wall clock.
type PeerClock struct {
	ID   uint64
	Wall int64 // unix nanoseconds
}

// reading is what a clock showed (unix nanoseconds) when this node's steady clock showed at.
type reading struct {
	wall  uint64
	at    time.Duration
	known bool
}

// now continues the reading by the steady clock, up to clockMax.
func (c reading) now(mono time.Duration) (wall uint64, ok bool) {
	return min(c.wall+uint64(max(0, mono-c.at)), clockMax), c.known
}

// clocks has the clamped clock of this node.
type clocks struct {
	*facts
	// quorum is the quorum's clock; of a sole voter its own, as far as it follows that.
	quorum reading
	// sent is the wall clock minus the steady one when it was last sent to the peers.
	sent time.Duration
	// soleVoter is set while this node is the only voter.
	soleVoter bool
}

// Clock compares this node's wall clock with the quorum's clock.
type Clock struct {
	// Known is set while a quorum of clocks is known.
	Known bool
	// Offset is this node's wall clock minus the quorum's clock, 0 unless Known.
	Offset time.Duration
	// Exceeded is set while Offset is beyond Config.ClockJumpMax, so that the node does not go
	// by its own clock.
	Exceeded bool
	// SoleVoter is set while this node is the only voter. Offset is then how far its clock has
	// jumped.
	SoleVoter bool
}

// record notes a reading of a peer's clock, old by the time that it was on its way.
func (c *clocks) record(p PeerClock) {
	if _, isMember := c.state.Member(p.ID); isMember {
		c.peer(p.ID).clock = reading{wall: uint64(max(0, p.Wall)), at: c.mono, known: true}
	}
}

// send has a reading sent to the peers at intervals, and after a jump.
func (c *clocks) send() {
	offset := difference(c.now, uint64(c.mono))
	due := c.ticks%max(1, uint64(clockInterval/c.cfg.TickInterval)) == 0
	if due || (offset-c.sent).Abs() > clockStep {
		c.effects.SendClock, c.sent = true, offset
	}
}

// validity returns how long a reading counts.
func (c *clocks) validity() time.Duration {
	return clockValidFactor * max(clockInterval, c.cfg.TickInterval)
}

// peerTime returns what a peer's clock shows now, if its reading still counts.
func (c *clocks) peerTime(p *peerView) (wall uint64, ok bool) {
	wall, ok = p.clock.now(c.mono)
	return wall, ok && (c.mono-p.clock.at <= c.validity() || mutant.On(mutant.BelieveStaleClocks))
}

// update updates the quorum's clock.
func (c *clocks) update() {
	voters := c.conf.GetVoters()
	if len(voters) == 1 && voters[0] == c.cfg.Self.NodeID {
		c.updateSoleVoter()
	} else {
		c.soleVoter = false
		c.quorum = c.ofQuorum(voters)
	}
}

// ofQuorum returns the largest reading that a quorum of the voters reaches.
func (c *clocks) ofQuorum(voters []uint64) reading {
	clocks := make([]uint64, 0, len(voters))
	for _, id := range voters {
		if id == c.cfg.Self.NodeID {
			clocks = append(clocks, min(c.now, clockMax))
		} else if p := c.peers[id]; p != nil {
			if wall, ok := c.peerTime(p); ok {
				clocks = append(clocks, wall)
			}
		}
	}
	quorum := mutateClockQuorum(len(voters)/2 + 1)
	if len(clocks) < quorum || len(voters) == 0 {
		return reading{}
	}
	slices.SortFunc(clocks, func(a, b uint64) int { return cmp.Compare(b, a) })
	return reading{wall: clocks[quorum-1], at: c.mono, known: true}
}

// updateSoleVoter follows the wall clock of a sole voter as far as the steady clock allows.
func (c *clocks) updateSoleVoter() {
	now := min(c.now, clockMax)
	if !c.soleVoter || !c.quorum.known {
		began := now
		if ceiling := max(c.state.Ceiling, c.recoveredCeiling); ceiling != 0 && now > ceiling+uint64(absenceMax) {
			began = ceiling
		}
		if vouched, ok := c.quorum.now(c.mono); ok {
			began = vouched // by former voters
		}
		c.soleVoter, c.quorum = true, reading{wall: began, at: c.mono, known: true}
	}
	believed := c.quorum.wall + uint64(c.mono-c.quorum.at)
	switch {
	case c.cfg.ClockJumpMax == 0:
		believed = now
	case now > believed && (now-believed <= uint64(c.cfg.ClockJumpMax) || mutant.On(mutant.FollowJump)):
		believed = now
	}
	// A clock that went back may return: believed went on meanwhile.
	c.quorum.wall, c.quorum.at = believed, c.mono
}

// time returns what the clamped clock shows, in unix nanoseconds; 0 while too few clocks are known.
func (c *clocks) time() uint64 {
	bound := uint64(c.cfg.ClockJumpMax)
	if bound == 0 || mutant.On(mutant.IgnoreClocks) {
		return min(c.now, oracle.CeilingMax)
	}
	quorum, ok := c.quorum.now(c.mono)
	switch {
	case !ok:
		return 0
	case c.soleVoter:
		return min(c.now, quorum+bound)
	default:
		return min(max(c.now, quorum-min(quorum, bound)), quorum+bound)
	}
}

// status returns Status.Clock.
func (c *clocks) status() Clock {
	s := Clock{SoleVoter: c.soleVoter}
	quorum, ok := c.quorum.now(c.mono)
	if !ok {
		return s
	}
	s.Known, s.Offset = true, difference(c.now, quorum)
	s.Exceeded = c.cfg.ClockJumpMax > 0 && (s.Offset > c.cfg.ClockJumpMax || !s.SoleVoter && s.Offset < -c.cfg.ClockJumpMax)
	return s
}

// difference returns a - b of two unix times in nanoseconds.
func difference(a, b uint64) time.Duration {
	a, b = min(a, math.MaxInt64), min(b, math.MaxInt64)
	return time.Duration(int64(a) - int64(b))
}

// Skew returns the median of the peers' offsets, and whether there is any; see PeerOffsets.
// Of two in the middle it takes the smaller one: if only one of them is far off, it is that
// peer's clock that is wrong.
func (r *Replica) Skew() (median time.Duration, known bool) { return r.clocks.skew() }

func (c *clocks) skew() (median time.Duration, known bool) {
	var list []time.Duration
	for _, p := range c.offsets() {
		if p.ID != c.cfg.Self.NodeID {
			list = append(list, p.Offset)
		}
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	low, high := list[(len(list)-1)/2], list[len(list)/2]
	if low.Abs() < high.Abs() {
		return low, true
	}
	return high, true
}

// PeerOffset is the wall clock of a peer minus this node's.
type PeerOffset struct {
	ID     uint64
	Offset time.Duration
}

// PeerOffsets returns the offsets of all members whose reading still counts, by ID.
func (r *Replica) PeerOffsets() []PeerOffset { return r.clocks.offsets() }

func (c *clocks) offsets() []PeerOffset {
	var list []PeerOffset
	for _, m := range c.state.Members {
		if p := c.peers[m.ID]; p != nil && p.clock.known && c.mono-p.clock.at <= c.validity() {
			list = append(list, PeerOffset{m.ID, difference(p.clock.wall+uint64(c.mono-p.clock.at), c.now)})
		}
	}
	return list
}
