package replica

import (
	"math"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// FloorAheadMax is how far ahead of the clock an operator may raise the floor without
// FloorRequest.Force: time stands still until the clock has caught up.
const FloorAheadMax = 24 * time.Hour

// ClientFloorAheadMax is how far ahead of the clock the floor of a client may raise time. A
// faulty client can make time stand still for no longer than that. A cluster that was set back
// needs less: what it issued was hardly ahead of the clock, which has gone on. A restored cluster
// begins as much further ahead of the clock, since a client may have moved the lost one there.
const ClientFloorAheadMax = 10 * time.Second

// heldFloorMax is how far ahead of the cluster clock an operator may raise the floor: requests wait
// for so long.
const heldFloorMax = time.Second

// FloorRequest asks to raise the floor (I13): all timestamps issued from then on have a
// larger time.
type FloorRequest struct {
	// Time is in unix nanoseconds.
	Time uint64
	// Force permits a time more than FloorAheadMax ahead of the clock, and none above oracle.FloorMax.
	Force bool
}

// raiseFloor proposes a floor, or refuses it in Effects.FloorRefused. One that is reached
// already needs no proposal.
func (r *Replica) raiseFloor(q FloorRequest) {
	now := r.clocks.time()
	switch {
	case r.role != raft.StateLeader || !r.leading.alloc.IsOpen():
		r.effects.FloorRefused = r.redirect()
	case q.Time > oracle.FloorMax && !mutant.On(mutant.UnrefusedLastFloor):
		r.effects.FloorRefused = isotone.Errorf(isotone.CodeInvalidArgument, "a floor is at most %s, even with force: nothing lowers it, and time has to go on after it",
			time.Unix(0, int64(oracle.FloorMax)).UTC().Format(time.RFC3339))
	case !q.Force && q.Time > now && q.Time-now > uint64(FloorAheadMax) && !mutant.On(mutant.UnrefusedFarFloor):
		r.effects.FloorRefused = isotone.Errorf(isotone.CodeInvalidArgument,
			"the floor is %v ahead of the clock, and time would stand still for that long; to raise it beyond %v, use force",
			time.Duration(min(q.Time-now, oracle.CeilingMax)).Round(time.Second), FloorAheadMax)
	case r.leading.alloc.Time() > q.Time:
	case r.leading.clock.runs && q.Time > r.leading.clock.shows()+uint64(heldFloorMax):
		r.effects.FloorRefused = isotone.Errorf(isotone.CodeInvalidArgument,
			"the floor is %v ahead of the cluster clock, which cannot jump; to raise it, start all nodes with INTERVAL_MS=0 first",
			time.Duration(min(q.Time-r.leading.clock.shows(), oracle.CeilingMax)).Round(time.Millisecond))
	case !r.leading.proposeFloor(q.Time):
		r.effects.FloorRefused = isotone.ErrOverloaded
	}
}

// proposeFloor proposes a floor. Until it is applied no cluster clock starts: that could not jump.
func (l *leading) proposeFloor(floor uint64) bool {
	proposed := l.tail.propose(oracle.Command{Kind: oracle.KindFloor, Target: floor})
	if proposed {
		l.floors++
	}
	return proposed
}

// floorApplied lets this leader issue above the floor, which was proposed in term. A later term starts at the ceiling or
// above, and so above the floor as well. Requests that waited for it wait for a round again.
func (r *Replica) floorApplied(term, floor uint64) {
	if r.role == raft.StateLeader && term == r.term {
		r.leading.floors--
	}
	if !r.leading.alloc.IsOpen() || mutant.On(mutant.FloorIgnored) {
		return
	}
	r.leading.alloc.Extend(r.state.Ceiling)
	if r.leading.clock.runs {
		r.leading.clock.floorHeld = max(r.leading.clock.floorHeld, floor)
	} else {
		r.leading.alloc.Advance(min(floor, oracle.CeilingMax-2) + 1)
		r.leading.floorMovedTime()
	}
	if r.leading.raising == floor {
		r.leading.raising = 0
	}
	r.queue.release()
}

// passFloor makes what is issued next larger than the floor of a request, or returns why it
// may not. If that takes a proposal, hold is set: the request has to wait for it. Only a leader
// whose leadership is confirmed may call it: a former one knows an older ceiling, and would
// wrongly refuse.
//
// A client of this cluster has a floor below the ceiling of every confirmed leader (I1), and
// below what that issues next if it asks after it has received the floor (I4). So anything
// else is a sign that the cluster was set back, or that the floor is of another cluster. It needs the right
// to move time ahead of the clock, for everybody: Request.Raise.
func (l *leading) passFloor(p *pending) (hold bool, refused *isotone.Error) {
	f := p.Floor
	if l.clock.runs && f.Time < l.clock.floorHeld {
		f = isotone.Timestamp{Time: l.clock.floorHeld, Index: math.MaxUint64}
	}
	switch {
	case f == (isotone.Timestamp{}) || mutant.On(mutant.ClientFloorIgnored), l.alloc.IsAbove(f):
		return false, nil
	case l.clock.runs && f.Time < l.clock.shows() && l.alloc.Pass(f): // oracle time was behind
		return false, nil
	case l.clock.runs:
		return l.holdFloor(f)
	}
	now := l.clocks.time()
	if refused = l.refuseMove(p, f.Time, now, l.floorAheadMax()); refused != nil {
		return false, refused
	}
	if l.alloc.Pass(f) {
		l.counters.FloorsPassed++
		l.floorMovedTime()
		p.moved = f.Time > now
		return false, nil
	}
	return l.raiseFor(p, f.Time, now)
}

// refuseMove returns why a request may not move time to its floor, or nil; now is what the clamped clock
// shows, 0 if that is not known, and most how far ahead of it the floor may be.
func (f *facts) refuseMove(p *pending, floor, now uint64, most time.Duration) *isotone.Error {
	switch mayMove := p.Raise || mutant.On(mutant.ClientFloorByAnyone); {
	case floor > now && !mayMove && now == 0:
		return errTimeUnknown
	case floor > now && !mayMove:
		f.counters.FloorsRefused++
		return errMayNotRaise(floor - now)
	case now != 0 && floor > now+uint64(most) && !mutant.On(mutant.ClientFloorUnbounded):
		f.counters.FloorsRefused++
		return floorTooFar(floor-now, most) // also below the ceiling: it would use up the room of 64-bit timestamps
	}
	return nil
}

// raiseFor has a request wait for a proposal of its floor, which is not below the ceiling, or returns why it
// may not. One proposal is made at a time.
func (l *leading) raiseFor(p *pending, floor, now uint64) (hold bool, refused *isotone.Error) {
	switch {
	case now == 0:
		return false, errTimeUnknown
	case floor >= oracle.CeilingMax-1:
		l.counters.FloorsRefused++
		return false, floorTooFar(floor-min(now, floor), l.floorAheadMax())
	case l.raising != 0:
		if !l.mayHold() {
			return false, isotone.ErrOverloaded
		}
		return true, nil
	case !l.proposeFloor(floor):
		return false, isotone.ErrOverloaded
	}
	l.raising = floor
	l.counters.FloorsRaised++
	p.moved = floor > now
	return true, nil
}

// floorAheadMax is how far ahead of the clock the floor of a client may raise time while no cluster clock runs: less if one is
// to start, which it does only while time is not further ahead than aheadMax.
func (l *leading) floorAheadMax() time.Duration {
	if l.cfg.Interval > 0 {
		return aheadMax / 2
	}
	return ClientFloorAheadMax
}

// holdFloor has a request wait until the cluster clock is above its floor, or returns why it may not:
// oracle time may not run ahead of that clock.
func (l *leading) holdFloor(f isotone.Timestamp) (hold bool, refused *isotone.Error) {
	now := l.clock.shows()
	if ahead := f.Time - min(now, f.Time); ahead > uint64(ClientFloorAheadMax) {
		l.counters.FloorsRefused++
		return false, floorTooFar(ahead, ClientFloorAheadMax)
	}
	if !l.mayHold() {
		return false, isotone.ErrOverloaded
	}
	return true, nil
}

func floorTooFar(ahead uint64, most time.Duration) *isotone.Error {
	return isotone.Errorf(isotone.CodeRegressed, "the client's floor is %v ahead of the clock, more than %v: the cluster was set back to an older copy, "+
		"or the floor is of another cluster; use the right cluster, or run isotone floor raise",
		time.Duration(min(ahead, oracle.CeilingMax)).Truncate(time.Second), most)
}

// errMayNotRaise answers a floor that is ahead of the clock by some nanoseconds, of a client without the right to move time.
func errMayNotRaise(ahead uint64) *isotone.Error {
	return isotone.Errorf(isotone.CodeRegressed, "the client's floor is %v ahead of the clock and above all that this cluster has issued: the cluster was set back to an older copy, "+
		"or the floor is of another cluster; use the right cluster, wait until the clock has passed the floor, run isotone floor raise, or give the client the role floors",
		time.Duration(min(ahead, oracle.CeilingMax)).Truncate(time.Millisecond))
}

// errTimeUnknown answers a floor while nobody knows how far ahead it is.
var errTimeUnknown = isotone.Errorf(isotone.CodeClock, "the client's floor is beyond what is reserved, and too few clocks are known to raise it; try again")
