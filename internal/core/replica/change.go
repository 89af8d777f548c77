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
	err := r.checkChange(c)
	if c.Kind == Remove && c.Member.ID == r.cfg.Self.NodeID && err == nil && !mutant.On(mutant.ChangeUnchecked) && !mutant.On(mutant.UnrefusedLeader) {
		// A leader steps down when it applies its removal, and does not tell the others that
		// this is committed. Of two voters the other could then never be elected.
		r.transfer(0)
		err = isotone.Errorf(isotone.CodeOverloaded, "node %d leads and transfers its leadership before it can be removed; try again", oracle.NodeOf(c.Member.ID))
	}
	if err == nil {
		err = r.proposeChange(c)
	}
	r.effects.ChangeRefused = err
}

// proposeChange proposes a change that was checked.
func (r *Replica) proposeChange(c MemberChange) *isotone.Error {
	member := oracle.Member{ID: c.Member.ID}
	single := func(kind raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
		return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)}
	}
	var changes []*raftpb.ConfChangeSingle
	var transition *raftpb.ConfChangeTransition
	switch c.Kind {
	case AddVoter:
		changes = append(changes, single(raftpb.ConfChangeAddNode, member.ID))
		if old := r.replacedBy(member.ID); old != 0 {
			changes = append(changes, single(raftpb.ConfChangeRemoveNode, old))
			transition = raftpb.ConfChangeTransitionJointExplicit.Enum() // left by promoteLearners
		}
	case AddLearner:
		member.PeerAddr, member.Promote = c.Member.PeerAddr, c.Member.Promote
		changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, member.ID))
	case ReplaceMember:
		member.ID, _ = r.state.NextMember(c.Member.ID)
		member.PeerAddr, member.Promote, member.Replaces = c.Member.PeerAddr, true, c.Member.ID
		changes = append(changes, single(raftpb.ConfChangeAddLearnerNode, member.ID))
	case Remove:
		changes = append(changes, single(raftpb.ConfChangeRemoveNode, member.ID))
	case UpdateMember:
		if !r.propose(oracle.Command{Kind: oracle.KindUpdate, Member: c.Member}) {
			return isotone.ErrOverloaded
		}
		return nil
	}
	r.leading.changing = true
	if err := r.raw.ProposeConfChange(&raftpb.ConfChangeV2{Transition: transition, Changes: changes, Context: oracle.AppendMember(nil, member)}); err != nil {
		r.leading.changing = false
		return isotone.Errorf(isotone.CodeOverloaded, "the membership cannot be changed now: %v", err)
	}
	return nil
}

// replacedBy returns the member that leaves in the change that makes id a voter, 0 for none. A
// leader cannot propose its own removal; see promoteLearners.
func (r *Replica) replacedBy(id uint64) uint64 {
	m, _ := r.state.Member(id)
	if _, isMember := r.state.Member(m.Replaces); !isMember || m.Replaces == r.cfg.Self.NodeID {
		return 0
	}
	return m.Replaces
}

// checkChange returns why c cannot be proposed, or nil.
func (r *Replica) checkChange(c MemberChange) *isotone.Error {
	switch {
	case r.role != raft.StateLeader || !r.leading.alloc.IsOpen() && !mutant.On(mutant.UnrefusedBeforeOpen):
		return r.redirect()
	case r.leading.changing && !mutant.On(mutant.UnrefusedSecond) || len(r.conf.GetVotersOutgoing()) > 0 && !mutant.On(mutant.UnrefusedInJoint):
		return isotone.Errorf(isotone.CodeOverloaded, "another change of membership is under way")
	case !r.hasRoom(2):
		return isotone.ErrOverloaded
	case mutant.On(mutant.ChangeUnchecked) && c.Kind >= AddLearner && c.Kind <= Remove:
		return nil
	case c.Member.ID == 0 && !mutant.On(mutant.UnrefusedZero):
		return invalidChange("a member ID must not be 0")
	}
	var err *isotone.Error
	switch c.Kind {
	case AddLearner:
		err = r.checkAdd(c.Member)
	case ReplaceMember:
		err = r.checkReplace(c.Member)
	case AddVoter:
		err = r.checkPromote(c.Member.ID)
	case Remove:
		err = r.checkRemove(c.Member.ID)
	case UpdateMember:
		return r.checkUpdate(c.Member)
	default:
		if !mutant.On(mutant.UnrefusedKind) {
			return invalidChange("a change of membership of unknown kind %d", c.Kind)
		}
	}
	if err != nil {
		return err
	}
	return r.checkQuorumAfter(c)
}

