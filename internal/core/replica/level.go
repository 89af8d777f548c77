package replica

import (
	"cmp"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Feature levels (I12; internal/core/oracle/level.go): when the level is raised, which nodes
// are refused, and how replicas notice that their states differ.

// LevelReport describes the feature level of the cluster.
type LevelReport struct {
	// Level is the cluster's level, Newest the newest that this node knows.
	Level, Newest uint64
	// Next is the level to which the leader could raise it now; Level if it cannot, and on
	// other nodes.
	Next uint64
	// Missing are the IDs of the members that keep it below Newest because they run an older
	// version or are not connected. Nil on nodes that do not lead.
	Missing []uint64
}

// Levels returns the feature levels of the cluster and of this node.
func (r *Replica) Levels() LevelReport {
	l := LevelReport{Level: r.state.CurrentLevel(), Newest: r.cfg.Level, Next: r.state.CurrentLevel()}
	if r.role != raft.StateLeader {
		return l
	}
	next := r.cfg.Level
	for _, m := range r.state.Members {
		known := uint64(0)
		if m.ID == r.cfg.Self.NodeID {
			known = r.cfg.Level
		} else if p := r.peers[m.ID]; p != nil && r.isActive(m.ID) && p.hello.Session == m.Session {
			known = p.hello.Level
		}
		if known < r.cfg.Level {
			l.Missing = append(l.Missing, m.ID)
		}
		next = min(next, known)
	}
	l.Next = max(l.Level, next)
	return l
}

// raiseLevel proposes the newest level that all members know.
func (r *Replica) raiseLevel() {
	if r.role != raft.StateLeader || !r.leading.alloc.IsOpen() {
		r.effects.LevelRefused = r.redirect()
		return
	}
	l := mutateLevels(r.Levels())
	switch {
	case l.Next > l.Level:
		if !r.tail.propose(oracle.Command{Kind: oracle.KindLevel, Level: l.Next}) {
			r.effects.LevelRefused = isotone.ErrOverloaded
		}
	case l.Level < l.Newest:
		r.effects.LevelRefused = isotone.Errorf(isotone.CodeInvalidArgument,
			"the cluster stays at feature level %d, as it has members that run an older version or are not connected: %s", l.Level, nodes(l.Missing, "", ""))
	}
}

// refuseLevel refuses a node that could not read what this cluster writes, or returns nil.
func (a *admission) refuseLevel(h Hello) *Refusal {
	if level := a.state.CurrentLevel(); h.Level < level && !mutant.On(mutant.RaiseUnasked) {
		return refuse(RefusedLevel, "node %d runs a version that knows feature level %d at most, and cluster %016x was raised to level %d; "+
			"start it with a version that knows level %d", h.node(), h.Level, a.state.ClusterID, level, level)
	}
	return nil
}

// canRead returns an error if this node does not know the level.
func (f *facts) canRead(level uint64) error { return checkLevel(level, f.cfg.Level) }

// checkLevel returns an error if a version that knows the newest level, or oracle.LevelNewest if that is
// 0, does not know level.
func checkLevel(level, newest uint64) error {
	if newest = cmp.Or(newest, oracle.LevelNewest); level > newest {
		return fmt.Errorf("it needs feature level %d, and this version knows %d; was it written by a newer version?", level, newest)
	}
	return nil
}

// digestsMax is how many digests of its own state a replica keeps: those after the latest
// reservations, which are some seconds.
const digestsMax = 64

// digests is a ring of the digests of this replica's state after its latest reservations.
type digests struct {
	*facts
	ring     [digestsMax]oracle.Digest
	next     int
	disputed dispute
}

func (d *digests) add(g oracle.Digest) {
	d.ring[d.next%digestsMax] = g
	d.next++
}

// latest returns the newest digest, zero if there is none.
func (d *digests) latest() oracle.Digest {
	if d.next == 0 {
		return oracle.Digest{}
	}
	return d.ring[(d.next-1)%digestsMax]
}

// differs reports whether this replica is known to have had another digest at g.Index.
func (d *digests) differs(g oracle.Digest) bool {
	for _, own := range d.ring {
		if own.Index == g.Index && g.Index != 0 {
			return own.Sum != g.Sum
		}
	}
	return false
}

// note keeps the digest after a reservation.
func (d *digests) note(index uint64) {
	d.add(oracle.Digest{Index: index, Sum: d.state.Digest()})
}

// Digest returns the digest of this replica's state at Status.Applied. Replicas with the same
// Status.Applied have the same digest.
func (r *Replica) Digest() uint64 { return r.state.Digest() }

// dispute is a reservation whose digest is not this replica's. One of the two states is
// wrong, and a quorum decides which. A replica that disagrees acknowledges nothing of that
// leader and confirms none of its rounds. If most disagree, the leader loses its quorum, and
// stops when it follows another. If most agree, the reservation is committed and this replica
// stops. See docs/decisions/0012-feature-levels.md.
type dispute struct {
	term, index uint64
	err         error
}

// reservation decodes the reservation in an entry, if there is one.
func reservation(e *raftpb.Entry) (oracle.Command, bool) {
	if data := e.GetData(); e.GetType() != raftpb.EntryNormal || len(data) == 0 || oracle.Kind(data[0]) != oracle.KindReserve {
		return oracle.Command{}, false
	}
	c, err := oracle.DecodeCommand(e.GetData())
	return c, err == nil
}

// checkAppend compares the digests of the reservations in an append with this replica's,
// before it acknowledges them. It returns the part of m that Raft may have, nil for none: not
// what a disputed leader sends, and not a reservation, or anything after it, whose digest is
// another or cannot be compared yet because this replica has not applied so much. The leader sends
// the latter again. Committed reservations are compared when they are applied.
//
// What comes before the disputed reservation is acknowledged: a new leader sends it with the
// entry that opens its term, and nothing more before it knows where this log ends. So this
// replica would not learn that the reservation is committed, and would not stop.
func (d *digests) checkAppend(m *raftpb.Message) *raftpb.Message {
	if m.GetTerm() < d.term {
		return m // Raft ignores it
	}
	if d.isDisputed(m) {
		if m.GetCommit() >= d.disputed.index {
			d.effects.Fatal = d.disputed.err
		}
		return nil
	}
	for i, e := range m.GetEntries() {
		c, ok := reservation(e)
		switch {
		case !ok || e.GetIndex() <= m.GetCommit():
		case c.Digest.Index > d.applied:
			return firstEntries(m, i)
		case d.differs(c.Digest):
			d.disputed = dispute{term: m.GetTerm(), index: e.GetIndex(), err: errDiffers(c.Digest.Index)}
			if i == 0 {
				return nil
			}
			return firstEntries(m, i)
		}
	}
	return m
}

// firstEntries returns an append with only the first n entries of m.
func firstEntries(m *raftpb.Message, n int) *raftpb.Message {
	return &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index, Commit: m.Commit, Entries: m.GetEntries()[:n],
	}
}

// isDisputed reports whether m comes from a leader that this replica disputes.
func (d *digests) isDisputed(m *raftpb.Message) bool {
	return d.disputed.term != 0 && m.GetTerm() == d.disputed.term
}

// check compares the digest of a committed reservation with this replica's.
func (d *digests) check(c oracle.Command) error {
	if c.Kind == oracle.KindReserve && d.differs(c.Digest) {
		return errDiffers(c.Digest.Index)
	}
	return nil
}

func errDiffers(index uint64) error {
	return fmt.Errorf("I12: the state of this replica at log index %d is not that of a quorum, though all applied the same log: "+
		"the memory of this machine is faulty, or its version does not agree with the others'; replace its data directory", index)
}
