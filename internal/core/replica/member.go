package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Hello is what a node says of itself when it connects to another. The peer
// package's hello has the same fields.
type Hello struct {
	ClusterID   uint64 // 0 while unknown
	NodeID      uint64
	Incarnation uint64 // of the data directory
	Boot        uint64 // how often the directory was opened
	Session     uint64 // of the process
	VotersHash  uint64 // of the initial voters' IDs; 0 for a node that joins later
	Term        uint64 // on disk
	LastIndex   uint64 // on disk
	TickNanos   uint64 // length of a tick; set by New from Config.TickInterval
	ClientAddr  string

	// What follows is not told by nodes of peer protocol version 1.

	// Level is the newest feature level that the node knows; 1 if it does not say.
	Level uint64
	Stage Stage
	// Founders are the IDs in PEERS of a node that has no cluster yet, as in "1,2,3"; else
	// empty.
	Founders string
	// PeerAddr is where it wants to be reached by other members.
	PeerAddr string
}

// Refusal says why a peer is not let in. The codes are part of the peer protocol.
type Refusal struct {
	Code    RefusalCode
	Message string
}

// RefusalCode is the reason of a refusal.
type RefusalCode string

const (
	// RefusedCluster: it belongs to another cluster, or was set up with other PEERS.
	RefusedCluster RefusalCode = "wrong_cluster"
	// RefusedMember: its node ID is no member of the cluster.
	RefusedMember RefusalCode = "not_member"
	// RefusedSettings: it runs with a setting that all members must share.
	RefusedSettings RefusalCode = "settings"
	// RefusedWiped: its data directory is not the one this member began with.
	RefusedWiped RefusalCode = "wiped"
	// RefusedStale: its data directory is an older copy.
	RefusedStale RefusalCode = "stale"
	// RefusedCloned: another process runs from a copy of the same directory.
	RefusedCloned RefusalCode = "cloned"
	// RefusedFormed: it was started to form a cluster, and there is one already.
	RefusedFormed RefusalCode = "already_formed"
	// RefusedFounders: it was started to form a cluster, with another list of members.
	RefusedFounders RefusalCode = "other_peers"
	// RefusedLevel: its version is too old.
	RefusedLevel RefusalCode = "version_too_old"
)

// IsFinal reports whether a node that was refused for this reason by one of its peers
// must stop: its own disk is not what it once promised on (I6), or it was to form a
// cluster beside one that exists (I10).
func (c RefusalCode) IsFinal() bool {
	switch c {
	case RefusedWiped, RefusedStale, RefusedCloned, RefusedFormed, RefusedFounders:
		return true
	}
	return false
}

// Error returns "code: message".
func (e *Refusal) Error() string { return string(e.Code) + ": " + e.Message }

// peerView is what this process knows of a peer from its own dealings with it.
type peerView struct {
	hello Hello // latest that connected; zero if none
	// admitted is the latest that may connect. Two processes that run from copies of one
	// directory must not both get through while neither has connected.
	admitted Hello
	// refusal is how it last refused this node, nil if it did not since it connected.
	refusal *Refusal
	// refusedSince is the tick of the first refusal of its kind in a row.
	refusedSince uint64
	// clock is what its wall clock showed.
	clock reading
	// lastActive is the tick of its latest answer to a heartbeat of this leader, 0 if none.
	lastActive uint64
	// term is the highest term in which the peer promised something durable.
	term uint64
	id   uint64
	// askedRead is the latest round of this term for which it was asked to confirm this
	// node's leadership, answeredRead the latest for which it did; see readPosition.
	askedRead, answeredRead uint64
}

// peer returns the view of a peer. One that is no member, or no more, leaves none behind.
func (r *Replica) peer(id uint64) *peerView {
	p := r.peers[id]
	if p == nil {
		p = &peerView{id: id}
		if _, isMember := r.state.Member(id); isMember || r.applied == 0 {
			r.peers[id] = p
		}
	}
	return p
}

// Hello returns what this node says of itself now.
func (r *Replica) Hello() Hello {
	h := r.cfg.Self
	if r.state.ClusterID != 0 {
		h.ClusterID = r.state.ClusterID
	}
	h.Term, h.LastIndex = r.durable.term, r.durable.index
	switch {
	case r.cfg.Level == oracle.LevelFirst:
		h.PeerAddr = "" // it speaks version 1 of the peer protocol
	case r.forming == nil && r.applied == 0:
		h.Stage = StageJoining
	case r.forming == nil:
		h.Stage, h.Founders = StageFormed, ""
	case r.prepared():
		h.Stage = StagePrepared
	default:
		h.Stage = StageGathering
	}
	return h
}

