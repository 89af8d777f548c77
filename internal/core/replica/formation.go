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

// How a cluster is formed (I10): formation needs everyone, operation needs a quorum.
//
// A node on an empty directory that was given initial members (PEERS) is a founder. It
// goes through three stages:
//
//   - gathering: it has promised nothing. It waits until it has shaken hands with every
//     other founder, and all of them are founders of the same list. One that has been
//     silent for a while is waited for again: it may come back on another directory.
//   - prepared: it has made the first snapshot durable. That holds the members with the
//     incarnations of their directories, and the cluster's ID, which is a hash of all the
//     rest; so whoever has heard the same of everyone prepares the same snapshot, and nobody
//     has to lead. A founder never prepares a second time.
//   - formed: it has heard from every other founder that it is prepared with the same ID,
//     or from one of them that it is formed. Only now does it run Raft.
//
// So when the first vote is asked for, every member has every incarnation and the
// cluster's ID on disk. A member that is wiped later is known as wiped to each of the
// others, and nothing can be formed beside a cluster that exists: one of its members
// would have to be a founder again, and the others refuse that one.
//
// A founder that is wiped while the others are prepared leaves them waiting for ever. That
// is the price of not asking anybody to give up a promise; nothing was served yet, and the
// refusal says how to start again.

// announceTicks is how often a node repeats its hello to peers that may wait for it, and
// silentTicks how long a gathering founder that is connected is never silent.
const (
	announceTicks = electionTicks / 2
	silentTicks   = 5 * announceTicks
)

// Stage is how far a node is in the life of its cluster. The values are part of the peer
// protocol.
type Stage = uint8

// The stages. A node of peer protocol version 1 tells none.
const (
	StageUnknown Stage = iota
	StageGathering
	StagePrepared
	StageFormed
	// StageJoining is a node on an empty directory that was told to join a cluster.
	StageJoining
)

// formation is the state of a founder until the cluster is formed.
type formation struct {
	founders []oracle.Member // sorted by ID, with their addresses as this node has them
	// met holds the latest hello of each other founder, heard the tick at which it came.
	met   map[uint64]Hello
	heard map[uint64]uint64
	// prepared is the first snapshot, nil while gathering. It is durable once it is in the
	// replica's log.
	prepared *raftpb.Snapshot
}

// newFormation returns the state of a founder on an empty directory.
func newFormation(founders []oracle.Member) *formation {
	f := &formation{met: map[uint64]Hello{}, heard: map[uint64]uint64{}}
	var state oracle.State
	for _, m := range founders {
		state.AddMember(oracle.Member{ID: m.ID, PeerAddr: m.PeerAddr})
	}
	f.founders = state.Members
	return f
}

func (f *formation) ids() []uint64 {
	list := make([]uint64, 0, len(f.founders))
	for _, m := range f.founders {
		list = append(list, m.ID)
	}
	return list
}

func (f *formation) isFounder(id uint64) bool { return slices.Contains(f.ids(), id) }

// snapshot returns the first snapshot of the cluster, and its ID, when every founder has
// been met. self is this node's own hello.
func (f *formation) snapshot(self Hello) (*raftpb.Snapshot, uint64, bool) {
	state := oracle.State{Level: self.Level}
	conf := &raftpb.ConfState{}
	met := 0
	for _, m := range f.founders {
		h, ok := f.met[m.ID]
		if m.ID == self.NodeID {
			h, ok = self, true
		}
		if ok {
			met++
		}
		state.Level = min(state.Level, max(h.Level, oracle.LevelRecords))
		state.AddMember(mutateFounder(oracle.Member{ID: m.ID, Incarnation: h.Incarnation, Level: h.Level}))
		conf.Voters = append(conf.Voters, m.ID)
	}
	if met < mutateFounders(len(f.founders)) {
		return nil, 0, false
	}
	id := fnv.New64a()
	_, _ = id.Write(state.Append(nil)) // a hash takes everything
	state.ClusterID = max(1, id.Sum64())
	return &raftpb.Snapshot{
		Data:     state.Append(nil),
		Metadata: &raftpb.SnapshotMetadata{ConfState: conf, Index: new(uint64(1)), Term: new(uint64(1))},
	}, state.ClusterID, true
}

