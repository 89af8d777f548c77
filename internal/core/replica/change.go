package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// MemberChange is one change of membership.
type MemberChange struct {
	Kind MemberChangeKind
	// Member has the ID, not 0, and what Kind says; the rest is ignored.
	Member oracle.Member
}

// MemberChangeKind says what a [MemberChange] does.
type MemberChangeKind uint8

const (
	// AddLearner adds a new node with a PeerAddr as a learner. With Promote it becomes a voter as
	// soon as it has caught up.
	AddLearner MemberChangeKind = iota + 1
	// AddVoter makes a learner a voter. Its incarnation must be on record: a learner that was
	// wiped before could vote although it has forgotten what it confirmed (I6).
	AddVoter
	// Remove removes a member. Its ID must never be used again.
	Remove
	// ReplaceMember adds, as a learner with a PeerAddr, the next generation of the member's node,
	// which has a new data directory. When it has caught up it becomes a voter, and in the same
	// change (Ongaro's dissertation, §4.3) the member is removed.
	ReplaceMember
	// UpdateMember changes PeerAddr and ClientAddr of a member, unless they are empty.
	UpdateMember
)

// change proposes a membership change, or refuses it in Effects.ChangeRefused. A leader
// proposes one at a time, when all earlier ones are applied, so what is checked here still
// holds when the change is applied (Ongaro's dissertation, §4.1).
func (r *Replica) change(c MemberChange) {
	err := r.membership.checkChange(c)
	if c.Kind == Remove && c.Member.ID == r.cfg.Self.NodeID && err == nil && !mutant.On(mutant.ChangeUnchecked) && !mutant.On(mutant.UnrefusedLeader) {
		// A leader steps down when it applies its removal, and does not tell the others that
		// this is committed. Of two voters the other could then never be elected.
		r.transfer(0)
		err = isotone.Errorf(isotone.CodeOverloaded, "node %d leads and transfers its leadership before it can be removed; try again", oracle.NodeOf(c.Member.ID))
	}
	if err == nil {
		err = r.membership.propose(c)
	}
	r.effects.ChangeRefused = err
}

// propose proposes a change that was checked.
func (ms *membership) propose(c MemberChange) *isotone.Error {
	member := oracle.Member{ID: c.Member.ID}
	single := func(kind raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
		return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)}
	}
	var changes []*raftpb.ConfChangeSingle
	var transition *raftpb.ConfChangeTransition
	switch c.Kind {
	case AddVoter:
		changes = append(changes, single(raftpb.ConfChangeAddNode, member.ID))
		if old := ms.replacedBy(member.ID); old != 0 {
			changes = append(changes, single(raftpb.ConfChangeRemoveNode, old))
			transition = raftpb.ConfChangeTransitionJointExplicit.Enum() // left by promoteLearners
		}
	case AddLearner:
		member.PeerAddr, member.Promote = c.Member.PeerAddr, c.Member.Promote
		changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, member.ID))
	case ReplaceMember:
		member.ID, _ = ms.state.NextMember(c.Member.ID)
		member.PeerAddr, member.Promote, member.Replaces = c.Member.PeerAddr, true, c.Member.ID
		changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, member.ID))
	case Remove:
		changes = append(changes, single(raftpb.ConfChangeRemoveNode, member.ID))
	case UpdateMember:
		if !ms.tail.propose(oracle.Command{Kind: oracle.KindUpdate, Member: c.Member}) {
			return isotone.ErrOverloaded
		}
		return nil
	}
	ms.leading.changing = true
	if err := ms.raw.ProposeConfChange(&raftpb.ConfChangeV2{Transition: transition, Changes: changes, Context: oracle.AppendMember(nil, member)}); err != nil {
		ms.leading.changing = false
		return isotone.Errorf(isotone.CodeOverloaded, "the membership cannot be changed now: %v", err)
	}
	return nil
}

// replacedBy returns the member that leaves in the change that makes id a voter, 0 for none. A
// leader cannot propose its own removal; see promoteLearners.
func (ms *membership) replacedBy(id uint64) uint64 {
	m, _ := ms.state.Member(id)
	if _, isMember := ms.state.Member(m.Replaces); !isMember || m.Replaces == ms.cfg.Self.NodeID {
		return 0
	}
	return m.Replaces
}

// followConfiguration removes the records of former members, and ends promotions of voters.
func (r *Replica) followConfiguration() {
	for _, m := range slices.Clone(r.state.Members) {
		in := func(list []uint64) bool { return slices.Contains(list, m.ID) }
		if !in(r.conf.GetVoters()) && !in(r.conf.GetVotersOutgoing()) && !r.isLearner(m.ID) {
			r.state.RemoveMember(m.ID)
			delete(r.peers, m.ID)
		}
	}
	for _, id := range r.conf.GetVoters() {
		r.state.EndPromotion(id)
	}
	r.admission.forgetStrangers()
}

// applyChange applies a committed membership change.
func (r *Replica) applyChange(e *raftpb.Entry) error {
	cc := &raftpb.ConfChangeV2{}
	if e.GetType() == raftpb.EntryConfChange {
		return fmt.Errorf("a membership change of the first kind, which this version never writes")
	}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return fmt.Errorf("membership change: %w", err)
	}
	if len(cc.GetChanges()) > 0 { // and not the end of a joint configuration
		m, err := oracle.DecodeMember(cc.GetContext())
		if err != nil {
			return fmt.Errorf("membership change: %w", err)
		}
		if cc.GetChanges()[0].GetType() != raftpb.ConfChangeRemoveNode {
			r.state.AddMember(m)
		}
	}
	r.conf = r.raw.ApplyConfChange(cc)
	r.followConfiguration()
	r.membersChanged, r.leading.changing, r.changedAt = true, false, e.GetIndex()
	r.leading.lease.forgetPromises()
	r.queue.restart()
	r.resetRefusals()
	r.effects.Changed = true
	r.observe()
	return nil
}
