package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Refusal says why a peer is not admitted.
type Refusal struct {
	Code    RefusalCode
	Message string // for display
}

// RefusalCode is the reason of a refusal. The values are part of the peer protocol.
type RefusalCode string

const (
	// RefusedCluster: it belongs to another cluster, or has other PEERS.
	RefusedCluster RefusalCode = "wrong_cluster"
	// RefusedMember: its node ID is not that of a member.
	RefusedMember RefusalCode = "not_member"
	// RefusedSettings: a setting differs that all members must share.
	RefusedSettings RefusalCode = "settings"
	// RefusedWiped: its data directory has another incarnation than the one on record.
	RefusedWiped RefusalCode = "wiped"
	// RefusedStale: its data directory is an older copy.
	RefusedStale RefusalCode = "stale"
	// RefusedCloned: another process runs from a copy of the same directory.
	RefusedCloned RefusalCode = "cloned"
	// RefusedInUse: another process on the same directory, or a copy, seems to be alive. It may
	// have ended without a word.
	RefusedInUse RefusalCode = "in_use"
	// RefusedFormed: it was started to form a cluster that exists already.
	RefusedFormed RefusalCode = "already_formed"
	// RefusedFounders: it was started to form a cluster with another list of members.
	RefusedFounders RefusalCode = "other_peers"
	// RefusedRemoved: it was a member of the cluster and was removed or replaced.
	RefusedRemoved RefusalCode = "removed"
	// RefusedLevel: its version is too old.
	RefusedLevel RefusalCode = "version_too_old"
)

// IsFinal reports whether one refusal with this code stops the refused node: its disk is not
// what it made promises on (I6), or it would form a second cluster (I10).
func (c RefusalCode) IsFinal() bool {
	switch c {
	case RefusedWiped, RefusedStale, RefusedCloned, RefusedFormed, RefusedFounders, RefusedRemoved:
		return true
	}
	return false
}

// Error returns "code: message".
func (e *Refusal) Error() string { return string(e.Code) + ": " + e.Message }

// admission decides which nodes may connect (I6), and records how peers decided about this one.
type admission struct {
	*facts
	leading *leading
	// strangers are nodes that were admitted though this one knows no such member; at most
	// strangersMax.
	strangers []stranger
}

// notePromise notes the term in which a peer granted a vote or acknowledged entries. The peer
// sends either only once it is durable.
func (a *admission) notePromise(m *raftpb.Message) {
	if !m.GetReject() && m.GetFrom() != a.cfg.Self.NodeID {
		p := a.peer(m.GetFrom())
		p.term = max(p.term, m.GetTerm())
	}
}

// Admit decides whether a peer with this hello may connect (I6): nil admits it. It compares
// the hello with the replicated member record and with what the peer promised to this
// process. A founder that cannot form its cluster any more stops soon after.
func (r *Replica) Admit(h Hello) *Refusal {
	refusal, stops := r.admission.judge(h)
	if stops {
		r.stopSoon(refusal)
	}
	if _, isMember := r.state.Member(h.NodeID); refusal == nil && isMember {
		r.peer(h.NodeID).admitted = h
	}
	return refusal
}

// judge returns why h is refused, or nil, and whether this node has to stop as well.
func (a *admission) judge(h Hello) (refusal *Refusal, stops bool) {
	if a.forming != nil {
		return a.judgeAsFounder(h)
	}
	return a.judgeAsMember(h), false
}

func (a *admission) judgeAsMember(h Hello) *Refusal {
	m, isMember := a.state.Member(h.NodeID)
	switch refusal := a.judgeIdentity(h, m, isMember); {
	case refusal != nil:
		return refusal
	case !isMember && a.applied == 0:
		a.meet(h) // this node joins and knows no members yet: this may be one that it was not told of, and the leader
		return nil
	case !isMember && a.mayBeNewer(h):
		return nil
	case !isMember && !mutant.On(mutant.AdmitStranger):
		return refuse(RefusedMember, "node %d is no member of cluster %016x", h.node(), a.hello().ClusterID)
	case h.TickNanos != a.cfg.Self.TickNanos && !mutant.On(mutant.AdmitTick):
		return refuseTick(h, a.cfg.Self)
	}
	if refusal := a.refuseLevel(h); refusal != nil {
		return refusal
	}
	return a.judgeProcess(h, m)
}

