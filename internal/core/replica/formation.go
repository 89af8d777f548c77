package replica

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Formation of a cluster (I10; docs/decisions/0010-formation-needs-everyone.md).
//
// A node on an empty directory with initial members (PEERS) is a founder. It has three
// stages:
//
//   - gathering: it has promised nothing and waits for the hellos of all other founders, all
//     with the same list. A founder that falls silent must send its hello again: it may come
//     back on another directory.
//   - prepared: the first snapshot is durable. It holds the members, the incarnations of
//     their directories, and the cluster's ID, which is a hash of the rest. Founders with the
//     same hellos prepare the same snapshot, so nobody has to lead. A founder prepares once.
//   - formed: every other founder has said that it is prepared with the same ID, or a member that
//     the cluster is formed. Only now the node runs Raft. The member need not be a founder: they
//     may have been replaced while this node was away.
//
// So before the first vote, every member has all incarnations and the cluster's ID on disk. A
// member that is wiped later is refused by each of the others, and no second cluster can be
// formed: one of the members would have to be a founder again.
//
// If a founder is wiped while others are prepared, they wait for ever. Nothing was served
// then, and the refusal says how to start over.

// announceTicks is the time between two hellos of a node to peers that may wait for it. A
// gathering founder without a hello for silentTicks is silent.
const (
	announceTicks = electionTicks / 2
	silentTicks   = 5 * announceTicks
)

// Stage is the stage of a node in the formation of its cluster. The values are part of the
// peer protocol.
type Stage = uint8

const (
	// StageGathering: a founder waits for the hellos of the others.
	StageGathering Stage = 1 + iota
	// StagePrepared: a founder has the first snapshot on disk.
	StagePrepared
	// StageFormed: the node belongs to a cluster.
	StageFormed
	// StageJoining: a node without PEERS waits on an empty directory to be added.
	StageJoining
)

// formation is the state of a founder until the cluster is formed.
type formation struct {
	*facts
	founders []oracle.Member // sorted by ID, with the addresses in this node's PEERS
	seed     *Seed           // nil unless the cluster is restored
	// hellos holds the latest hello of each other founder, heardAt the tick at which it came.
	hellos  map[uint64]Hello
	heardAt map[uint64]uint64
	// prepared is the first snapshot, nil while gathering. It may not be durable yet; see
	// facts.prepared, which reports that.
	prepared *raftpb.Snapshot
	// formed is set once a member that is no founder has said that the cluster is formed.
	formed bool
}

// newFormation returns the state of a founder on an empty directory.
func newFormation(facts *facts, founders []oracle.Member, seed *Seed) *formation {
	f := &formation{facts: facts, seed: seed, hellos: map[uint64]Hello{}, heardAt: map[uint64]uint64{}}
	var state oracle.State
	for _, m := range founders {
		state.AddMember(oracle.Member{ID: m.ID, PeerAddr: m.PeerAddr})
	}
	f.founders = state.Members
	return f
}

func (f *formation) isFounder(id uint64) bool { return slices.Contains(idsOf(f.founders), id) }

// snapshot returns the first snapshot and the cluster's ID, or false while a hello is
// missing. self is this node's own hello.
func (f *formation) snapshot(self Hello) (*raftpb.Snapshot, uint64, bool) {
	state := f.firstState(self)
	conf := &raftpb.ConfState{}
	met := 0
	for _, m := range f.founders {
		h, ok := f.hellos[m.ID]
		if m.ID == self.NodeID {
			h, ok = self, true
		}
		if ok && h.SeedDigest == self.SeedDigest {
			met++
		}
		state.Level = min(state.Level, max(h.Level, 1))
		state.AddMember(mutateFounder(oracle.Member{ID: m.ID, Incarnation: h.Incarnation, Level: h.Level}))
		conf.Voters = append(conf.Voters, m.ID)
	}
	if met < mutateFounders(len(f.founders)) {
		return nil, 0, false
	}
	id := fnv.New64a()
	_, _ = id.Write(state.Append(nil)) // never fails
	state.ClusterID = max(1, id.Sum64())
	return &raftpb.Snapshot{
		Data:     state.Append(nil),
		Metadata: &raftpb.SnapshotMetadata{ConfState: conf, Index: new(uint64(1)), Term: new(uint64(1))},
	}, state.ClusterID, true
}

