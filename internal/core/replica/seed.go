package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Backup and restore (I13; docs/decisions/0017-a-restored-cluster.md). A cluster is restored
// by forming another one (formation.go) whose first snapshot continues the state of the lost
// one. Each founder has the same seed on disk, and tells its digest in the hello, so that all
// prepare the same bytes.

// Seed is what a founder of a restored cluster begins with.
type Seed struct {
	// Digest identifies the backup: hexadecimal digits, not empty.
	Digest string
	// Floor is this founder's opinion of a time above everything that the lost cluster has
	// issued, in unix nanoseconds. The largest of all founders counts.
	Floor uint64
	// State is that of the backup.
	State oracle.State
}

// check returns why a node of that feature level cannot begin with the seed, or nil.
func (s *Seed) check(level uint64) error {
	switch {
	case s == nil:
		return nil
	case s.Digest == "" || s.Floor >= oracle.CeilingMax-1 || s.State.Ceiling >= oracle.CeilingMax-1,
		s.Floor > oracle.FloorMax && s.State.Ceiling <= oracle.FloorMax: // an operator's, or that of a wrong clock
		return errors.New("replica: the seed is out of range")
	case level < s.State.CurrentLevel():
		return fmt.Errorf("replica: the backup is of feature level %d, and this version cannot restore it", s.State.CurrentLevel())
	}
	return nil
}

// firstState returns the state of the first snapshot without its members.
func (f *formation) firstState(self Hello) oracle.State {
	state := oracle.State{}
	if f.seed != nil {
		floor := max(f.seed.Floor, f.seed.State.Ceiling)
		for _, m := range f.founders {
			if h := f.hellos[m.ID]; !mutant.On(mutant.RestoreOwnFloor) && h.SeedFloor < oracle.CeilingMax-1 {
				floor = max(floor, h.SeedFloor)
			}
		}
		state = oracle.Restored(f.seed.State, floor)
	}
	state.Level = self.Level
	return state
}

// refuseSeed refuses a founder with another seed, or without one.
func refuseSeed(h, self Hello) *Refusal {
	const way = "all initial members of a restored cluster need the same backup: delete the data directories of those that lack it, and restore it there"
	switch {
	case h.SeedDigest == "":
		return refuse(RefusedFounders, "node %d is to form a new cluster, and node %d one from the backup %.16s; %s",
			h.NodeID, self.NodeID, self.SeedDigest, way)
	case self.SeedDigest == "":
		return refuse(RefusedFounders, "node %d is to form a cluster from the backup %.16s, and node %d a new one; %s",
			h.NodeID, h.SeedDigest, self.NodeID, way)
	}
	return refuse(RefusedFounders, "node %d is to form a cluster from the backup %.16s, and node %d one from the backup %.16s; %s",
		h.NodeID, h.SeedDigest, self.NodeID, self.SeedDigest, way)
}

// Forming reports whether the cluster is not formed yet.
func (r *Replica) Forming() bool { return r.forming != nil }

// Backup is the state of a cluster at one log index.
type Backup struct {
	ClusterID, Level, Index uint64
	// Ceiling is above all timestamps issued so far, in unix nanoseconds.
	Ceiling uint64
	// State is encoded as by oracle.State.Append.
	State []byte
}

// Backup returns the applied state.
func (r *Replica) Backup() Backup { return backupOf(&r.state, r.applied) }

func backupOf(s *oracle.State, index uint64) Backup {
	return Backup{ClusterID: s.ClusterID, Level: s.CurrentLevel(), Index: index, Ceiling: s.Ceiling, State: s.Append(nil)}
}

// BackupOf returns what a stopped node has on disk: the state at the commit index that it
// knew. Later entries count only for the ceiling, as perhaps they were committed. It fails if a version
// that knew a feature level above newest may have written that; 0 stands for oracle.LevelNewest.
func BackupOf(newest uint64, hard *raftpb.HardState, snapshot *raftpb.Snapshot, entries []*raftpb.Entry) (Backup, error) {
	var state oracle.State
	index := snapshot.GetMetadata().GetIndex()
	if snapshot != nil {
		var err error
		if state, err = oracle.DecodeState(snapshot.GetData()); err == nil {
			err = checkLevel(state.CurrentLevel(), newest)
		}
		if err != nil {
			return Backup{}, fmt.Errorf("snapshot at index %d: %w", index, err)
		}
	}
	for _, e := range entries {
		committed := e.GetIndex() <= hard.GetCommit()
		if err := applyOffline(newest, &state, e, committed); err != nil {
			return Backup{}, fmt.Errorf("log entry %d: %w", e.GetIndex(), err)
		}
		if committed {
			index = e.GetIndex()
		}
	}
	return backupOf(&state, index), nil
}

// applyOffline applies an entry without Raft. Of a change of membership it applies only the
// new member, for its worker leases.
func applyOffline(newest uint64, state *oracle.State, e *raftpb.Entry, committed bool) error {
	switch {
	case e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0:
		c, err := oracle.DecodeCommand(e.GetData())
		if err == nil {
			err = checkLevel(oracle.LevelOf(c), newest)
		}
		if err != nil {
			return err
		}
		switch {
		case c.Kind == oracle.KindInterval:
			// This node may know less of what is committed than the others: limits may run, or longer ones.
			c.Interval = max(c.Interval, state.Interval)
			state.Apply(e.GetIndex(), c)
		case c.Kind == oracle.KindReserve || c.Kind == oracle.KindFloor || committed:
			state.Apply(e.GetIndex(), c)
		}
	case e.GetType() == raftpb.EntryConfChangeV2 && committed:
		cc := &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return err
		}
		if len(cc.GetChanges()) == 0 || cc.GetChanges()[0].GetType() == raftpb.ConfChangeRemoveNode {
			return nil
		}
		m, err := oracle.DecodeMember(cc.GetContext())
		if err != nil {
			return err
		}
		state.AddMember(m)
	}
	return nil
}