// judgeIdentity refuses a node of another cluster, one that was removed, and one whose data directory is
// not that of the member m, if it is one.
func (a *admission) judgeIdentity(h Hello, m oracle.Member, isMember bool) *Refusal {
	self := a.hello()
	switch {
	case h.ClusterID != 0 && self.ClusterID != 0 && h.ClusterID != self.ClusterID && !mutant.On(mutant.AdmitForeign):
		return refuse(RefusedCluster, "node %d has data of cluster %016x, this is cluster %016x; give it a data directory of its own",
			h.node(), h.ClusterID, self.ClusterID)
	case a.state.IsRemoved(h.NodeID):
		return a.refuseRemoved(h)
	case isMember && m.Incarnation != 0 && m.Incarnation != h.Incarnation && !mutant.On(mutant.AdmitWiped):
		return refuseWiped(h, m.Incarnation) // before anything about PEERS, which says less
	case h.Stage == StageGathering && m.Incarnation != h.Incarnation && !mutant.On(mutant.AdmitFounder):
		return a.refuseFounder(h) // with the same incarnation its hello was only slow
	case (h.ClusterID == 0 || self.ClusterID == 0) && h.VotersHash != 0 && self.VotersHash != 0 && h.VotersHash != self.VotersHash:
		return refuse(RefusedCluster, "node %d was started with other node IDs in PEERS than node %d; all initial members need the same list",
			h.node(), self.node())
	}
	return nil
}

// judgeProcess refuses a process of the member m that is not the one that runs, or whose directory is an
// older copy.
func (a *admission) judgeProcess(h Hello, m oracle.Member) *Refusal {
	p := a.peer(h.NodeID)
	if !mutant.On(mutant.CopyWins) {
		if a.isAlive(p) && h.Session != p.session && h.Session != m.Session {
			return a.refuseRival(p, h)
		}
		if h.Session == m.Session && h.Boot == m.Boot && !mutant.On(mutant.RefuseSlowHello) {
			return nil // the process on record, whatever copies of its directory have said since
		}
	}
	for i, known := range []Hello{{Incarnation: m.Incarnation, Boot: m.Boot, Session: m.Session}, p.hello, p.admitted} {
		refusal := compareHello(h, known)
		if refusal != nil && refusal.Code == RefusedCloned && i > 0 {
			refusal.Code = RefusedInUse // the log decides
		}
		if refusal != nil {
			return refusal
		}
	}
	return a.judgeMemory(h, m, p)
}

// judgeMemory refuses a process that has forgotten what it confirmed.
func (a *admission) judgeMemory(h Hello, m oracle.Member, p *peerView) *Refusal {
	if mutant.On(mutant.AdmitStale) || mutant.On(mutant.AdmitWiped) {
		return nil
	}
	known := h.Session == m.Session || h.Session == p.hello.Session
	if known && h.Session != 0 && !mutant.On(mutant.RefuseSlowHello) {
		return nil // the process has forgotten nothing: its hello is older than its promises
	}
	if m.Incarnation == 0 && a.isLearner(h.NodeID) && !mutant.On(mutant.RefuseSlowLearner) {
		// No process of the learner is on record yet. This may be the one whose log was confirmed, with a hello from
		// before that. A learner has no vote that it could forget.
		return nil
	}
	if index := max(m.Durable, a.acknowledgedIndex(h.NodeID)); h.LastIndex < index || h.Term < p.term {
		return refuse(RefusedStale, "node %d comes back with log index %d and term %d, but once confirmed index %d and term %d: "+
			"its data directory is an older copy and must not take part", h.node(), h.LastIndex, h.Term, index, p.term)
	}
	return nil
}

// compareHello compares a hello with an earlier one of the same node ID.
func compareHello(h, known Hello) *Refusal {
	switch {
	case known.Incarnation == 0:
		return nil
	case h.Incarnation != known.Incarnation && mutant.On(mutant.AdmitWiped):
		return nil
	case h.Incarnation != known.Incarnation:
		return refuseWiped(h, known.Incarnation)
	case mutant.On(mutant.AdmitStale):
		return nil
	case h.Boot < known.Boot:
		return refuse(RefusedStale, "node %d says this is start %d of its data directory, but start %d was seen: "+
			"the directory is an older copy and must not take part", h.node(), h.Boot, known.Boot)
	case h.Boot == known.Boot && h.Session != known.Session && !mutant.On(mutant.AdmitCloned):
		return refuse(RefusedCloned, "node %d was started twice from copies of one data directory: stop one of the two processes for good, or, "+
			"if a copy was put back, take it away", h.node())
	}
	return nil
}

func refuseWiped(h Hello, known uint64) *Refusal {
	return refuse(RefusedWiped, "node %d has another data directory (%016x) than it began with (%016x): it was wiped or replaced; "+
		"bring the old directory back; if it is lost, replace the node (isotone member replace %d PEER_ADDR) and start it with JOIN", h.node(), h.Incarnation, known, h.node())
}

