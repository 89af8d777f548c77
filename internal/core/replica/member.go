package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Hello is what a node says of itself when it connects to a peer. The hello of
// internal/core/wire has the same fields.
type Hello struct {
	ClusterID   uint64 // 0 while unknown
	NodeID      uint64
	Incarnation uint64 // of the data directory
	Boot        uint64 // number of starts of the directory
	Session     uint64 // of the process
	VotersHash  uint64 // of the initial voters' IDs; 0 for a node that joins later
	Term        uint64 // on disk
	LastIndex   uint64 // of the log on disk
	TickNanos   uint64 // length of a tick in nanoseconds
	ClientAddr  string // host:port

	// Level is the newest feature level that the node knows.
	Level uint64
	Stage Stage
	// Founders are the IDs in PEERS, as in "1,2,3"; empty once the cluster is formed.
	Founders string
	// PeerAddr is the address for other members, host:port.
	PeerAddr string
	// Priority is that of the node as a leader; see priority.go.
	Priority int64
	// SeedDigest and SeedFloor are the Digest and the Floor of a founder's Seed; empty without
	// one.
	SeedDigest string
	SeedFloor  uint64
	// Configured is set if PeerAddr is from the node's settings, its own entry in PEERS. Otherwise it is
	// where the node listens, or what the cluster has on record.
	Configured bool
	// Layout has the layout of IDs of a founder that is gathering, as in "41/5/5/12@1288834974657"; empty without IDs.
	Layout string
}

// node returns the ID of the node, for people.
func (h Hello) node() uint64 { return oracle.NodeOf(h.NodeID) }

