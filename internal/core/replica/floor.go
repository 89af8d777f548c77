package replica

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// FloorAheadMax is how far ahead of the clock an operator may raise the floor without
// FloorRequest.Force: time stands still until the clock has caught up.
const FloorAheadMax = 24 * time.Hour

// FloorRequest asks to raise the floor (I13): all timestamps issued from then on have a
// larger time.
type FloorRequest struct {
	// Time is in unix nanoseconds.
	Time uint64
	// Force permits a time more than FloorAheadMax ahead of the clock.
	Force bool
}

// raiseFloor proposes a floor, or refuses it in Effects.FloorRefused. One that is reached
// already needs no proposal.
func (r *Replica) raiseFloor(q FloorRequest) {
	now := r.clockNow()
	switch {
	case r.role != raft.StateLeader || !r.leading.alloc.IsOpen():
		r.effects.FloorRefused = r.redirect()
	case q.Time >= oracle.CeilingMax-1:
		r.effects.FloorRefused = isotone.Errorf(isotone.CodeInvalidArgument, "a floor must be before the year 2262")
	case r.state.CurrentLevel() < oracle.LevelMembers:
		r.effects.FloorRefused = r.needsLevel("a floor")
	case !q.Force && q.Time > now && q.Time-now > uint64(FloorAheadMax):
		r.effects.FloorRefused = isotone.Errorf(isotone.CodeInvalidArgument,
			"the floor is %v ahead of the clock, and time would stand still for that long; to raise it beyond %v, use force",
			time.Duration(min(q.Time-now, oracle.CeilingMax)).Round(time.Second), FloorAheadMax)
	case r.leading.alloc.Time() > q.Time:
	case !r.propose(oracle.Command{Kind: oracle.KindFloor, Target: q.Time}):
		r.effects.FloorRefused = isotone.ErrOverloaded
	}
}

// floorApplied lets this leader issue above the floor. A later term starts at the ceiling or
// above, and so above the floor as well.
func (r *Replica) floorApplied(floor uint64) {
	if !r.leading.alloc.IsOpen() || mutant.On(mutant.FloorIgnored) {
		return
	}
	r.leading.alloc.Extend(r.state.Ceiling)
	r.leading.alloc.Advance(min(floor, oracle.CeilingMax-2) + 1)
}
