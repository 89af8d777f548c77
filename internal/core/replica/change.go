package replica

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// MemberChange is one change of membership.
type MemberChange struct {
	Kind MemberChangeKind
	// Member has the ID, not 0, and for AddLearner the PeerAddr; the rest is ignored.
	Member oracle.Member
}

// MemberChangeKind says what a [MemberChange] does.
type MemberChangeKind uint8

const (
	// AddLearner adds a new node as a learner.
	AddLearner MemberChangeKind = iota + 1
	// AddVoter makes a learner a voter. Its incarnation must be on record: a learner that was
	// wiped before could vote although it has forgotten what it confirmed (I6).
	AddVoter
	// Remove removes a member. Its ID must never be used again.
	Remove
)

// change proposes a membership change, or refuses it in Effects.ChangeRefused. A leader
// proposes one at a time, when all earlier ones are applied, so what is checked here still
// holds when the change is applied (Ongaro's dissertation, §4.1).
func (r *Replica) change(c MemberChange) {
	err := r.checkChange(c)
	if c.Kind == Remove && c.Member.ID == r.cfg.Self.NodeID && err == nil && !mutant.On(mutant.ChangeUnchecked) {
		// A leader steps down when it applies its removal, and does not tell the others that
		// this is committed. Of two voters the other could then never be elected.
		r.transfer()
		err = isotone.Errorf(isotone.CodeOverloaded, "node %d leads and transfers its leadership before it can be removed; try again", c.Member.ID)
	}
	if err != nil {
		r.effects.ChangeRefused = err
		return
	}
	r.proposeChange(c)
}

func (r *Replica) proposeChange(c MemberChange) {
	member := oracle.Member{ID: c.Member.ID}
	var kind raftpb.ConfChangeType
	switch c.Kind {
	case AddVoter:
		kind = raftpb.ConfChangeAddNode
	case AddLearner:
		kind, member.PeerAddr = raftpb.ConfChangeAddLearnerNode, c.Member.PeerAddr
	case Remove:
		kind = raftpb.ConfChangeRemoveNode
	}
	r.leading.changing = true
	err := r.raw.ProposeConfChange(&raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: kind.Enum(), NodeId: new(c.Member.ID)}},
		Context: oracle.AppendMember(nil, member),
	})
	if err != nil {
		r.leading.changing = false
		r.effects.ChangeRefused = isotone.Errorf(isotone.CodeOverloaded, "the membership cannot be changed now: %v", err)
	}
}

// checkChange returns why c cannot be proposed, or nil.
func (r *Replica) checkChange(c MemberChange) *isotone.Error {
	invalid := func(format string, args ...any) *isotone.Error {
		return isotone.Errorf(isotone.CodeInvalidArgument, format, args...)
	}
	m, isMember := r.state.Member(c.Member.ID)
	voter := slices.Contains(r.conf.GetVoters(), c.Member.ID)
	switch {
	case r.role != raft.StateLeader || !r.leading.alloc.IsOpen():
		return r.redirect()
	case r.leading.changing || len(r.conf.GetVotersOutgoing()) > 0:
		return isotone.Errorf(isotone.CodeOverloaded, "another change of membership is under way")
	case !r.hasRoom(2):
		return isotone.ErrOverloaded
	case mutant.On(mutant.ChangeUnchecked) && c.Kind >= AddLearner && c.Kind <= Remove:
		return nil
	case c.Member.ID == 0:
		return invalid("a member ID must not be 0")
	}
	switch c.Kind {
	case AddLearner:
		switch addr := c.Member.PeerAddr; {
		case isMember:
			return invalid("node %d is a member already", m.ID)
		case len(r.state.Members) >= oracle.MembersMax:
			return invalid("a cluster has at most %d members", oracle.MembersMax)
		case !isAddr(addr):
			return invalid("%q is not the peer address of a node: want host:port, at most %d bytes", addr, oracle.AddrMax)
		}
	case AddVoter:
		switch {
		case voter:
			return invalid("node %d is a voter already", m.ID)
		case !isMember:
			return invalid("node %d is no member: add it as a learner first", c.Member.ID)
		case m.Incarnation == 0:
			return isotone.Errorf(isotone.CodeOverloaded, "node %d has not connected yet", m.ID)
		}
	case Remove:
		switch {
		case !isMember:
			return invalid("node %d is no member", c.Member.ID)
		case voter && len(r.conf.GetVoters()) == 1:
			return invalid("node %d is the last voter and cannot be removed", m.ID)
		}
	default:
		return invalid("a change of membership of unknown kind %d", c.Kind)
	}
	return r.checkQuorumAfter(c)
}

// checkQuorumAfter refuses a change after which the voters that are connected and know the
// present members would be no quorum: the cluster could neither elect a leader nor undo the
// change.
func (r *Replica) checkQuorumAfter(c MemberChange) *isotone.Error {
	if c.Kind == AddLearner {
		return nil
	}
	voters := slices.DeleteFunc(slices.Clone(r.conf.GetVoters()), func(id uint64) bool { return id == c.Member.ID })
	if c.Kind == AddVoter {
		voters = append(voters, c.Member.ID)
	}
	var ready []uint64
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if slices.Contains(voters, id) && r.isActive(id) && (id == r.cfg.Self.NodeID || pr.Match >= r.changedAt) {
			ready = append(ready, id)
		}
	})
	switch {
	case c.Kind == AddVoter && !slices.Contains(ready, c.Member.ID):
		return isotone.Errorf(isotone.CodeOverloaded, "node %d is not connected, or lacks too much of the log; try again when it has caught up", c.Member.ID)
	case len(ready) < len(voters)/2+1:
		return isotone.Errorf(isotone.CodeOverloaded, "after that the cluster would have %d voters, of which only %d are connected and up to date (%s): it could not elect a leader",
			len(voters), len(ready), list(ready))
	}
	return nil
}

// isAddr reports whether s may be an address in a member record: printable ASCII without
// spaces, 1 to oracle.AddrMax bytes.
func isAddr(s string) bool {
	return s != "" && len(s) <= oracle.AddrMax && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
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
	if len(cc.GetChanges()) > 0 {
		m, err := oracle.DecodeMember(cc.GetContext())
		if err != nil {
			return fmt.Errorf("membership change: %w", err)
		}
		if cc.GetChanges()[0].GetType() == raftpb.ConfChangeRemoveNode {
			r.state.RemoveMember(m.ID)
			delete(r.peers, m.ID)
		} else {
			r.state.AddMember(m)
		}
	}
	r.conf = r.raw.ApplyConfChange(cc)
	r.membersChanged, r.leading.changing, r.changedAt = true, false, e.GetIndex()
	r.leading.lease.until, r.leading.lease.notBefore = 0, r.mono
	r.restartRounds()
	r.resetRefusals()
	r.effects.Changed = true
	r.observe()
	return nil
}
