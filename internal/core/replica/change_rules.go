package replica

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// The rules that a change of membership has to keep. Each function has a table of them, in the order in
// which they are checked.

// membership says which changes of the members are possible, and keeps their records up to date.
type membership struct {
	*facts
	leading *leading
	tail    *tail
}

// rule is one reason to refuse a change.
type rule struct {
	broken  bool          // by the change
	without mutant.Mutant // the mutant that lacks this rule, or None
	code    isotone.Code
	text    string
	args    []any
}

// invalid returns a rule whose violation makes the request itself wrong: repeating it does not help.
func invalid(broken bool, without mutant.Mutant, text string, args ...any) rule {
	return rule{broken, without, isotone.CodeInvalidArgument, text, args}
}

// tooEarly returns a rule that the same request may satisfy later.
func tooEarly(broken bool, without mutant.Mutant, text string, args ...any) rule {
	return rule{broken, without, isotone.CodeOverloaded, text, args}
}

// firstBroken returns the refusal by the first of the rules that is broken, or nil.
func firstBroken(rules ...rule) *isotone.Error {
	for _, u := range rules {
		if u.broken && (u.without == mutant.None || !mutant.On(u.without)) {
			return isotone.Errorf(u.code, u.text, u.args...)
		}
	}
	return nil
}

// checkChange returns why c cannot be proposed, or nil.
func (ms *membership) checkChange(c MemberChange) *isotone.Error {
	if ms.role != raft.StateLeader || !ms.leading.alloc.IsOpen() && !mutant.On(mutant.UnrefusedBeforeOpen) {
		return ms.redirect()
	}
	if err := firstBroken(
		tooEarly(ms.leading.changing, mutant.UnrefusedSecond, "another change of membership is under way"),
		tooEarly(len(ms.conf.GetVotersOutgoing()) > 0, mutant.UnrefusedInJoint, "another change of membership is under way"),
		tooEarly(!ms.tail.hasRoom(2), mutant.None, "too many requests are waiting"),
	); err != nil {
		return err
	}
	if mutant.On(mutant.ChangeUnchecked) && c.Kind >= AddLearner && c.Kind <= Remove {
		return nil
	}
	if err := firstBroken(
		invalid(c.Member.ID == 0, mutant.UnrefusedZero, "a member ID must not be 0"),
		invalid(c.Kind < AddLearner || c.Kind > UpdateMember, mutant.UnrefusedKind, "a change of membership of unknown kind %d", c.Kind),
	); err != nil {
		return err
	}
	var err *isotone.Error
	switch c.Kind {
	case AddLearner:
		err = ms.checkAdd(c.Member)
	case ReplaceMember:
		err = ms.checkReplace(c.Member)
	case AddVoter:
		err = ms.checkPromote(c.Member.ID)
	case Remove:
		err = ms.checkRemove(c.Member.ID)
	case UpdateMember:
		return ms.checkUpdate(c.Member)
	}
	if err != nil {
		return err
	}
	return ms.checkQuorumAfter(c)
}

func (ms *membership) checkAdd(m oracle.Member) *isotone.Error {
	node := oracle.NodeOf(m.ID)
	isMember := slices.ContainsFunc(ms.state.Members, func(o oracle.Member) bool { return oracle.NodeOf(o.ID) == node })
	if err := firstBroken(
		invalid(isMember, mutant.UnrefusedMember, "node %d is a member already; if it has lost its data directory, replace it (isotone member replace %d PEER_ADDR)", node, node),
		invalid(ms.state.IsRemoved(m.ID), mutant.UnrefusedRemoved, "node %d was a member of this cluster before; a node ID is used once, choose another one", node),
		invalid(oracle.GenerationOf(m.ID) != 0, mutant.UnrefusedGeneration, "a node ID is at most %d", uint64(oracle.NodeMax)),
		invalid(!ms.state.CanRemove(m.ID), mutant.UnrefusedRemovedMax, "node %d could not be removed again: %s; replace a node instead (isotone member replace NODE_ID PEER_ADDR)", node, removedFull),
	); err != nil {
		return err
	}
	return ms.checkJoin(m)
}

// checkJoin returns why no learner of this node can be added at its peer address, or nil.
func (ms *membership) checkJoin(m oracle.Member) *isotone.Error {
	if err := firstBroken(
		invalid(len(ms.state.Members) >= oracle.MembersMax, mutant.UnrefusedMembersMax, "a cluster has at most %d members", oracle.MembersMax),
		invalid(!isAddr(m.PeerAddr), mutant.None, "%q is not the peer address of a node: want host:port, at most %d bytes", m.PeerAddr, oracle.AddrMax),
	); err != nil {
		return err
	}
	return ms.checkAddrs(oracle.NodeOf(m.ID), m.PeerAddr, "")
}

// checkAddrs returns why a node cannot get these addresses, or nil; empty ones stay as they are. An address may be on record
// twice only for two members of one node, of which one replaces the other.
func (ms *membership) checkAddrs(node uint64, peer, client string) *isotone.Error {
	rules := []rule{invalid(peer != "" && !ms.isDialable(peer), mutant.UnrefusedLocal,
		"only the machine of node %d can dial %s, and there are members on other machines; want an address at which they reach it", node, peer)}
	for _, o := range ms.state.Members {
		other := oracle.NodeOf(o.ID)
		rules = append(rules,
			invalid(other != node && peer != "" && peer == o.PeerAddr, mutant.UnrefusedTaken,
				"node %d is on record at the peer address %s; give it another one first (isotone member update %d PEER_ADDR), or remove it", other, peer, other),
			invalid(other != node && client != "" && client == o.ClientAddr, mutant.UnrefusedTaken,
				"node %d is on record at the client address %s; give it another one first (isotone member update %d - CLIENT_ADDR), or remove it", other, client, other))
	}
	return firstBroken(rules...)
}