// Refusal says why a peer is not admitted.
type Refusal struct {
	Code    RefusalCode
	Message string // for people
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

// Hello returns what this node says of itself at present.
func (r *Replica) Hello() Hello {
	h := r.cfg.Self
	if r.state.ClusterID != 0 {
		h.ClusterID = r.state.ClusterID
	}
	h.Term, h.LastIndex, h.PeerAddr = r.durable.term, r.durable.index, r.ownAddr()
	switch {
	case r.forming == nil && r.applied == 0:
		h.Stage = StageJoining
	case r.forming == nil:
		h.Stage, h.Founders = StageFormed, ""
		h.SeedDigest, h.SeedFloor = "", 0
	case r.prepared():
		h.Stage = StagePrepared
	default:
		h.Stage = StageGathering
		if s := r.cfg.Space; r.cfg.LeaseMillis > 0 {
			h.Layout = fmt.Sprintf("%d/%d/%d/%d@%d", s.TimeBits, s.DatacenterBits, s.WorkerBits, s.SequenceBits, s.Epoch)
		}
	}
	return h
}

// notePromise notes the term in which a peer granted a vote or acknowledged entries. The peer
// sends either only once it is durable.
func (r *Replica) notePromise(m *raftpb.Message) {
	if !m.GetReject() && m.GetFrom() != r.cfg.Self.NodeID {
		p := r.peer(m.GetFrom())
		p.term = max(p.term, m.GetTerm())
	}
}

// Admit decides whether a peer with this hello may connect (I6): nil admits it. It compares
// the hello with the replicated member record and with what the peer promised to this
// process. A founder that cannot form its cluster any more stops soon after.
func (r *Replica) Admit(h Hello) *Refusal {
	refusal, stops := r.judge(h)
	if stops {
		r.stopSoon(refusal)
	}
	if _, isMember := r.state.Member(h.NodeID); refusal == nil && isMember {
		r.peer(h.NodeID).admitted = h
	}
	return refusal
}

// judge returns why h is refused, or nil, and whether this node has to stop as well.
func (r *Replica) judge(h Hello) (refusal *Refusal, stops bool) {
	if r.forming != nil {
		return r.judgeAsFounder(h)
	}
	return r.judgeAsMember(h), false
}

func (r *Replica) judgeAsMember(h Hello) *Refusal {
	self := r.Hello()
	m, isMember := r.state.Member(h.NodeID)
	switch {
	case h.ClusterID != 0 && self.ClusterID != 0 && h.ClusterID != self.ClusterID && !mutant.On(mutant.AdmitForeign):
		return refuse(RefusedCluster, "node %d has data of cluster %016x, this is cluster %016x; give it a data directory of its own",
			h.node(), h.ClusterID, self.ClusterID)
	case r.state.IsRemoved(h.NodeID):
		return r.refuseRemoved(h)
	case isMember && m.Incarnation != 0 && m.Incarnation != h.Incarnation && !mutant.On(mutant.AdmitWiped):
		return refuseWiped(h, m.Incarnation) // before anything about PEERS, which says less
	case h.Stage == StageGathering && m.Incarnation != h.Incarnation && !mutant.On(mutant.AdmitFounder):
		return r.refuseFounder(h) // with the same incarnation its hello was only slow
	case (h.ClusterID == 0 || self.ClusterID == 0) && h.VotersHash != 0 && self.VotersHash != 0 && h.VotersHash != self.VotersHash:
		return refuse(RefusedCluster, "node %d was started with other node IDs in PEERS than node %d; all initial members need the same list",
			h.node(), self.node())
	case !isMember && r.applied == 0:
		return nil // this node joins and knows no members yet
	case !isMember && r.mayBeNewer(h):
		return nil
	case !isMember && !mutant.On(mutant.AdmitStranger):
		return refuse(RefusedMember, "node %d is no member of cluster %016x", h.node(), self.ClusterID)
	case h.TickNanos != self.TickNanos && !mutant.On(mutant.AdmitTick):
		return refuseTick(h, self)
	}
	if refusal := r.refuseLevel(h); refusal != nil {
		return refusal
	}
	p := r.peer(h.NodeID)
	if !mutant.On(mutant.CopyWins) {
		if r.isAlive(p) && h.Session != p.session && h.Session != m.Session {
			return r.refuseRival(p, h)
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
	if mutant.On(mutant.AdmitStale) || mutant.On(mutant.AdmitWiped) {
		return nil
	}
	known := h.Session == m.Session || h.Session == p.hello.Session
	if known && h.Session != 0 && !mutant.On(mutant.RefuseSlowHello) {
		return nil // the process has forgotten nothing: its hello is older than its promises
	}
	if m.Incarnation == 0 && r.isLearner(h.NodeID) && !mutant.On(mutant.RefuseSlowLearner) {
		// No process of the learner is on record yet. This may be the one whose log was confirmed, with a hello from
		// before that. A learner has no vote that it could forget.
		return nil
	}
	if index := max(m.Durable, r.acknowledgedIndex(h.NodeID)); h.LastIndex < index || h.Term < p.term {
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
func (r *Replica) refuseRemoved(h Hello) *Refusal {
	node := oracle.NodeOf(h.NodeID)
	if !r.removalIsKnown() && !mutant.On(mutant.ExpelEarly) {
		return refuse(RefusedMember, "node %d is no member of cluster %016x any more; it will be told to stop when its vote is not needed any more", node, r.state.ClusterID)
	}
	for _, m := range r.state.Members {
		if oracle.NodeOf(m.ID) == node {
			return refuse(RefusedRemoved, "node %d was replaced by a node with a new data directory, at %s; this directory is of no more use", node, m.PeerAddr)
		}
	}
	return refuse(RefusedRemoved, "node %d was removed from cluster %016x for good; to come back, add a node with another ID and an empty data directory", node, r.state.ClusterID)
}

// removalIsKnown reports whether every member that can still be elected knows the latest change of
// the membership to be committed. One that does not counts the votes of the voters before, and may
// need that of a member which was removed: of two voters it needs both.
//
// A leader knows when it has applied a reservation that it proposed after it had applied the change.
// Its append told the commit index with it, so the quorum that has it on disk knows of the change;
// and who lacks it cannot be elected.
func (r *Replica) removalIsKnown() bool {
	return r.role == raft.StateLeader && r.leading.changeKnown >= r.changedAt
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
func (r *Replica) acknowledgedIndex(id uint64) uint64 {
	if r.role != raft.StateLeader {
		return 0
	}
	for _, d := range r.durableIndexes() {
		if d.ID == id {
			return d.Index
		}
	}
	return 0
}

// removedTicks is how long members must answer not_member before this node believes that it
// was removed: not everyone knows a new member at once.
const removedTicks = 10 * electionTicks

// Refused takes in that the peer by refused this node. It returns why the node has to stop,
// or nil. A final refusal stops it at once (I6, I10), and so does, for a founder, that of a
// member of another cluster. Others stop it when the voters that did not refuse it are no
// quorum.
func (r *Replica) Refused(by uint64, refusal *Refusal) error {
	p := r.peer(by)
	if p.refusal == nil || p.refusal.Code != refusal.Code {
		p.refusedSince = r.ticks
	}
	p.refusal, p.refusedAt = refusal, r.ticks
	self := r.cfg.Self.NodeID
	other := refusal.Code == RefusedCluster || refusal.Code == RefusedMember
	if refusal.Code.IsFinal() || r.forming != nil && other {
		return fmt.Errorf("node %d was refused by node %d and has stopped: %w", oracle.NodeOf(self), oracle.NodeOf(by), refusal)
	}
	voters := r.conf.GetVoters()
	refusing, strangers, others := 0, 0, 0
	for _, id := range voters {
		if id != self {
			others++
		}
		switch p := r.peers[id]; {
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
	if r.forming != nil || refusing == 0 || len(voters)-refusing >= len(voters)/2+1 {
		return nil
	}
	return fmt.Errorf("node %d was refused by %d of %d voters and has stopped; node %d says: %w",
		oracle.NodeOf(self), refusing, len(voters), oracle.NodeOf(by), refusal)
}

// resetRefusals restarts the time of refusals: this node may have been added just now.
func (r *Replica) resetRefusals() {
	for _, p := range r.peers { // order-free: each by itself
		p.refusedSince = r.ticks
	}
}

// clearRefusal forgets the refusal of a peer that sent something: it has admitted this node
// since.
func (r *Replica) clearRefusal(id uint64) {
	if p := r.peers[id]; p != nil {
		p.refusal, p.heardAt = nil, r.ticks
	}
}

// peerConnected takes in the hello of a peer that connected.
func (r *Replica) peerConnected(h Hello) {
	if s := r.stranger(h.NodeID); s != nil {
		s.hello, s.isConnected = h, true
	}
	r.peer(h.NodeID).connected(h, r.ticks)
	r.registerPeers()
}

func (p *peerView) connected(h Hello, tick uint64) {
	p.hello, p.refusal, p.session, p.heardAt = h, nil, h.Session, tick
}

// peerGone takes in that the connection of a peer has ended. Until it answers again it does not
// count as active: a change of membership after which only such nodes could elect a leader would
// be the last one.
func (r *Replica) peerGone(id uint64) {
	if p := r.peers[id]; p != nil {
		p.session, p.lastActive = 0, 0
	}
	if s := r.stranger(id); s != nil {
		s.isConnected = false
	}
}

// refuseRival refuses a process whose place is taken. It may be a restart of a machine that
// has lost its power, which leaves connections behind that seem alive. But if the other
// process is heard for long after this one has come, this one runs from a copy.
func (r *Replica) refuseRival(p *peerView, h Hello) *Refusal {
	if p.rival != h.Session {
		p.rival, p.rivalSince = h.Session, r.ticks
	}
	if p.heardAt >= p.rivalSince+r.holderTicks() {
		return refuse(RefusedCloned, "node %d runs already, in another process: this one was started from a copy of its data directory", oracle.NodeOf(h.NodeID))
	}
	return refuse(RefusedInUse, "node %d runs already, in another process: stop this one if it was started from a copy of the data directory; "+
		"if the other one has just ended, its connection will be given up soon", oracle.NodeOf(h.NodeID))
}

// holderTicks is for how many ticks a process that is connected counts as alive without a
// word of it: longer than members keep silent.
func (r *Replica) holderTicks() uint64 { return 3 * max(1, uint64(clockInterval/r.cfg.TickInterval)) }

// isAlive reports whether a process of that peer is connected and was heard lately.
func (r *Replica) isAlive(p *peerView) bool {
	return p.session != 0 && r.ticks-p.heardAt <= r.holderTicks()
}

// stranger is a node that was admitted although this one knows no such member.
type stranger struct {
	hello       Hello
	isConnected bool
}

// stranger returns the stranger with an ID, nil if there is none.
func (r *Replica) stranger(id uint64) *stranger {
	at := slices.IndexFunc(r.strangers, func(s stranger) bool { return s.hello.NodeID == id })
	if at < 0 {
		return nil
	}
	return &r.strangers[at]
}

// strangersMax bounds the nodes that were admitted although this one knows no such member.
const strangersMax = 8

// mayBeNewer admits a node of this cluster that is ahead of this one, which knows no such
// member: it may have been added meanwhile, and be needed for a quorum. A node that has a leader
// learns from it who the members are, so it need not trust an unknown one.
func (r *Replica) mayBeNewer(h Hello) bool {
	if h.ClusterID == 0 || h.ClusterID != r.state.ClusterID || h.Stage != StageFormed ||
		h.LastIndex <= r.applied || h.TickNanos != r.cfg.Self.TickNanos {
		return false
	}
	if r.lead != raft.None && !mutant.On(mutant.AdmitNeedless) {
		return false
	}
	if s := r.stranger(h.NodeID); s != nil {
		s.hello = h
		return true
	}
	if len(r.strangers) == strangersMax && !mutant.On(mutant.AdmitStrangers) {
		// One that was admitted and did not connect, or is gone, makes room.
		at := slices.IndexFunc(r.strangers, func(s stranger) bool { return !s.isConnected })
		if at < 0 {
			return false
		}
		r.strangers = slices.Delete(r.strangers, at, at+1)
	}
	r.strangers = append(r.strangers, stranger{hello: h})
	r.effects.Changed = true
	return true
}

// forgetStrangers drops strangers that are members now, and those that were removed.
func (r *Replica) forgetStrangers() {
	r.strangers = slices.DeleteFunc(r.strangers, func(s stranger) bool {
		m, isMember := r.state.Member(s.hello.NodeID)
		if isMember && s.isConnected && (m.Incarnation == 0 || m.Incarnation == s.hello.Incarnation) {
			r.peer(m.ID).admitted = s.hello
			r.peer(m.ID).connected(s.hello, r.ticks)
		}
		return isMember || r.state.IsRemoved(s.hello.NodeID)
	})
}

// isLearner reports whether id is a learner.
func (r *Replica) isLearner(id uint64) bool {
	return slices.Contains(r.conf.GetLearners(), id) || slices.Contains(r.conf.GetLearnersNext(), id)
}

// isVoter reports whether id votes, in a joint configuration in either part of it.
func (r *Replica) isVoter(id uint64) bool {
	return slices.Contains(r.conf.GetVoters(), id) || slices.Contains(r.conf.GetVotersOutgoing(), id)
}
