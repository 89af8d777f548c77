package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/mutant"
	"github.com/isotone/isotone/internal/oracle"
)

// Versions that meet (I12). What the levels mean is said in internal/oracle/level.go. Here
// is when the level is raised, who is kept out, and how replicas notice that they differ.

// LevelReport says what feature level the cluster is at, and what it could be raised to.
type LevelReport struct {
	// Level is the cluster's, Newest the newest that this node knows.
	Level, Newest uint64
	// Next is what the level would be raised to now, Level if it would not.
	Next uint64
	// Missing are the members that keep it from being raised to Newest: they run an older
	// version, or are not connected to the leader. Only the leader knows.
	Missing []uint64
}

// Levels returns what there is to know of feature levels.
func (r *Replica) Levels() LevelReport {
	l := LevelReport{Level: r.state.CurrentLevel(), Newest: r.cfg.Level, Next: r.state.CurrentLevel()}
	if r.role != raft.StateLeader {
		return l
	}
	next := r.cfg.Level
	active := map[uint64]bool{r.cfg.Self.NodeID: true}
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		active[id] = active[id] || pr.RecentActive
	})
	for _, m := range r.state.Members {
		known := uint64(0)
		if m.ID == r.cfg.Self.NodeID {
			known = r.cfg.Level
		} else if p := r.peers[m.ID]; p != nil && active[m.ID] && p.hello.Session == m.Session {
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

// raiseLevel proposes, as an operator wants, the newest level that all members know.
func (r *Replica) raiseLevel() {
	if r.role != raft.StateLeader || !r.leading.alloc.IsOpen() {
		r.effects.LevelRefused = r.redirect()
		return
	}
	l := r.Levels()
	if mutant.On(mutant.RaiseUnasked) {
		l.Next = l.Newest
	}
	switch {
	case l.Next > l.Level:
		if !r.propose(oracle.Command{Kind: oracle.KindLevel, Level: l.Next}) {
			r.effects.LevelRefused = isotone.ErrOverloaded
		}
	case l.Level < l.Newest:
		r.effects.LevelRefused = isotone.Errorf(isotone.CodeInvalidArgument,
			"the cluster stays at feature level %d, as it has members that run an older version or are not connected: %s", l.Level, nodes(l.Missing, "", ""))
	}
}

// refuseLevel keeps out a node that could not read what this cluster writes, or returns nil.
func (r *Replica) refuseLevel(h Hello) *Refusal {
	if level := r.state.CurrentLevel(); h.Level < level && !mutant.On(mutant.RaiseUnasked) {
		return refuse(RefusedLevel, "node %d runs a version that knows feature level %d at most, and cluster %016x was raised to level %d: it could not read "+
			"what is written there; start it with a version that knows level %d", h.NodeID, h.Level, r.state.ClusterID, level, level)
	}
	return nil
}

// canRead refuses what this version cannot read.
func (r *Replica) canRead(level uint64) error {
	if level > r.cfg.Level {
		return fmt.Errorf("it needs feature level %d, and this version knows %d; was it written by a newer version?", level, r.cfg.Level)
	}
	return nil
}

// digestsMax is how many digests a replica remembers of its own state: those of the latest
// reservations, so some seconds of a leader's delay.
const digestsMax = 64

// digests are those of the states after the latest reservations, by log index.
type digests struct {
	ring [digestsMax]oracle.Digest
	next int
}

func (d *digests) add(g oracle.Digest) {
	d.ring[d.next%digestsMax] = g
	d.next++
}

// latest returns the newest, zero if there is none.
func (d *digests) latest() oracle.Digest {
	if d.next == 0 {
		return oracle.Digest{}
	}
	return d.ring[(d.next-1)%digestsMax]
}

// differs reports whether this replica's state at g.Index was another.
func (d *digests) differs(g oracle.Digest) bool {
	for _, own := range d.ring {
		if own.Index == g.Index && g.Index != 0 {
			return own.Sum != g.Sum
		}
	}
	return false
}

// noteDigest remembers the state after a reservation.
func (r *Replica) noteDigest(index uint64) {
	if r.state.CurrentLevel() >= oracle.LevelRecords {
		r.digests.add(oracle.Digest{Index: index, Sum: r.state.Digest()})
	}
}

// Digest sums up the state of this replica as of Status.Applied.
func (r *Replica) Digest() uint64 { return r.state.Digest() }

// checkDigest compares the state of a reservation's proposer with that of this replica. A
// replica whose state differs must not serve, and not confirm that another does: it stops
// before it acknowledges the entry.
func (r *Replica) checkDigest(e *raftpb.Entry) error {
	if data := e.GetData(); e.GetType() != raftpb.EntryNormal || len(data) == 0 || oracle.Kind(data[0]) != oracle.KindReserve {
		return nil
	}
	c, err := oracle.DecodeCommand(e.GetData())
	if err != nil || !r.digests.differs(c.Digest) {
		return nil
	}
	return fmt.Errorf("I12: the state of this replica at log index %d is not that of the leader of term %d, though both applied the same log: "+
		"the memory of one of the two machines is faulty, or their versions do not agree; this node has stopped, and its directory should be replaced",
		c.Digest.Index, e.GetTerm())
}