// promised notes the term in which a peer granted a vote or acknowledged entries.
// Both are sent only once they are on the peer's disk.
func (r *Replica) promised(m *raftpb.Message) {
	if !m.GetReject() && m.GetFrom() != r.cfg.Self.NodeID {
		p := r.peer(m.GetFrom())
		p.term = max(p.term, m.GetTerm())
	}
}

// Admit decides whether a peer with this hello may take part (I6). It compares with
// the replicated member record, and with what the peer promised to this process.
func (r *Replica) Admit(h Hello) *Refusal {
	refusal := r.judge(h)
	if _, isMember := r.state.Member(h.NodeID); refusal == nil && isMember {
		r.peer(h.NodeID).admitted = h
	}
	return refusal
}

func (r *Replica) judge(h Hello) *Refusal {
	if r.forming != nil {
		return r.judgeAsFounder(h)
	}
	self := r.Hello()
	m, isMember := r.state.Member(h.NodeID)
	switch {
	case h.ClusterID != 0 && self.ClusterID != 0 && h.ClusterID != self.ClusterID:
		return refuse(RefusedCluster, "node %d has data of cluster %016x, this is cluster %016x; give it a data directory of its own",
			h.NodeID, h.ClusterID, self.ClusterID)
	case isMember && m.Incarnation != 0 && m.Incarnation != h.Incarnation && !mutant.On(mutant.AdmitWiped):
		// Before anything that could be told from PEERS: with another list it is wiped no less.
		return refuseWiped(h, m.Incarnation)
	case h.Stage == StageGathering && m.Incarnation != h.Incarnation:
		return r.refuseFounder(h) // (or it was slow to say that it was gathering)
	case (h.ClusterID == 0 || self.ClusterID == 0) && h.VotersHash != 0 && self.VotersHash != 0 && h.VotersHash != self.VotersHash:
		return refuse(RefusedCluster, "node %d was started with other node IDs in PEERS than node %d; all initial members need the same list",
			h.NodeID, self.NodeID)
	case !isMember && r.applied == 0:
		return nil // this node has just joined and knows no members yet
	case !isMember:
		return refuse(RefusedMember, "node %d is no member of cluster %016x", h.NodeID, self.ClusterID)
	case h.TickNanos != self.TickNanos:
		return refuseTick(h, self)
	}
	if refusal := r.refuseLevel(h); refusal != nil {
		return refusal
	}
	p := r.peer(h.NodeID)
	for _, known := range []Hello{{Incarnation: m.Incarnation, Boot: m.Boot, Session: m.Session}, p.hello, p.admitted} {
		if refusal := compareHello(h, known); refusal != nil {
			return refusal
		}
	}
	if mutant.On(mutant.AdmitStale) || mutant.On(mutant.AdmitWiped) {
		return nil
	}
	known := h.Session == m.Session || h.Session == p.hello.Session
	if known && h.Session != 0 && !mutant.On(mutant.RefuseSlowHello) {
		// The same process as before has forgotten nothing. Its hello may be older than
		// what it has confirmed since, through others, while the handshake was slow.
		return nil
	}
	if index := max(m.Durable, r.acknowledged(h.NodeID)); h.LastIndex < index || h.Term < p.term {
		return refuse(RefusedStale, "node %d comes back with log index %d and term %d, but once confirmed index %d and term %d: "+
			"its data directory is an older copy and must not take part", h.NodeID, h.LastIndex, h.Term, index, p.term)
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
			"the directory is an older copy and must not take part", h.NodeID, h.Boot, known.Boot)
	case h.Boot == known.Boot && h.Session != known.Session:
		return refuse(RefusedCloned, "node %d was started twice from copies of one data directory: stop one of the two processes for good, or, "+
			"if a copy was put back, take it away", h.NodeID)
	}
	return nil
}

func refuseWiped(h Hello, known uint64) *Refusal {
	return refuse(RefusedWiped, "node %d has another data directory (%016x) than it began with (%016x): it was wiped or replaced; "+
		"bring the old directory back; without it this node ID cannot take part again", h.NodeID, h.Incarnation, known)
}

