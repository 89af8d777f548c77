package node_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/node"
)

func TestBackup_HasAllThatWasAnsweredAndDoesNotWaitForTheEpoch(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) { cfg.EpochInterval = time.Minute })
	leader := c.leader()
	r, err := get(c.nodes[leader], 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	b, err := c.nodes[leader].Backup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d, err := backup.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	state, err := oracle.DecodeState(d.State)
	if err != nil || state.Ceiling != d.Ceiling || d.Ceiling <= r.First.Time || len(state.Members) != 3 {
		t.Errorf("%+v, %v, and %v was answered", d, err, r.First)
	}
	if _, err := c.nodes[leader%3+1].Backup(ctx); !errors.Is(err, isotone.ErrNotLeader) {
		t.Errorf("a follower: %v", err)
	}
}

// TestBackup_IsTakenByTheQuorumsClock if that of the leader is ahead: what the cluster may gain afterwards counts from then.
func TestBackup_IsTakenByTheQuorumsClock(t *testing.T) {
	clocks := map[uint64]*offClock{}
	c := newCluster(t, 3, func(cfg *node.Config) {
		clocks[cfg.NodeID] = new(offClock)
		cfg.Clock = clocks[cfg.NodeID]
	})
	id := c.leader()
	leader := c.nodes[id]
	clocks[id].off.Store(int64(time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	for ahead := time.Duration(0); ahead < 59*time.Minute; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("the leader does not notice that its clock is ahead")
		}
		r, _ := leader.Report()
		ahead = r.Clock.Offset
	}
	b, err := leader.Backup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := backup.Decode(b); err != nil || time.Until(d.Taken) > 30*time.Minute {
		t.Errorf("the backup was taken %v from now: %v", time.Until(d.Taken), err)
	}
}

// TestBackup_ALeaderWithoutAQuorumMakesNone stops the followers: another leader may know more.
func TestBackup_ALeaderWithoutAQuorumMakesNone(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	for id := range c.cfgs {
		if id != leader {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if b, err := c.nodes[leader].Backup(ctx); err == nil {
		t.Errorf("it made %s", b)
	}
}

func TestSeed_IsGoneOnceTheClusterIsFormed(t *testing.T) {
	state := oracle.State{ClusterID: 7, Level: oracle.LevelNewest, Ceiling: uint64(time.Now().Add(time.Hour).UnixNano())}
	d := backup.Document{ClusterID: "0000000000000007", Taken: time.Now(), Level: state.Level, Ceiling: state.Ceiling, State: state.Append(nil)}
	d.Seal()
	var dir string
	c := newCluster(t, 1, func(cfg *node.Config) {
		dir = cfg.DataDir
		seed := &backup.Seed{NodeID: 1, Founders: []uint64{1}, Floor: state.Ceiling + 5, Backup: d}
		prepare(t, dir, seed)
	})
	r, err := get(c.nodes[c.leader()], 1)
	if err != nil || r.First.Time < state.Ceiling+5 {
		t.Errorf("it begins with %v, %v", r.First, err)
	}
	for deadline := time.Now().Add(liveness); ; time.Sleep(time.Millisecond) {
		if s, err := backup.ReadSeed(dir); err == nil && s == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the seed is still there")
		}
	}
	if err := c.stop(1); err != nil {
		t.Fatal(err)
	}
	// A seed of before a crash.
	prepare(t, dir, &backup.Seed{NodeID: 9, Founders: []uint64{9}, Floor: 1, Backup: d})
	c.start(1)
	if again, err := get(c.nodes[c.leader()], 1); err != nil || !r.First.Before(again.First) {
		t.Errorf("%v after %v, %v", again.First, r.First, err)
	}
	if s, err := backup.ReadSeed(dir); err != nil || s != nil {
		t.Errorf("the seed beside old data: %+v, %v", s, err)
	}
}

// prepare writes a seed into a directory.
func prepare(t *testing.T, dir string, seed *backup.Seed) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := backup.WriteSeed(dir, seed, nil); err != nil {
		t.Fatal(err)
	}
}
