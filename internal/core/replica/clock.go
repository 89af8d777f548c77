package replica

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// What time it is (I11). A leader does not believe its own clock alone: the ceiling is for
// ever, and a clock that showed the year 2100 for a second would leave time there for 74
// years. The members tell each other what their clocks show. The quorum's clock is the
// reading that as many voters reach or pass as make up a quorum; of three that is the
// median. The time that the leader goes by is its own clock, but within Config.ClockJumpMax
// of the quorum's: ahead of it time would otherwise run away, and behind it time would
// stand still. When too few clocks are known, nobody vouches for any time, and time holds.
//
// A voter that is alone has no one to ask. It holds its wall clock against the clock that
// nobody sets: a jump ahead by more than ClockJumpMax is not followed, until the process
// starts again, which takes an operator. At its start it believes its clock, unless that is
// more than a year ahead of the ceiling; ClockJumpMax 0 believes anything.

const (
	// clockEvery is how often members tell each other what their clocks show.
	clockEvery = time.Second
	// clockStep is how much the wall clock has to jump to be told at once.
	clockStep = 50 * time.Millisecond
	// clockTimes is how many times that long a reading counts. It goes on by this node's own
	// steady clock.
	clockTimes = 10
	// absenceMax is how far ahead of the ceiling a voter that is alone believes its clock at
	// its start: so long it may have been switched off.
	absenceMax = 366 * 24 * time.Hour
	// clockMax is the year 2200. What is beyond it counts as that, and leaves room below
	// oracle.CeilingMax.
	clockMax = 7_258_118_400_000_000_000
	// SkewMax is how far this node's clock may be off the median of its peers' clocks
	// before it makes no more ids, as in Twitter's Snowflake.
	SkewMax = 10 * time.Second
)

// PeerClock is what the wall clock of a peer showed when it was asked.
type PeerClock struct {
	ID   uint64
	Wall int64 // unix nanoseconds
}

// reading is what some clock showed, and when that was by this node's steady clock.
type reading struct {
	wall  uint64
	at    time.Duration
	known bool
}

// now returns what the clock shows now, if it is known.
func (c reading) now(mono time.Duration) (wall uint64, ok bool) {
	return min(c.wall+uint64(max(0, mono-c.at)), clockMax), c.known
}

// timekeeper is what this node goes by.
type timekeeper struct {
	// quorum is the quorum's clock; of a voter alone, its own as far as it is believed.
	quorum reading
	// told is how far the wall clock was ahead of the steady one when the peers were told.
	told time.Duration
	// alone is set while this node is the only voter.
	alone bool
}

// Clock is what a node knows of the time.
type Clock struct {
	// Known is set when a quorum of clocks is known.
	Known bool
	// Offset is this node's wall clock minus the quorum's, if Known.
	Offset time.Duration
	// Exceeded is set while Offset is beyond Config.ClockJumpMax, and the node therefore does
	// not go by its own clock.
	Exceeded bool
	// Alone is set while this node is the only voter: then Offset is how far its clock has
	// jumped.
	Alone bool
}

// hearClock notes what a peer's clock shows. It is late by the time on the way.
func (r *Replica) hearClock(c PeerClock) {
	r.spoken(c.ID)
	if _, isMember := r.state.Member(c.ID); isMember {
		r.peer(c.ID).clock = reading{wall: uint64(max(0, c.Wall)), at: r.mono, known: true}
	}
}

// tellClock has the peers told what this node's clock shows: now and then, and at once when
// it has jumped.
func (r *Replica) tellClock() {
	offset := difference(r.now, uint64(r.mono))
	due := r.ticks%max(1, uint64(clockEvery/r.cfg.TickInterval)) == 0
	if due || (offset-r.time.told).Abs() > clockStep {
		r.effects.TellClock, r.time.told = true, offset
	}
}

// clockFresh is how long a reading counts.
func (r *Replica) clockFresh() time.Duration { return clockTimes * max(clockEvery, r.cfg.TickInterval) }

// fresh returns what a peer's clock shows now, if it has told lately.
func (r *Replica) fresh(p *peerView) (wall uint64, ok bool) {
	wall, ok = p.clock.now(r.mono)
	return wall, ok && (r.mono-p.clock.at <= r.clockFresh() || mutant.On(mutant.BelieveStaleClocks))
}

// keepTime finds out what the quorum's clock shows.
func (r *Replica) keepTime() {
	voters := r.conf.GetVoters()
	if len(voters) == 1 && voters[0] == r.cfg.Self.NodeID {
		r.keepTimeAlone()
	} else {
		r.time.alone = false
		r.time.quorum = r.quorumClock(voters)
	}
	r.checkSkew()
}