// judge decides about a peer while this node is a founder. A peer that belongs to a
// cluster already is not judged: it knows better, and refuses a founder by itself.
func (r *Replica) judgeAsFounder(h Hello) *Refusal {
	f, self := r.forming, r.Hello()
	switch {
	case !f.isFounder(h.NodeID) && h.ClusterID != 0 && !r.prepared():
		return nil // it takes this node for a member of its cluster, and will see
	case !f.isFounder(h.NodeID) && h.Stage != StageGathering:
		// If this node is late, that one may be a member that it does not know: it is for the
		// other founders to say.
		return refuse(RefusedMember, "node %d is not known to node %d, which is still being set up", h.NodeID, self.NodeID)
	case !f.isFounder(h.NodeID):
		return refuse(RefusedFounders, "node %d is not in the PEERS of node %d (%s), which is being set up", h.NodeID, self.NodeID, list(f.ids()))
	case h.ClusterID != 0 || h.Stage == StageFormed:
		if self.ClusterID != 0 && h.ClusterID != 0 && h.ClusterID != self.ClusterID {
			return r.splitFormation(h)
		}
	case h.Stage == StageUnknown:
		return refuse(RefusedLevel, "node %d runs an older version, which cannot form a cluster with node %d; start all initial members with the same version",
			h.NodeID, self.NodeID)
	case h.Stage == StageJoining:
		return refuse(RefusedMember, "node %d is to join a cluster, node %d to form one", h.NodeID, self.NodeID)
	case r.prepared() && r.incarnationOf(h.NodeID) != h.Incarnation && !mutant.On(mutant.AdmitWiped):
		return refuse(RefusedWiped, "node %d has another data directory (%016x) than it had when cluster %016x was being formed (%016x); "+
			"if no member was ever ready, stop all of them, delete all their data directories and start again; else bring the old directory back",
			h.NodeID, h.Incarnation, self.ClusterID, r.incarnationOf(h.NodeID))
	case h.Founders != self.Founders:
		refusal := refuse(RefusedFounders, "node %d was started with nodes %s in PEERS, node %d with nodes %s, and both are to form a cluster; "+
			"all initial members need the same list", h.NodeID, h.Founders, self.NodeID, self.Founders)
		if !r.prepared() {
			r.stop(refusal)
		}
		return refusal
	}
	if h.TickNanos != self.TickNanos {
		return refuseTick(h, self)
	}
	return nil
}

// incarnationOf returns the incarnation that is on record for a member.
func (r *Replica) incarnationOf(id uint64) uint64 {
	m, _ := r.state.Member(id)
	return m.Incarnation
}

// splitFormation is the end of a formation in which a founder was wiped between two
// others' preparations. Nothing was formed, as nobody has met all others with one ID.
func (r *Replica) splitFormation(h Hello) *Refusal {
	refusal := refuse(RefusedFormed, "node %d is set up for cluster %016x, node %d for cluster %016x, and both are in one PEERS: "+
		"if no member was ever ready, stop all of them, delete all their data directories and start again", h.NodeID, h.ClusterID, r.cfg.Self.NodeID, r.state.ClusterID)
	r.stop(refusal)
	return refusal
}

// refuseFounder is how a member of an existing cluster refuses a node that was started on
// an empty directory to form one.
func (r *Replica) refuseFounder(h Hello) *Refusal {
	var members []uint64
	for _, m := range r.state.Members {
		members = append(members, m.ID)
	}
	return refuse(RefusedFormed, "node %d was started on an empty directory to form a cluster of the nodes %s, but node %d belongs to cluster %016x already "+
		"(its nodes: %s); to add node %d to that cluster, start it with JOIN in place of PEERS; to form a new one, give all nodes empty directories",
		h.NodeID, h.Founders, r.cfg.Self.NodeID, r.Hello().ClusterID, list(members), h.NodeID)
}

// list writes IDs as PEERS has them.
func list(ids []uint64) string {
	words := make([]string, 0, len(ids))
	for _, id := range ids {
		words = append(words, fmt.Sprint(id))
	}
	return strings.Join(words, ",")
}

// nodes names nodes in a sentence, with a verb behind them if there is one.
func nodes(ids []uint64, one, many string) string {
	words := make([]string, 0, len(ids))
	for _, id := range ids {
		words = append(words, fmt.Sprint(id))
	}
	verb, noun := one, "node "
	if len(ids) > 1 {
		verb, noun = many, "nodes "
		last := len(words) - 1
		words = append(words[:last-1], words[last-1]+" and "+words[last])
	}
	return strings.TrimSuffix(noun+strings.Join(words, ", ")+" "+verb, " ")
}

// prepared reports whether the first snapshot is durable.
func (r *Replica) prepared() bool { return r.applied > 0 }

// stepFounder is Step before the cluster is formed.
func (r *Replica) stepFounder(in *Input) {
	f := r.forming
	if in.Persisted != nil {
		r.preparedDurably()
	}
	for _, h := range in.Hellos {
		r.meet(h)
	}
	for range in.Ticks {
		r.ticks++
		r.effects.Announce = r.effects.Announce || r.ticks%announceTicks == 0
	}
	r.forgetSilent()
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
	if r.prepared() && r.isFormed() {
		r.found()
	}
}