// judgeAsFounder decides about a peer while this node is a founder. It admits a member of an
// existing cluster, which knows better and refuses the founder.
func (a *admission) judgeAsFounder(h Hello) (refusal *Refusal, stops bool) {
	f, self := a.forming, a.hello()
	switch {
	case !f.isFounder(h.NodeID) && h.ClusterID != 0 && !a.prepared():
		return nil, false // it takes this node for a member of its cluster, and will see
	case !f.isFounder(h.NodeID) && a.isOfSameCluster(h) && a.mayBeNewer(h):
		return nil, false
	case !f.isFounder(h.NodeID) && h.Stage != StageGathering && !mutant.On(mutant.StopUnknown):
		// It may be a member that joined the cluster while this node was away. The other
		// founders know.
		return refuse(RefusedMember, "node %d is not known to node %d, which is still being set up", h.node(), self.node()), false
	case !f.isFounder(h.NodeID):
		return refuse(RefusedFounders, "node %d is not in the PEERS of node %d (%s), which is being set up", h.node(), self.node(), list(idsOf(f.founders))), false
	case h.ClusterID != 0 || h.Stage == StageFormed:
		if self.ClusterID != 0 && h.ClusterID != 0 && h.ClusterID != self.ClusterID {
			return a.refuseSplit(h), true
		}
	case h.Stage == StageJoining:
		return refuse(RefusedMember, "node %d is to join a cluster, node %d to form one", h.node(), self.node()), false
	case a.prepared() && a.incarnationOf(h.NodeID) != h.Incarnation && !mutant.On(mutant.AdmitWiped):
		return refuse(RefusedWiped, "node %d has another data directory (%016x) than it had when cluster %016x was being formed (%016x); "+
			"if no member was ever ready, stop all of them, delete all their data directories and start again; else bring the old directory back",
			h.node(), h.Incarnation, self.ClusterID, a.incarnationOf(h.NodeID)), false
	case h.Founders != self.Founders && !mutant.On(mutant.AdmitOtherFounders):
		return refuse(RefusedFounders, "node %d was started with nodes %s in PEERS, node %d with nodes %s, and both are to form a cluster; "+
			"all initial members need the same list", h.node(), h.Founders, self.node(), self.Founders), !a.prepared()
	case h.SeedDigest != self.SeedDigest:
		return refuseSeed(h, self), !a.prepared()
	}
	if h.TickNanos != self.TickNanos {
		return refuseTick(h, self), false
	}
	if h.Layout != "" && self.Layout != "" && h.Layout != self.Layout && !mutant.On(mutant.AdmitLayout) {
		return refuseLayout(h, self), false
	}
	return nil, false
}

// isOfSameCluster reports whether h is that of a member of the cluster that this node is prepared
// for, which is formed then.
func (a *admission) isOfSameCluster(h Hello) bool {
	return a.prepared() && h.Stage == StageFormed && h.ClusterID == a.state.ClusterID
}

// incarnationOf returns the incarnation on record for a member, 0 if there is none.
func (f *facts) incarnationOf(id uint64) uint64 {
	m, _ := f.state.Member(id)
	return m.Incarnation
}

// refuseSplit refuses a founder that is prepared with another ID, because a third one was
// wiped between the two preparations. Nothing was formed: nobody has all hellos with one ID.
func (a *admission) refuseSplit(h Hello) *Refusal {
	return refuse(RefusedFormed, "node %d is set up for cluster %016x, node %d for cluster %016x, and both are in one PEERS: "+
		"if no member was ever ready, stop all of them, delete all their data directories and start again", h.node(), h.ClusterID, a.cfg.Self.node(), a.state.ClusterID)
}