func invalidChange(format string, args ...any) *isotone.Error {
	return isotone.Errorf(isotone.CodeInvalidArgument, format, args...)
}

func (r *Replica) checkAdd(m oracle.Member) *isotone.Error {
	node := oracle.NodeOf(m.ID)
	for _, o := range r.state.Members {
		if oracle.NodeOf(o.ID) == node && !mutant.On(mutant.UnrefusedMember) {
			return invalidChange("node %d is a member already; if it has lost its data directory, replace it (isotone member replace %d PEER_ADDR)", node, node)
		}
	}
	switch {
	case r.state.IsRemoved(m.ID) && !mutant.On(mutant.UnrefusedRemoved):
		return invalidChange("node %d was a member of this cluster before; a node ID is used once, choose another one", node)
	case oracle.GenerationOf(m.ID) != 0 && !mutant.On(mutant.UnrefusedGeneration):
		return invalidChange("a node ID is at most %d", uint64(oracle.NodeMax))
	case !r.state.CanRemove(m.ID) && !mutant.On(mutant.UnrefusedRemovedMax):
		return invalidChange("node %d could not be removed again: %s; replace a node instead (isotone member replace NODE_ID PEER_ADDR)", node, removedFull)
	}
	return r.checkJoin(m)
}

// checkJoin returns why no learner of this node can be added at its peer address, or nil.
func (r *Replica) checkJoin(m oracle.Member) *isotone.Error {
	switch addr := m.PeerAddr; {
	case len(r.state.Members) >= oracle.MembersMax && !mutant.On(mutant.UnrefusedMembersMax):
		return invalidChange("a cluster has at most %d members", oracle.MembersMax)
	case !isAddr(addr):
		return invalidChange("%q is not the peer address of a node: want host:port, at most %d bytes", addr, oracle.AddrMax)
	}
	return r.checkAddrs(oracle.NodeOf(m.ID), m.PeerAddr, "")
}

// checkAddrs returns why a node cannot get these addresses, or nil; empty ones stay as they are. An address may be on record
// twice only for two members of one node, of which one replaces the other.
func (r *Replica) checkAddrs(node uint64, peer, client string) *isotone.Error {
	if peer != "" && !r.isDialable(peer) && !mutant.On(mutant.UnrefusedLocal) {
		return invalidChange("only the machine of node %d can dial %s, and there are members on other machines; want an address at which they reach it", node, peer)
	}
	for _, o := range r.state.Members {
		switch other := oracle.NodeOf(o.ID); {
		case other == node || mutant.On(mutant.UnrefusedTaken):
		case peer != "" && peer == o.PeerAddr:
			return invalidChange("node %d is on record at the peer address %s; give it another one first (isotone member update %d PEER_ADDR), or remove it", other, peer, other)
		case client != "" && client == o.ClientAddr:
			return invalidChange("node %d is on record at the client address %s; give it another one first (isotone member update %d - CLIENT_ADDR), or remove it", other, client, other)
		}
	}
	return nil
}

func (r *Replica) checkReplace(m oracle.Member) *isotone.Error {
	node := oracle.NodeOf(m.ID)
	_, isMember := r.state.Member(m.ID)
	_, hasNext := r.state.NextMember(m.ID)
	switch {
	case !isMember && !mutant.On(mutant.UnrefusedStranger):
		return invalidChange("node %d is no member; add it (isotone member add %d PEER_ADDR)", node, node)
	case !hasNext && !mutant.On(mutant.UnrefusedLastGeneration):
		return invalidChange("node %d was replaced %d times and cannot be replaced again; add a node with another ID and remove this one", node, oracle.GenerationMax)
	}
	for _, o := range r.state.Members {
		if o.Replaces == m.ID && !mutant.On(mutant.UnrefusedReplaced) {
			return invalidChange("node %d is being replaced already, by a node at %s; to give that up: isotone member remove %d --replacement", node, o.PeerAddr, node)
		}
	}
	return r.checkJoin(m)
}

