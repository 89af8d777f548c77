package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// promoteTicks is the time between two attempts of a leader to carry out what the member
// records say is to become of their members.
const promoteTicks = electionTicks / 2

// promoteLearners takes the next step of one promotion or replacement that an operator has
// ordered. The order is part of the member record, so every leader goes on with it, and
// nobody has to wait for it. Each step is checked like a change that an operator asks for;
// one that is refused is tried again.
//
// A member that is to be replaced and leads itself must not propose its own removal: the next
// generation becomes a voter first if there is no other, then the leadership is transferred.
func (r *Replica) promoteLearners() {
	switch isJoint := len(r.conf.GetVotersOutgoing()) > 0; {
	case r.role != raft.StateLeader || r.leading.changing:
		return
	case isJoint && !slices.Contains(r.conf.GetVoters(), r.cfg.Self.NodeID):
		// It would step down with the end of the joint configuration, without telling the others
		// that it is committed. As it adds nothing to its log (isLeaving), it never serves either.
		r.transfer(0)
		return
	case !r.leading.alloc.IsOpen():
		return
	case isJoint:
		r.leading.changing = r.tail.hasRoom(1) && r.raw.ProposeConfChange(&raftpb.ConfChangeV2{}) == nil // ends it
		return
	}
	for _, m := range r.state.Members {
		if !m.Promote {
			continue
		}
		c := MemberChange{Kind: AddVoter, Member: oracle.Member{ID: m.ID}}
		if !r.isLearner(m.ID) {
			c = MemberChange{Kind: Remove, Member: oracle.Member{ID: m.Replaces}}
		}
		leads := m.Replaces == r.cfg.Self.NodeID
		switch {
		case r.membership.checkChange(c) != nil:
		case leads && (c.Kind == Remove || len(r.conf.GetVoters()) > 1):
			if r.mayLeave() {
				r.transfer(0)
				return
			}
		case r.membership.propose(c) == nil:
			return
		}
	}
}

// mayLeave reports whether a leader that is to be replaced may transfer its leadership for that. If its successor is to be replaced as well, and each of the two reaches its own next
// generation only, they would transfer it to each other for ever. So the one with the higher ID waits for as long as before it gives way to a priority.
func (r *Replica) mayLeave() bool {
	next := r.successor(0)
	return next > r.cfg.Self.NodeID || !r.isReplaced(next) || r.leading.tenure >= priorityTicks || mutant.On(mutant.LeaveInTurns)
}

// isReplaced reports whether a member is to be replaced.
func (f *facts) isReplaced(id uint64) bool {
	return slices.ContainsFunc(f.state.Members, func(m oracle.Member) bool { return m.Promote && m.Replaces == id })
}
