package replica_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// backupTime is far ahead of the clocks of a test cluster.
const backupTime = uint64(1000 * time.Hour)

// seed returns a seed with a floor that much above the backup's ceiling.
func seed(above time.Duration) *replica.Seed {
	return &replica.Seed{
		Digest: strings.Repeat("a1", 32), Floor: backupTime + uint64(above),
		State: oracle.State{
			ClusterID: 4711, Level: oracle.LevelNewest, Ceiling: backupTime, Space: space,
			Members: []oracle.Member{{ID: 9, PeerAddr: "lost:1", Incarnation: 9}},
			Workers: []oracle.WorkerLease{{Worker: 3, Session: 5, Start: 10, End: 20}}, Removed: []uint64{4},
		},
	}
}

// seeded starts three founders with seeds that demand floors of 1, 2 and 3 seconds above the
// backup's ceiling.
func seeded(t *testing.T, mutate func(*replica.Config)) *cluster {
	return unformed(t, 3, func(cfg *replica.Config) {
		cfg.Seed = seed(time.Duration(cfg.Self.NodeID) * time.Second)
		if mutate != nil {
			mutate(cfg)
		}
	})
}

func TestRestore_BeginsAboveTheLargestFloor(t *testing.T) {
	ids := map[uint64]bool{}
	for _, first := range []uint64{1, 2, 3} { // whoever leads
		c := seeded(t, nil)
		for _, down := range []uint64{first%3 + 1, (first+1)%3 + 1} {
			c.nodes[down].down = true
		}
		c.tick(5)
		for _, n := range c.nodes {
			if n.down {
				c.start(n)
			}
		}
		c.greet()
		c.settle()
		ids[c.checkFormed()] = true
		floor := backupTime + uint64(3*time.Second)
		if got := c.must(c.leader()); got.Time < floor {
			t.Errorf("the first timestamp is %v, want a time of %d at least", got, floor)
		}
		for _, n := range c.nodes {
			state := decoded(t, n.Backup())
			if state.Space != space || len(state.Removed) != 0 || state.Level != oracle.LevelNewest || len(state.Members) != 3 {
				t.Errorf("node %d goes on with %+v", n.id, state)
			}
			if w := state.Workers; len(w) != 1 || w[0] != (oracle.WorkerLease{Worker: 3, Start: 10, End: 20}) || state.Fence.Clients <= floor/1e6 {
				t.Errorf("node %d has workers %+v, fence %+v", n.id, w, state.Fence)
			}
			if h := n.Hello(); h.SeedDigest != "" || h.SeedFloor != 0 {
				t.Errorf("a formed node tells %+v", h)
			}
		}
	}
	if ids[4711] {
		t.Error("the restored cluster has the ID of the lost one")
	}
}

func decoded(t *testing.T, b replica.Backup) oracle.State {
	t.Helper()
	state, err := oracle.DecodeState(b.State)
	if err != nil {
		t.Fatal(err)
	}
	if state.Ceiling != b.Ceiling || state.ClusterID != b.ClusterID || state.Level != b.Level {
		t.Errorf("the backup %+v holds %+v", b, state)
	}
	return state
}

func TestRestore_TheFenceCoversTheClocksOfNodes(t *testing.T) {
	s := oracle.Restored(seed(0).State, backupTime)
	if s.Fence.Members < backupTime/1e6+uint64((replica.SkewMax+snowflake.AheadDefault)/time.Millisecond) {
		t.Errorf("the fence %+v is below what nodes may have made", s.Fence)
	}
}

func TestRestore_FoundersGoOnAfterACrash(t *testing.T) {
	for _, written := range []bool{false, true} {
		c := seeded(t, nil)
		c.nodes[3].stalled = true
		c.greet()
		c.settle()
		c.crash(c.nodes[1], written)
		c.crash(c.nodes[3], written)
		c.nodes[3].stalled = false
		c.greet()
		c.settle()
		c.tick(100)
		c.checkFormed()
		if got := c.must(c.leader()); got.Time < backupTime+uint64(3*time.Second) {
			t.Errorf("the first timestamp is %v", got)
		}
	}
}

func TestRestore_FoundersNeedTheSameBackup(t *testing.T) {
	for name, other := range map[string]func(*replica.Config){
		"another backup": func(cfg *replica.Config) { cfg.Seed.Digest = strings.Repeat("b2", 32) },
		"none":           func(cfg *replica.Config) { cfg.Seed = nil },
	} {
		c := seeded(t, func(cfg *replica.Config) {
			if cfg.Self.NodeID == 2 {
				other(cfg)
			}
		})
		one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
		wantRefusal(t, c.hear(one, two), replica.RefusedFounders, "need the same backup", "a1a1a1a1a1a1a1a1")
		wantRefusal(t, c.hear(two, three), replica.RefusedFounders, "need the same backup", "a1a1a1a1a1a1a1a1")
		wantWords(t, c.ending(one), name[:1], "same backup")
		wantWords(t, c.ending(two), "same backup")
	}
}