// refuseRemoved refuses a node that was removed: for good, which ends it, as soon as nobody needs its
// vote any more.
func (a *admission) refuseRemoved(h Hello) *Refusal {
	node := oracle.NodeOf(h.NodeID)
	if !a.removalIsKnown() && !mutant.On(mutant.ExpelEarly) {
		return refuse(RefusedMember, "node %d is no member of cluster %016x any more; it will be told to stop when its vote is not needed any more", node, a.state.ClusterID)
	}
	for _, m := range a.state.Members {
		if oracle.NodeOf(m.ID) == node {
			return refuse(RefusedRemoved, "node %d was replaced by a node with a new data directory, at %s; this directory is of no more use", node, m.PeerAddr)
		}
	}
	return refuse(RefusedRemoved, "node %d was removed from cluster %016x for good; to come back, add a node with another ID and an empty data directory", node, a.state.ClusterID)
}

// removalIsKnown reports whether every member that can still be elected knows the latest change of
// the membership to be committed. One that does not counts the votes of the voters before, and may
// need that of a member which was removed: of two voters it needs both.
//
// A leader knows when it has applied a reservation that it proposed after it had applied the change.
// Its append told the commit index with it, so the quorum that has it on disk knows of the change;
// and a member that lacks it cannot be elected.
func (a *admission) removalIsKnown() bool {
	return a.role == raft.StateLeader && a.leading.changeKnown >= a.changedAt
}

// refuseTick: a voter's promise is counted in its own ticks, a lease in the leader's (I5).
func refuseTick(h, self Hello) *Refusal {
	return refuse(RefusedSettings, "node %d runs with RTT_MS %v, node %d with %v; all members need the same",
		h.node(), float64(h.TickNanos)/1e6, self.node(), float64(self.TickNanos)/1e6)
}

// refuseLayout: the first of them to lease a worker would have all others refused for ever.
func refuseLayout(h, self Hello) *Refusal {
	return refuse(RefusedSettings, "node %d makes ids of another layout (%s) than node %d (%s); all members need the same SNOWFLAKE_LAYOUT and SNOWFLAKE_EPOCH_MS",
		h.node(), h.Layout, self.node(), self.Layout)
}

