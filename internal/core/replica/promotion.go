package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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
	if r.role != raft.StateLeader || !r.leading.alloc.IsOpen() || r.leading.changing {
		return
	}
	if len(r.conf.GetVotersOutgoing()) > 0 {
		r.leaveJoint()
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
		case r.checkChange(c) != nil:
		case leads && (c.Kind == Remove || len(r.conf.GetVoters()) > 1):
			r.transfer(0)
			return
		case r.proposeChange(c) == nil:
			return
		}
	}
}

// leaveJoint ends a joint configuration. A leader that is not in the new configuration leaves
// that to another one: it would step down without telling the others that the change is
// committed.
func (r *Replica) leaveJoint() {
	if !slices.Contains(r.conf.GetVoters(), r.cfg.Self.NodeID) {
		r.transfer(0)
		return
	}
	r.leading.changing = r.hasRoom(1) && r.raw.ProposeConfChange(&raftpb.ConfChangeV2{}) == nil
}