// meet takes in what another founder says of itself.
func (r *Replica) meet(h Hello) {
	f := r.forming
	switch {
	case !f.isFounder(h.NodeID):
		return
	case h.ClusterID != 0 && h.Stage == StageUnknown:
		// It took this node for a member: by the rules of version 1 a directory that nobody
		// has heard of is one.
		r.stop(refuse(RefusedFormed, "node %d belongs to cluster %016x already, and this node has an empty directory; give it an ID of its own "+
			"and start it with JOIN in place of PEERS", h.NodeID, h.ClusterID))
		return
	}
	f.met[h.NodeID], f.heard[h.NodeID] = h, r.ticks
	r.peer(h.NodeID).refusal = nil
	r.effects.Changed = true
}

// forgetSilent forgets founders that have promised nothing and say nothing any more. To
// prepare with one that was wiped since would be for nothing, and for good.
func (r *Replica) forgetSilent() {
	f := r.forming
	for id, h := range f.met { // order-free: each is forgotten by itself
		if f.prepared == nil && h.Stage == StageGathering && r.ticks-f.heard[id] > silentTicks {
			delete(f.met, id)
			r.effects.Changed = true
		}
	}
}

// prepare gives out the first snapshot when everyone has been met.
func (r *Replica) prepare() {
	f := r.forming
	s, id, ok := f.snapshot(r.Hello())
	if !ok {
		return
	}
	for _, m := range f.founders {
		if h := f.met[m.ID]; h.ClusterID != 0 && h.ClusterID != id {
			r.state.ClusterID = id // for the message
			r.splitFormation(h)
			return
		}
	}
	f.prepared = s
	r.flying = &Write{Snapshot: s, HardState: firstHardState(), ClusterID: id}
	r.effects.Write = r.flying
}

// firstHardState goes with the first snapshot.
func firstHardState() *raftpb.HardState {
	return &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))}
}

// preparedDurably is called when the first snapshot is on disk.
func (r *Replica) preparedDurably() {
	r.flying = nil
	r.effects.Announce = true
	if err := r.adopt(r.forming.prepared); err != nil {
		r.effects.Fatal = err
	}
}

// adopt takes the first snapshot into the log and the state.
func (r *Replica) adopt(s *raftpb.Snapshot) error {
	if err := r.log.ApplySnapshot(s); err != nil {
		return fmt.Errorf("replica: first snapshot: %w", err)
	}
	if err := r.log.SetHardState(firstHardState()); err != nil {
		return fmt.Errorf("replica: first snapshot: %w", err)
	}
	r.durable = position{term: 1, index: 1}
	return r.restore(s)
}

// isFormed reports whether all other founders are prepared, or one of them knows that all
// are.
func (r *Replica) isFormed() bool {
	ready := 1
	for _, h := range r.forming.met { // order-free: it counts
		if h.ClusterID != r.state.ClusterID {
			continue
		}
		if h.Stage == StageFormed {
			return true
		}
		ready++
	}
	return ready == len(r.forming.founders) || mutant.On(mutant.FormUnprepared) || mutant.On(mutant.FormByQuorum)
}

// found starts Raft: the cluster is formed.
func (r *Replica) found() {
	met := r.forming.met
	r.forming, r.ending = nil, nil
	r.effects.Announce, r.effects.Changed = true, true
	if err := r.startRaft(); err != nil {
		r.effects.Fatal = err
		return
	}
	for _, m := range r.state.Members {
		if h, ok := met[m.ID]; ok && h.Incarnation == m.Incarnation {
			r.peer(m.ID).hello, r.peer(m.ID).admitted = h, h
		}
	}
}

// waitsFor says for people what a founder waits for; "" once the cluster is formed.
func (r *Replica) waitsFor() string {
	f := r.forming
	if f == nil {
		return ""
	}
	var missing, unprepared []uint64
	for _, m := range f.founders {
		if h, ok := f.met[m.ID]; m.ID == r.cfg.Self.NodeID {
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

// endingTicks is how long a founder that has to stop goes on to refuse the other.
const endingTicks = 3

// stop ends the node soon, for a reason that is not in its log.
func (r *Replica) stop(because error) {
	if r.ending == nil {
		r.ending, r.endingAt = because, r.ticks+endingTicks
	}
}

// isAwaited reports whether a peer may not know yet that the cluster is formed.
func (r *Replica) isAwaited() bool {
	for _, p := range r.peers { // order-free: any will do
		if p.hello.Stage == StageGathering || p.hello.Stage == StagePrepared {
			return true
		}
	}
	return false
}