// quorumClock returns the largest reading that a quorum of the voters reaches.
func (r *Replica) quorumClock(voters []uint64) reading {
	var clocks []uint64
	for _, id := range voters {
		if id == r.cfg.Self.NodeID {
			clocks = append(clocks, min(r.now, clockMax))
		} else if p := r.peers[id]; p != nil {
			if wall, ok := r.fresh(p); ok {
				clocks = append(clocks, wall)
			}
		}
	}
	quorum := mutateClockQuorum(len(voters)/2 + 1)
	if len(clocks) < quorum || len(voters) == 0 {
		return reading{}
	}
	slices.SortFunc(clocks, func(a, b uint64) int { return cmp.Compare(b, a) })
	return reading{wall: clocks[quorum-1], at: r.mono, known: true}
}

// keepTimeAlone holds the wall clock against the steady one.
func (r *Replica) keepTimeAlone() {
	t := &r.time
	now := min(r.now, clockMax)
	if !t.alone || !t.quorum.known {
		began := now
		if ceiling := max(r.state.Ceiling, r.reservedBefore); ceiling != 0 && now > ceiling+uint64(absenceMax) {
			began = ceiling
		}
		if vouched, ok := t.quorum.now(r.mono); ok {
			began = vouched // by the others that are no voters any more
		}
		t.alone, t.quorum = true, reading{wall: began, at: r.mono, known: true}
	}
	believed := t.quorum.wall + uint64(r.mono-t.quorum.at)
	switch {
	case r.cfg.ClockJumpMax == 0:
		believed = now
	case now > believed && (now-believed <= uint64(r.cfg.ClockJumpMax) || mutant.On(mutant.FollowJump)):
		believed = now
	}
	// One that went back may be set right again, and does not count as jumping then.
	t.quorum.wall, t.quorum.at = believed, r.mono
}

// clockNow returns the time that this node goes by, unix nanoseconds; 0 if nobody vouches
// for any.
func (r *Replica) clockNow() uint64 {
	bound := uint64(r.cfg.ClockJumpMax)
	if bound == 0 || mutant.On(mutant.IgnoreClocks) {
		return min(r.now, oracle.CeilingMax)
	}
	quorum, ok := r.time.quorum.now(r.mono)
	switch {
	case !ok:
		return 0
	case r.time.alone:
		return min(r.now, quorum+bound)
	default:
		return min(max(r.now, quorum-min(quorum, bound)), quorum+bound)
	}
}

// clock says what there is to know of the time.
func (r *Replica) clock() Clock {
	c := Clock{Alone: r.time.alone}
	quorum, ok := r.time.quorum.now(r.mono)
	if !ok {
		return c
	}
	c.Known, c.Offset = true, difference(r.now, quorum)
	c.Exceeded = r.cfg.ClockJumpMax > 0 && (c.Offset > r.cfg.ClockJumpMax || !c.Alone && c.Offset < -r.cfg.ClockJumpMax)
	return c
}

// difference returns a - b.
func difference(a, b uint64) time.Duration {
	a, b = min(a, math.MaxInt64), min(b, math.MaxInt64)
	return time.Duration(int64(a) - int64(b))
}

// Skew returns the median of how far the peers' clocks are ahead of this node's. Of two in
// the middle it is the smaller difference: one bad clock beside a good one is not ours.
func (r *Replica) Skew() (median time.Duration, known bool) {
	var list []time.Duration
	for _, m := range r.state.Members {
		if p := r.peers[m.ID]; p != nil && m.ID != r.cfg.Self.NodeID && p.clock.known && r.mono-p.clock.at <= r.clockFresh() {
			list = append(list, difference(p.clock.wall+uint64(r.mono-p.clock.at), r.now))
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

// PeerOffset is how far the clock of a peer is ahead of this node's.
type PeerOffset struct {
	ID     uint64
	Offset time.Duration
}

// PeerOffsets returns the offsets of all peers that have told their clock lately, by ID.
func (r *Replica) PeerOffsets() []PeerOffset {
	var list []PeerOffset
	for _, m := range r.state.Members {
		if p := r.peers[m.ID]; p != nil && p.clock.known && r.mono-p.clock.at <= r.clockFresh() {
			list = append(list, PeerOffset{m.ID, difference(p.clock.wall+uint64(r.mono-p.clock.at), r.now)})
		}
	}
	return list
}