func (r *Replica) checkPromote(id uint64) *isotone.Error {
	m, isMember := r.state.Member(id)
	node := oracle.NodeOf(id)
	switch {
	case !isMember:
		return invalidChange("node %d is no member: add it as a learner first (isotone member add %d PEER_ADDR)", node, node)
	case !r.isLearner(id):
		return invalidChange("node %d is a voter already", node)
	case m.Incarnation == 0 && !mutant.On(mutant.UnrefusedUnregistered):
		return isotone.Errorf(isotone.CodeOverloaded, "node %d has not connected yet; start it with JOIN", node)
	}
	return nil
}

// removedFull says why no further node can be removed.
var removedFull = fmt.Sprintf("a cluster remembers at most %d former nodes, and this one has had as many (one that is restored from a backup begins without any)", oracle.RemovedMax)

func (r *Replica) checkRemove(id uint64) *isotone.Error {
	node := oracle.NodeOf(id)
	switch m, isMember := r.state.Member(id); {
	case !isMember:
		return invalidChange("node %d is no member", node)
	case !r.state.CanRemove(id) && m.Replaces != 0 && !mutant.On(mutant.UnrefusedForgotten):
		return invalidChange("the replacement of node %d cannot be given up: %s; start the new node at %s", node, removedFull, m.PeerAddr)
	case !r.state.CanRemove(id) && !mutant.On(mutant.UnrefusedForgotten):
		return invalidChange("node %d cannot be removed: %s; it can be replaced (isotone member replace %d PEER_ADDR)", node, removedFull, node)
	case slices.Contains(r.conf.GetVoters(), id) && len(r.conf.GetVoters()) == 1:
		return invalidChange("node %d is the last voter and cannot be removed", oracle.NodeOf(id))
	}
	return nil
}

func (r *Replica) checkUpdate(m oracle.Member) *isotone.Error {
	switch _, isMember := r.state.Member(m.ID); {
	case !isMember:
		return invalidChange("node %d is no member", oracle.NodeOf(m.ID))
	case m.PeerAddr == "" && m.ClientAddr == "":
		return invalidChange("no address to change")
	}
	for _, addr := range []string{m.PeerAddr, m.ClientAddr} {
		if addr != "" && !isAddr(addr) {
			return invalidChange("%q is not an address: want host:port, at most %d bytes", addr, oracle.AddrMax)
		}
	}
	return r.checkAddrs(oracle.NodeOf(m.ID), m.PeerAddr, m.ClientAddr)
}

// checkQuorumAfter refuses a change after which the voters that are connected and know the
// present members would be no quorum: the cluster could neither elect a leader nor undo the
// change.
func (r *Replica) checkQuorumAfter(c MemberChange) *isotone.Error {
	if c.Kind == AddLearner || c.Kind == ReplaceMember {
		return nil
	}
	gone := c.Member.ID
	if c.Kind == AddVoter {
		gone = r.replacedBy(c.Member.ID)
	}
	voters := slices.DeleteFunc(slices.Clone(r.conf.GetVoters()), func(id uint64) bool { return id == gone })
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
	case c.Kind == AddVoter && !slices.Contains(ready, c.Member.ID) && !mutant.On(mutant.UnrefusedBehind):
		return isotone.Errorf(isotone.CodeOverloaded, "node %d is not connected, or lacks too much of the log; try again when it has caught up", oracle.NodeOf(c.Member.ID))
	case len(ready) < len(voters)/2+1 && !mutant.On(mutant.UnrefusedQuorum):
		return isotone.Errorf(isotone.CodeOverloaded, "after that the cluster would have %d voters, of which only %d are connected and up to date (%s): it could not elect a leader",
			len(voters), len(ready), list(ready))
	}
	return nil
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
	r.forgetStrangers()
}

// isAddr reports whether s may be an address in a member record: printable ASCII without
// spaces, 1 to oracle.AddrMax bytes.
func isAddr(s string) bool {
	return s != "" && (len(s) <= oracle.AddrMax || mutant.On(mutant.UnrefusedAddress)) && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
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
	r.forgetPromises()
	r.restartRounds()
	r.resetRefusals()
	r.effects.Changed = true
	r.observe()
	return nil
}