func TestRestore_ASeedOutOfRangeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*replica.Config){
		"no digest":        func(cfg *replica.Config) { cfg.Seed.Digest = "" },
		"little time left": func(cfg *replica.Config) { cfg.Seed.Floor = oracle.FloorMax + 1 },
		"no end":           func(cfg *replica.Config) { cfg.Seed.Floor = math.MaxInt64 },
		"a newer level":    func(cfg *replica.Config) { cfg.Seed.State.Level = oracle.LevelNewest + 1 },
	} {
		cfg := unformed(t, 1, nil).nodes[1].cfg
		cfg.Self.Boot, cfg.Self.Session, cfg.Seed = 1, 1, seed(0)
		spoil(&cfg)
		if _, err := replica.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// The cluster had come as far itself.
	cfg := unformed(t, 1, nil).nodes[1].cfg
	cfg.Self.Boot, cfg.Self.Session, cfg.Seed = 1, 1, seed(0)
	cfg.Seed.State.Ceiling, cfg.Seed.Floor = oracle.FloorMax+1, oracle.FloorMax+2
	if _, err := replica.New(cfg); err != nil {
		t.Errorf("a backup from far ahead: %v", err)
	}
}

func TestBackupOf_ReadsAStoppedNode(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	c.tick(50)
	l := c.leader()
	c.must(l)
	for _, n := range c.nodes {
		b, err := replica.BackupOf(0, n.disk.hard, n.disk.snap, n.disk.entries)
		if err != nil {
			t.Fatal(err)
		}
		state, live := decoded(t, b), decoded(t, l.Backup())
		if b.ClusterID != live.ClusterID || state.Ceiling < live.Ceiling || len(state.Workers) != len(live.Workers) || state.Space != live.Space || b.Index == 0 {
			t.Errorf("node %d has %+v on disk, the leader %+v", n.id, state, live)
		}
	}
}

func TestBackupOf_UncommittedEntriesCountForTheCeilingOnly(t *testing.T) {
	state := oracle.State{ClusterID: 7, Level: 1, Ceiling: 1000, Members: []oracle.Member{{ID: 1}}}
	snap := &raftpb.Snapshot{Data: state.Append(nil), Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(5)), Term: new(uint64(1))}}
	entry := func(index uint64, c oracle.Command) *raftpb.Entry {
		return &raftpb.Entry{Index: new(index), Term: new(uint64(1)), Type: raftpb.EntryNormal.Enum(), Data: c.Append(nil)}
	}
	hard := &raftpb.HardState{Commit: new(uint64(6))}
	b, err := replica.BackupOf(2, hard, snap, []*raftpb.Entry{
		entry(6, oracle.Command{Kind: oracle.KindReserve, Target: 2000}),
		entry(7, oracle.Command{Kind: oracle.KindLevel, Level: 2}),
		entry(8, oracle.Command{Kind: oracle.KindReserve, Target: 3000, Digest: oracle.Digest{Index: 1, Sum: 2}}),
		entry(9, oracle.Command{Kind: oracle.KindFloor, Target: 5000}),
	})
	if err != nil || b.Index != 6 || b.Level != 1 || b.Ceiling != 5002 {
		t.Errorf("%+v, %v", b, err)
	}
	for what, f := range map[string]func() (replica.Backup, error){
		"a log entry that it does not know": func() (replica.Backup, error) {
			return replica.BackupOf(2, hard, snap, []*raftpb.Entry{{Index: new(uint64(6)), Type: raftpb.EntryNormal.Enum(), Data: []byte{99}}})
		},
		"a snapshot of a higher level": func() (replica.Backup, error) {
			higher := state
			higher.Level = 2
			return replica.BackupOf(1, hard, &raftpb.Snapshot{Data: higher.Append(nil), Metadata: snap.Metadata}, nil)
		},
		"a change to a higher level": func() (replica.Backup, error) {
			return replica.BackupOf(2, hard, snap, []*raftpb.Entry{entry(6, oracle.Command{Kind: oracle.KindLevel, Level: 3})})
		},
		"one that may be committed": func() (replica.Backup, error) {
			return replica.BackupOf(2, hard, snap, []*raftpb.Entry{entry(7, oracle.Command{Kind: oracle.KindLevel, Level: 3})})
		},
	} {
		if b, err := f(); err == nil {
			t.Errorf("%s: %+v", what, b)
		}
	}
}

func TestReserve_IsProposedAtOnceAndOneAtATime(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	before := l.Status()
	for range 2 {
		c.turn(l, &replica.Input{Reserve: true})
		c.turn(l, &replica.Input{Reserve: true}) // under way
		c.settle()
	}
	if s := l.Status(); s.Counters.Reservations != before.Counters.Reservations+2 || s.Counters.ReservationsFailed != before.Counters.ReservationsFailed {
		t.Errorf("%+v, before %+v", s.Counters, before.Counters)
	}
	f := c.nodes[l.id%3+1]
	c.turn(f, &replica.Input{Reserve: true})
	c.settle()
	if s := f.Status(); s.Counters.Reservations != 0 || s.Counters.ReservationsFailed != 0 {
		t.Errorf("a follower: %+v", s.Counters)
	}
}