func refuse(code RefusalCode, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// acknowledgedIndex returns the committed index that a leader knows a peer to have on disk, 0
// on other nodes.
func (f *facts) acknowledgedIndex(id uint64) uint64 {
	if f.role != raft.StateLeader {
		return 0
	}
	for _, d := range f.durableIndexes() {
		if d.ID == id {
			return d.Index
		}
	}
	return 0
}

// removedTicks is how long members must answer not_member before this node believes that it
// was removed: not everyone knows a new member at once.
const removedTicks = 10 * electionTicks

// Refused records that the peer by refused this node. It returns why the node has to stop,
// or nil. A final refusal stops it at once (I6, I10), and so does, for a founder, that of a
// member of another cluster. Others stop it when the voters that did not refuse it are no
// quorum.
func (r *Replica) Refused(by uint64, refusal *Refusal) error { return r.admission.refused(by, refusal) }

func (a *admission) refused(by uint64, refusal *Refusal) error {
	p := a.peer(by)
	if p.refusal == nil || p.refusal.Code != refusal.Code {
		p.refusedSince = a.ticks
	}
	p.refusal, p.refusedAt = refusal, a.ticks
	self := a.cfg.Self.NodeID
	other := refusal.Code == RefusedCluster || refusal.Code == RefusedMember
	if refusal.Code.IsFinal() || a.forming != nil && other {
		return fmt.Errorf("node %d was refused by node %d and has stopped: %w", oracle.NodeOf(self), oracle.NodeOf(by), refusal)
	}
	voters := a.conf.GetVoters()
	refusing, strangers, others := 0, 0, 0
	for _, id := range voters {
		if id != self {
			others++
		}
		switch p := a.peers[id]; {
		case p == nil || p.refusal == nil:
		case p.refusal.Code == RefusedMember:
			if p.refusedAt >= p.refusedSince+removedTicks {
				strangers++ // and not once, when it had not heard of this node yet
			}
		case p.refusal.Code == RefusedCluster || p.refusal.Code == RefusedSettings || p.refusal.Code == RefusedLevel:
			refusing++
		}
	}
	// Voters that lag may not know this node yet: so it was removed only if all the others say so.
	if strangers == others {
		refusing += strangers
	}
	if a.forming != nil || refusing == 0 || len(voters)-refusing >= len(voters)/2+1 {
		return nil
	}
	return fmt.Errorf("node %d was refused by %d of %d voters and has stopped; node %d says: %w",
		oracle.NodeOf(self), refusing, len(voters), oracle.NodeOf(by), refusal)
}

// resetRefusals restarts the time of refusals: this node may have been added just now.
func (f *facts) resetRefusals() {
	for _, p := range f.peers { // order-free: each by itself
		p.refusedSince = f.ticks
	}
}

// clearRefusal forgets the refusal of a peer that sent something: it has admitted this node
// since.
func (f *facts) clearRefusal(id uint64) {
	if p := f.peers[id]; p != nil {
		p.refusal, p.heardAt = nil, f.ticks
	}
}

// connected handles the hello of a peer that connected.
func (a *admission) connected(h Hello) {
	if s := a.stranger(h.NodeID); s != nil {
		s.hello, s.isConnected = h, true
	}
	a.peer(h.NodeID).connected(h, a.ticks)
}

func (p *peerView) connected(h Hello, tick uint64) {
	if p.session != h.Session {
		p.since = tick
	}
	p.hello, p.refusal, p.session, p.heardAt = h, nil, h.Session, tick
}

// gone records that the connection of a peer has ended. Until it answers again it does not
// count as active: a change of membership after which only such nodes could elect a leader would
// be the last one.
func (a *admission) gone(id uint64) {
	if p := a.peers[id]; p != nil {
		p.session, p.lastActive = 0, 0
	}
	if s := a.stranger(id); s != nil {
		s.isConnected = false
	}
}

// refuseRival refuses a process whose place is taken. It may be a restart of a machine that
// has lost its power, which leaves connections behind that seem alive. But if the other
// process is heard for long after this one has come, this one runs from a copy.
func (a *admission) refuseRival(p *peerView, h Hello) *Refusal {
	if p.rival != h.Session {
		p.rival, p.rivalSince = h.Session, a.ticks
	}
	if p.heardAt >= p.rivalSince+a.holderTicks() {
		return refuse(RefusedCloned, "node %d runs already, in another process: this one was started from a copy of its data directory", oracle.NodeOf(h.NodeID))
	}
	return refuse(RefusedInUse, "node %d runs already, in another process: stop this one if it was started from a copy of the data directory; "+
		"if the other one has just ended, its connection will be given up soon", oracle.NodeOf(h.NodeID))
}

// holderTicks is for how many ticks a process that is connected counts as alive without a
// word of it: longer than members keep silent.
func (a *admission) holderTicks() uint64 { return 3 * max(1, uint64(clockInterval/a.cfg.TickInterval)) }

// isAlive reports whether a process of that peer is connected and was heard lately.
func (a *admission) isAlive(p *peerView) bool {
	return p.session != 0 && a.ticks-p.heardAt <= a.holderTicks()
}

// stranger is a node that was admitted although this one knows no such member.
type stranger struct {
	hello       Hello
	isConnected bool
}

// stranger returns the stranger with an ID, nil if there is none.
func (a *admission) stranger(id uint64) *stranger {
	at := slices.IndexFunc(a.strangers, func(s stranger) bool { return s.hello.NodeID == id })
	if at < 0 {
		return nil
	}
	return &a.strangers[at]
}

// strangersMax bounds the nodes that were admitted although this one knows no such member.
const strangersMax = 8

// mayBeNewer admits a node of this cluster that is ahead of this one, which knows no such
// member: it may have been added meanwhile, and be needed for a quorum. A node that has a leader
// learns from it who the members are, so it need not trust an unknown one.
func (a *admission) mayBeNewer(h Hello) bool {
	if h.ClusterID == 0 || h.ClusterID != a.state.ClusterID || h.Stage != StageFormed ||
		h.LastIndex <= a.applied || h.TickNanos != a.cfg.Self.TickNanos {
		return false
	}
	if a.lead != raft.None && !mutant.On(mutant.AdmitNeedless) {
		return false
	}
	return a.meet(h)
}

// meet records a stranger, which this node dials from then on, and reports whether there was room.
func (a *admission) meet(h Hello) bool {
	if s := a.stranger(h.NodeID); s != nil {
		s.hello = h
		return true
	}
	if len(a.strangers) == strangersMax && !mutant.On(mutant.AdmitStrangers) {
		// One that was admitted and did not connect, or is gone, makes room.
		at := slices.IndexFunc(a.strangers, func(s stranger) bool { return !s.isConnected })
		if at < 0 {
			return false
		}
		a.strangers = slices.Delete(a.strangers, at, at+1)
	}
	a.strangers = append(a.strangers, stranger{hello: h})
	a.effects.Changed = true
	return true
}

// forgetStrangers drops strangers that are members now, those that were removed, and those that are not ahead of this node any more: if they were members,
// it would know them.
func (a *admission) forgetStrangers() {
	a.strangers = slices.DeleteFunc(a.strangers, func(s stranger) bool {
		m, isMember := a.state.Member(s.hello.NodeID)
		if isMember && s.isConnected && (m.Incarnation == 0 || m.Incarnation == s.hello.Incarnation) {
			a.peer(m.ID).admitted = s.hello
			a.peer(m.ID).connected(s.hello, a.ticks)
		}
		return isMember || a.state.IsRemoved(s.hello.NodeID) || s.hello.LastIndex <= a.applied
	})
}
