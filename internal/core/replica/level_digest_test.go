package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// stepAll lets a tick pass without failing the test at a Fatal; it returns who has stopped.
func (c *cluster) stepAll(stopped map[uint64]error) { c.stepKeeping(stopped, nil) }

func (c *cluster) stepKeeping(stopped map[uint64]error, keep func(*raftpb.Message)) {
	c.mono += tick
	for round := range 20 {
		for _, n := range c.running() {
			in := &replica.Input{Mono: c.mono, Now: uint64(c.mono), Messages: n.inbox, Hellos: n.hellos, Clocks: n.clocks}
			if round == 0 {
				in.Ticks = 1
			}
			n.inbox, n.hellos, n.clocks = nil, nil, nil
			if n.flying != nil {
				n.disk.save(n.flying)
				in.Persisted, n.flying = n.flying, nil
			}
			e := n.Step(in)
			if e.Fatal != nil {
				stopped[n.id], n.down = e.Fatal, true
				continue
			}
			for _, m := range e.Send {
				if to := c.nodes[m.GetTo()]; !to.down {
					to.inbox = append(to.inbox, m)
				} else if keep != nil {
					keep(m)
				}
			}
			if e.Write != nil {
				n.flying = e.Write
			}
		}
	}
}

// TestDigest_AFaultyLeaderEndsItselfAndNotTheOthers: of three replicas the leader's memory fails.
func TestDigest_AFaultyLeaderEndsItselfAndNotTheOthers(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	l.Spoil(func(s *oracle.State) { s.Workers = append(s.Workers, oracle.WorkerLease{Worker: 7, Start: 1, End: 2}) })
	stopped := map[uint64]error{}
	for range 300 { // it loses its quorum, another leads, and what that reserves is committed
		c.stepAll(stopped)
	}
	for id, err := range stopped {
		if id != l.id {
			t.Errorf("node %d is sound and has stopped: %v", id, err)
		}
	}
	if stopped[l.id] == nil {
		t.Errorf("node %d is faulty and runs on", l.id)
	}
}

// TestDigest_AFaultyReplicaCommitsNothing: while the leader's memory fails, one of the others does
// not run for a bit more than an epoch. It then reads the reservation whose digest it must not
// agree with in the same turn as what lets it apply the one that the digest is about. So it has
// nothing to compare with in receive, and acknowledges the entry. With that the entry is
// committed. The sound node meets it again when it applies it, and stops, at every start.
func TestDigest_AFaultyReplicaCommitsNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	slow := c.followers(l)[0]
	c.tick(50)
	l.Spoil(func(s *oracle.State) { s.Workers = append(s.Workers, oracle.WorkerLease{Worker: 7, Start: 1, End: 2}) })
	stopped := map[uint64]error{}
	slow.down = true // it is only slow: what comes for it is kept
	var kept []*raftpb.Message
	for range 30 {
		c.stepKeeping(stopped, func(m *raftpb.Message) {
			if m.GetTo() == slow.id {
				kept = append(kept, m)
			}
		})
		if len(stopped) > 0 {
			break
		}
	}
	slow.down, slow.inbox = false, kept
	for range 5 {
		c.stepAll(stopped)
	}
	if err := stopped[slow.id]; err != nil {
		fails := 0
		for i := range uint64(3) {
			cfg := slow.cfg
			cfg.Self.Boot, cfg.Self.Session, cfg.Self.ClusterID = 10+i, 9000+i, slow.disk.cluster
			cfg.HardState, cfg.Snapshot, cfg.Entries = slow.disk.hard, slow.disk.snap, slow.disk.entries
			r, err := replica.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(l.id), To: new(slow.id), Term: new(l.Status().Term), Commit: new(l.Status().Applied)}
				if e := r.Step(&replica.Input{Mono: c.mono, Now: uint64(c.mono), Messages: []*raftpb.Message{m}}); e.Fatal != nil {
					fails++
					break
				}
			}
		}
		t.Errorf("sound node %d acknowledged the entry and then stopped, and does so at %d of 3 starts: %v", slow.id, fails, err)
	}
	if l.Status().Applied > slow.Status().Applied {
		t.Errorf("the faulty leader committed entry %d", l.Status().Applied)
	}
}