// refuseTick: a voter's promise is counted in its own ticks, a lease in the leader's (I5).
func refuseTick(h, self Hello) *Refusal {
	return refuse(RefusedSettings, "node %d runs with RTT_MS %v, node %d with %v; all members need the same",
		h.NodeID, float64(h.TickNanos)/1e6, self.NodeID, float64(self.TickNanos)/1e6)
}

func refuse(code RefusalCode, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// acknowledged is the committed index that a peer is known, to a leader, to hold on
// disk.
func (r *Replica) acknowledged(id uint64) uint64 {
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

// removedTicks is for how long members must say that this node is none before it believes
// that it was removed: one that was added lately is not known to everyone yet.
const removedTicks = 10 * electionTicks

// Refused takes in that another member refuses this node. It returns why the node has to
// stop, or nil. A member that finds this node's data to be not what the node once promised
// on ends it at once (I6): going on could break the promise. So does, for a founder, anyone
// who belongs to another cluster (I10). Any other refusal ends it when no quorum is left
// that would have it.
func (r *Replica) Refused(by uint64, refusal *Refusal) error {
	p := r.peer(by)
	if p.refusal == nil || p.refusal.Code != refusal.Code {
		p.refusedSince = r.ticks
	}
	p.refusal = refusal
	self := r.cfg.Self.NodeID
	other := refusal.Code == RefusedCluster || refusal.Code == RefusedMember
	if refusal.Code.IsFinal() || r.forming != nil && other {
		return fmt.Errorf("node %d was refused by node %d and has stopped: %w", self, by, refusal)
	}
	refusing := 0
	for _, m := range r.state.Members {
		if p := r.peers[m.ID]; p != nil && p.refusal != nil && !r.isLearner(m.ID) {
			switch p.refusal.Code {
			case RefusedCluster, RefusedSettings, RefusedLevel:
				refusing++
			case RefusedMember:
				if r.ticks-p.refusedSince >= removedTicks {
					refusing++
				}
			}
		}
	}
	voters := len(r.conf.GetVoters())
	if r.forming != nil || refusing == 0 || voters-refusing >= voters/2+1 {
		return nil
	}
	return fmt.Errorf("node %d was refused by %d of %d members and has stopped; member %d says: %w",
		self, refusing, len(r.state.Members), by, refusal)
}

// membersChanged lets what peers have said of this node's membership count from now on: it may
// have been added or removed just now.
func (r *Replica) membersChanged() {
	for _, p := range r.peers { // order-free: each by itself
		p.refusedSince = r.ticks
	}
}

// spoken notes that a peer sent something on a connection: it has admitted this node since it
// refused it.
func (r *Replica) spoken(id uint64) {
	if p := r.peers[id]; p != nil {
		p.refusal = nil
	}
}

// greet notes an admitted peer.
func (r *Replica) greet(h Hello) {
	r.peer(h.NodeID).hello, r.peer(h.NodeID).refusal = h, nil
	r.registerPeers()
}

// registerPeers proposes, as leader, the member records that differ from what their
// nodes say of themselves, this node's own among them.
func (r *Replica) registerPeers() {
	if r.role != raft.StateLeader {
		return
	}
	r.register(r.cfg.Self)
	for _, m := range r.state.Members {
		if p := r.peers[m.ID]; p != nil && p.hello.NodeID != 0 {
			r.register(p.hello)
		}
	}
}

func (r *Replica) register(h Hello) {
	m, ok := r.state.Member(h.NodeID)
	level, addr := uint64(0), m.PeerAddr
	if r.state.CurrentLevel() >= oracle.LevelRecords {
		if level = h.Level; h.PeerAddr != "" {
			addr = h.PeerAddr
		}
	}
	if !ok || m.Boot == h.Boot && m.Session == h.Session && m.ClientAddr == h.ClientAddr && m.Incarnation == h.Incarnation &&
		m.Level == level && m.PeerAddr == addr {
		return
	}
	if m.PeerAddr == addr {
		addr = ""
	}
	m.Incarnation, m.Boot, m.Session, m.ClientAddr, m.Level = h.Incarnation, h.Boot, h.Session, h.ClientAddr, level
	m.PeerAddr, m.Durable = addr, 0
	c := oracle.Command{Kind: oracle.KindRegister, Member: m}
	r.propose(c) // the next epoch tries again
}

// isLearner reports whether id is a learner.
func (r *Replica) isLearner(id uint64) bool {
	return slices.Contains(r.conf.GetLearners(), id) || slices.Contains(r.conf.GetLearnersNext(), id)
}