func (ms *membership) checkReplace(m oracle.Member) *isotone.Error {
	node := oracle.NodeOf(m.ID)
	_, isMember := ms.state.Member(m.ID)
	_, hasNext := ms.state.NextMember(m.ID)
	successor := oracle.Member{}
	if i := slices.IndexFunc(ms.state.Members, func(o oracle.Member) bool { return o.Replaces == m.ID }); i >= 0 {
		successor = ms.state.Members[i]
	}
	if err := firstBroken(
		invalid(!isMember, mutant.UnrefusedStranger, "node %d is no member; add it (isotone member add %d PEER_ADDR)", node, node),
		invalid(!hasNext, mutant.UnrefusedLastGeneration, "node %d was replaced %d times and cannot be replaced again; add a node with another ID and remove this one", node, oracle.GenerationMax),
		invalid(successor.ID != 0, mutant.UnrefusedReplaced, "node %d is being replaced already, by a node at %s; to give that up: isotone member remove %d --replacement", node, successor.PeerAddr, node),
	); err != nil {
		return err
	}
	return ms.checkJoin(m)
}

func (ms *membership) checkPromote(id uint64) *isotone.Error {
	m, isMember := ms.state.Member(id)
	node := oracle.NodeOf(id)
	return firstBroken(
		invalid(!isMember, mutant.None, "node %d is no member: add it as a learner first (isotone member add %d PEER_ADDR)", node, node),
		invalid(!ms.isLearner(id), mutant.None, "node %d is a voter already", node),
		tooEarly(m.Incarnation == 0, mutant.UnrefusedUnregistered, "node %d has not connected yet; start it with JOIN", node),
	)
}

// removedFull says why no further node can be removed.
var removedFull = fmt.Sprintf("a cluster remembers at most %d former nodes, and this one has had as many (one that is restored from a backup begins without any)", oracle.RemovedMax)

func (ms *membership) checkRemove(id uint64) *isotone.Error {
	node := oracle.NodeOf(id)
	m, isMember := ms.state.Member(id)
	isLast := slices.Contains(ms.conf.GetVoters(), id) && len(ms.conf.GetVoters()) == 1
	return firstBroken(
		invalid(!isMember, mutant.None, "node %d is no member", node),
		invalid(!ms.state.CanRemove(id) && m.Replaces != 0, mutant.UnrefusedForgotten, "the replacement of node %d cannot be given up: %s; start the new node at %s", node, removedFull, m.PeerAddr),
		invalid(!ms.state.CanRemove(id), mutant.UnrefusedForgotten, "node %d cannot be removed: %s; it can be replaced (isotone member replace %d PEER_ADDR)", node, removedFull, node),
		invalid(isLast, mutant.None, "node %d is the last voter and cannot be removed", node),
	)
}

func (ms *membership) checkUpdate(m oracle.Member) *isotone.Error {
	_, isMember := ms.state.Member(m.ID)
	const want = "%q is not an address: want host:port, at most %d bytes"
	if err := firstBroken(
		invalid(!isMember, mutant.None, "node %d is no member", oracle.NodeOf(m.ID)),
		invalid(m.PeerAddr == "" && m.ClientAddr == "", mutant.None, "no address to change"),
		invalid(m.PeerAddr != "" && !isAddr(m.PeerAddr), mutant.None, want, m.PeerAddr, oracle.AddrMax),
		invalid(m.ClientAddr != "" && !isAddr(m.ClientAddr), mutant.None, want, m.ClientAddr, oracle.AddrMax),
	); err != nil {
		return err
	}
	return ms.checkAddrs(oracle.NodeOf(m.ID), m.PeerAddr, m.ClientAddr)
}

// checkQuorumAfter refuses a change after which the voters that are connected and know the
// present members would be no quorum: the cluster could neither elect a leader nor undo the
// change.
func (ms *membership) checkQuorumAfter(c MemberChange) *isotone.Error {
	if c.Kind == AddLearner || c.Kind == ReplaceMember {
		return nil
	}
	gone := c.Member.ID
	if c.Kind == AddVoter {
		gone = ms.replacedBy(c.Member.ID)
	}
	voters := slices.DeleteFunc(slices.Clone(ms.conf.GetVoters()), func(id uint64) bool { return id == gone })
	if c.Kind == AddVoter {
		voters = append(voters, c.Member.ID)
	}
	var ready []uint64
	ms.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if slices.Contains(voters, id) && ms.isActive(id) && (id == ms.cfg.Self.NodeID || pr.Match >= ms.changedAt) {
			ready = append(ready, id)
		}
	})
	return firstBroken(
		tooEarly(c.Kind == AddVoter && !slices.Contains(ready, c.Member.ID), mutant.UnrefusedBehind,
			"node %d is not connected, or lacks too much of the log; try again when it has caught up", oracle.NodeOf(c.Member.ID)),
		tooEarly(len(ready) < len(voters)/2+1, mutant.UnrefusedQuorum,
			"after that the cluster would have %d voters, of which only %d are connected and up to date (%s): it could not elect a leader", len(voters), len(ready), list(ready)),
	)
}

// isAddr reports whether s may be an address in a member record: printable ASCII without
// spaces, 1 to oracle.AddrMax bytes.
func isAddr(s string) bool {
	return s != "" && (len(s) <= oracle.AddrMax || mutant.On(mutant.UnrefusedAddress)) && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}