// refuseFounder refuses, as a member of a cluster, a node that was started on an empty
// directory to form one.
func (a *admission) refuseFounder(h Hello) *Refusal {
	return refuse(RefusedFormed, "node %d was started on an empty directory to form a cluster of the nodes %s, but node %d belongs to cluster %016x already "+
		"(its nodes: %s); to add node %d to that cluster, start it with JOIN in place of PEERS; to form a new one, give all nodes empty directories",
		h.node(), h.Founders, a.cfg.Self.node(), a.hello().ClusterID, list(idsOf(a.state.Members)), h.node())
}

func idsOf(members []oracle.Member) (list []uint64) {
	for _, m := range members {
		list = append(list, m.ID)
	}
	return list
}

// list formats the IDs of nodes as in "1,2,3".
func list(ids []uint64) string {
	nodes := make([]uint64, 0, len(ids))
	for _, id := range ids {
		nodes = append(nodes, oracle.NodeOf(id))
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(nodes), " ", ","), "[]")
}

// nodes formats IDs as in "nodes 1, 2 and 3", followed by the verb for one node or for many.
func nodes(ids []uint64, one, many string) string {
	last := len(ids) - 1
	text := fmt.Sprintf("node %d %s", oracle.NodeOf(ids[last]), one)
	if last > 0 {
		text = fmt.Sprintf("nodes %s and %d %s", strings.ReplaceAll(list(ids[:last]), ",", ", "), oracle.NodeOf(ids[last]), many)
	}
	return strings.TrimSuffix(text, " ")
}

// prepared reports whether the first snapshot is durable.
func (f *facts) prepared() bool { return f.applied > 0 }

// stepFounder does the rest of a step while this node is a founder.
func (r *Replica) stepFounder(in *Input) {
	f := r.forming
	if in.Persisted != nil {
		r.snapshotStored()
	}
	for _, id := range in.Gone {
		r.admission.gone(id)
	}
	for _, h := range in.Hellos {
		r.founderHello(h)
	}
	for range in.Ticks {
		r.ticks++
		r.effects.Announce = r.effects.Announce || r.ticks%announceTicks == 0
	}
	r.forming.dropSilent()
	for i := range in.Requests {
		r.answer(in.Requests[i].Token, isotone.ErrNoLeader)
	}
	for i := range in.LeaseRequests {
		r.answerLease(LeaseAnswer{Token: in.LeaseRequests[i].Token, Err: isotone.ErrNoLeader})
	}
	if r.effects.Fatal != nil {
		return
	}
	if f.prepared == nil {
		r.prepare()
	}
	if r.prepared() && r.forming.isFormed() {
		r.finishFormation()
	}
}

// founderHello handles the hello of a peer.
func (r *Replica) founderHello(h Hello) {
	f := r.forming
	if !f.isFounder(h.NodeID) {
		f.formed = f.formed || r.admission.isOfSameCluster(h)
		return
	}
	f.hellos[h.NodeID], f.heardAt[h.NodeID] = h, r.ticks
	p := r.peer(h.NodeID)
	p.refusal, p.session, p.heardAt = nil, h.Session, r.ticks
	r.effects.Changed = true
}

// dropSilent forgets founders without a cluster that have fallen silent. One of them may have been
// wiped since, and preparing with it could never be undone.
func (f *formation) dropSilent() {
	for id, h := range f.hellos { // order-free: each is forgotten by itself
		if f.prepared == nil && h.ClusterID == 0 && f.ticks-f.heardAt[id] > silentTicks {
			delete(f.hellos, id)
			f.effects.Changed = true
		}
	}
}

// prepare gives out the first snapshot once all hellos are there.
func (r *Replica) prepare() {
	f := r.forming
	for _, m := range f.founders {
		if h := f.hellos[m.ID]; h.ClusterID != 0 && h.Stage == StagePrepared && h.SeedDigest != r.cfg.Self.SeedDigest {
			r.stopSoon(refuseSeed(h, r.hello()))
			return
		}
	}
	s, id, ok := f.snapshot(r.hello())
	if !ok {
		return
	}
	for _, m := range f.founders {
		if h := f.hellos[m.ID]; h.ClusterID != 0 && h.ClusterID != id {
			r.state.ClusterID = id // goes into the refusal and into this node's hello
			r.stopSoon(r.admission.refuseSplit(h))
			return
		}
	}
	f.prepared = s
	r.tail.inFlight = &Write{Snapshot: s, HardState: firstHardState(), ClusterID: id}
	r.effects.Write = r.tail.inFlight
}

// firstHardState is written with the first snapshot.
func firstHardState() *raftpb.HardState {
	return &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))}
}

// snapshotStored records that the first snapshot is durable.
func (r *Replica) snapshotStored() {
	r.tail.inFlight = nil
	r.effects.Announce = true
	if err := r.installSnapshot(r.forming.prepared); err != nil {
		r.effects.Fatal = err
	}
}

// installSnapshot puts the first snapshot into the log and the state.
func (r *Replica) installSnapshot(s *raftpb.Snapshot) error {
	if err := r.log.ApplySnapshot(s); err != nil {
		return fmt.Errorf("replica: first snapshot: %w", err)
	}
	if err := r.log.SetHardState(firstHardState()); err != nil {
		return fmt.Errorf("replica: first snapshot: %w", err)
	}
	r.durable = position{term: 1, index: 1}
	return r.restore(s)
}

// isFormed reports whether all other founders are prepared, or one says that the cluster is
// formed.
func (f *formation) isFormed() bool {
	if f.formed {
		return true
	}
	ready := 1
	for _, h := range f.hellos { // order-free: it counts
		if h.ClusterID != f.state.ClusterID {
			continue
		}
		if h.Stage == StageFormed {
			return true
		}
		ready++
	}
	return ready == len(f.founders) || mutant.On(mutant.FormUnprepared) || mutant.On(mutant.FormByQuorum)
}

// finishFormation starts Raft: the cluster is formed.
func (r *Replica) finishFormation() {
	hellos := r.forming.hellos
	r.forming, r.stopErr = nil, nil
	r.effects.Announce, r.effects.Changed = true, true
	if err := r.startRaft(); err != nil {
		r.effects.Fatal = err
		return
	}
	for _, m := range r.state.Members {
		if h, ok := hellos[m.ID]; ok && h.Incarnation == m.Incarnation {
			r.peer(m.ID).hello, r.peer(m.ID).admitted = h, h
		}
	}
}

// status says, for display, what a founder waits for; "" once the cluster is formed.
func (f *formation) status() string {
	if f == nil {
		return ""
	}
	var missing, unprepared []uint64
	for _, m := range f.founders {
		if h, ok := f.hellos[m.ID]; m.ID == f.cfg.Self.NodeID {
			continue
		} else if !ok {
			missing = append(missing, m.ID)
		} else if h.ClusterID == 0 {
			unprepared = append(unprepared, m.ID)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("the cluster is being formed, which needs every member of PEERS: %s not reached yet", nodes(missing, "was", "were"))
	case len(unprepared) > 0:
		return fmt.Sprintf("the cluster is being formed: waiting for %s to store the list of members", nodes(unprepared, "", ""))
	default:
		return "the cluster is being formed"
	}
}

// stopTicks is how long a founder that has to stop still refuses the other.
const stopTicks = 3

// stopSoon makes Step return err as Effects.Fatal after stopTicks.
func (f *facts) stopSoon(err error) {
	if f.stopErr == nil {
		f.stopErr, f.stopAt = err, f.ticks+stopTicks
	}
}

// hasFormingPeers reports whether a peer may not know that the cluster is formed.
func (f *facts) hasFormingPeers() bool {
	for _, p := range f.peers { // order-free: any will do
		if p.hello.Stage == StageGathering || p.hello.Stage == StagePrepared {
			return true
		}
	}
	return false
}
