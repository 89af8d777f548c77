package replica_test

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// revoke has a node revoke a worker for an operator, and returns the token.
func (c *cluster) revoke(n *node, worker uint16, start uint64) uint64 {
	return c.lease(n, replica.LeaseRequest{Revoke: &oracle.Revocation{Worker: worker, Start: start}})
}

// revoked is revoke by the leader, which must succeed. It returns the record.
func (c *cluster) revoked(worker uint16) oracle.WorkerLease {
	c.t.Helper()
	l := c.leader()
	before, _ := l.WorkerLease(worker)
	token := c.revoke(l, worker, 0)
	if l.leaseOutcome(token) != "" {
		c.t.Fatal("answered before it was applied")
	}
	c.settle()
	after, _ := l.WorkerLease(worker)
	if got := l.leaseOutcome(token); got != "ok" || !after.Revoked || after.Start != before.Start || after.End < before.End {
		c.t.Fatalf("%q: %+v became %+v", got, before, after)
	}
	return after
}

func TestRevoke_ANodeGoesOnWithAnotherWorkerAndReleasesTheOldOne(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	for _, n := range []*node{c.leader(), c.nodes[c.leader().id%3+1]} {
		old := n.Status().Workers[0]
		c.use(n)
		old.End = c.revoked(old.Worker).End
		c.use(n) // its generators make ids all the time
		c.until("another worker", func() bool {
			c.use(n)
			return n.Status().Generators[old.Slot].Worker() != int(old.Worker)
		})
		c.until("the release", func() bool { l, _ := c.leader().WorkerLease(old.Worker); return l.Session == 0 })
		if l, _ := c.leader().WorkerLease(old.Worker); l.Start != old.Start || l.End >= old.End || l.Revoked {
			t.Errorf("node %d: %+v was released as %+v", n.id, old, l)
		}
		if got := n.Status().Workers; len(got) != 2 || slices.ContainsFunc(got, func(l oracle.WorkerLease) bool { return l.Worker == old.Worker }) {
			t.Errorf("node %d holds %+v", n.id, got)
		}
	}
}

// TestRevoke_WithoutAQuorumIDsGoOnUntilTheEnd: a node whose lease was revoked does not get another
// one, and may use up what it has.
func TestRevoke_WithoutAQuorumIDsGoOnUntilTheEnd(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	old := f.Status().Workers[0]
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgProp }
	old = c.revoked(old.Worker)
	for c.tick(1); c.millis() < old.End-10; c.tick(1) {
		if _, err := f.Status().Generators[old.Slot].TryNext(); err != nil {
			t.Fatalf("%d ms before the end: %v", old.End-c.millis(), err)
		}
	}
	if l, _ := c.leader().WorkerLease(old.Worker); l != old {
		t.Errorf("%+v became %+v", old, l)
	}
}

func TestRevoke_AFixedWorkerComesBackAfterTheEnd(t *testing.T) {
	c := newIDCluster(t, func(cfg *replica.Config) {
		if cfg.Self.NodeID == 2 {
			cfg.FixedWorker, cfg.Workers = 7, 1
		}
	})
	n := c.nodes[2]
	n.workers = 1
	c.leasing()
	old := c.revoked(7)
	c.until("the reason", func() bool { r := n.Status().WorkersRefused; return r != nil && r.Reason == oracle.LeaseRevoked })
	c.until("the next lease", func() bool { l := n.Status().Workers; return len(l) == 1 && !l[0].Revoked })
	if l := n.Status().Workers[0]; l.Worker != 7 || l.Start < old.End {
		t.Errorf("I9: %+v follows %+v", l, old)
	}
}

func TestRevoke_AClientIsToldAndGetsAnotherWorkerInANewSession(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	c.lease(l, c.wants(91))
	c.settle()
	mine := l.leases[0]
	old := c.revoked(mine.Worker)
	c.tick(10)
	again := c.lease(l, c.wants(91))
	c.settle()
	if a := l.leases[len(l.leases)-1]; l.leaseOutcome(again) != isotone.CodeNoWorker || !strings.Contains(a.Err.Message, "was revoked by an operator") {
		t.Errorf("renewal: %+v", a)
	}
	if now, _ := l.WorkerLease(mine.Worker); now != old {
		t.Errorf("%+v became %+v", old, now)
	}
	other := c.lease(l, c.wants(92))
	c.settle()
	if a := l.leases[len(l.leases)-1]; l.leaseOutcome(other) != "ok" || a.Worker == mine.Worker {
		t.Errorf("another session: %+v", a)
	}
}

func TestRevoke_RefusesWhatIsNotHeld(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	held := l.Status().Workers[0]
	free := uint16(7)
	entries := l.Status().Applied
	for name, token := range map[string]uint64{
		"never leased":  c.revoke(l, free, 0),
		"no worker":     c.revoke(l, 65535, 0),
		"another lease": c.revoke(l, held.Worker, held.Start+1),
	} {
		if got := l.leaseOutcome(token); got != isotone.CodeNotFound {
			t.Errorf("%s: %q", name, got)
		}
	}
	f := c.nodes[l.id%3+1]
	if got := f.leaseOutcome(c.revoke(f, held.Worker, 0)); got != isotone.CodeNotLeader {
		t.Errorf("a follower: %q", got)
	}
	c.settle()
	if now, _ := l.WorkerLease(held.Worker); now.Revoked || l.Status().Applied != entries {
		t.Errorf("refused, and yet: %+v, %d entries", now, l.Status().Applied-entries)
	}
	// Twice in one step: the second finds the same lease.
	one := &oracle.Revocation{Worker: held.Worker}
	c.token += 2
	c.turn(l, &replica.Input{LeaseRequests: []replica.LeaseRequest{{Token: c.token - 1, Revoke: one}, {Token: c.token, Revoke: one}}})
	c.settle()
	if a, b := l.leaseOutcome(c.token-1), l.leaseOutcome(c.token); a != "ok" || b != "ok" {
		t.Errorf("twice: %q, %q", a, b)
	}
}

// TestRevoke_OnlyTheLeaderProposes: a member may not send one in its own name.
func TestRevoke_OnlyTheLeaderProposes(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	held := l.Status().Workers[0]
	data := oracle.Command{Kind: oracle.KindRevoke, Revoke: oracle.Revocation{Worker: held.Worker, Start: held.Start}}.Append(nil)
	before := l.Status().Counters.ProposalsDropped
	c.turn(l, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgProp.Enum(), From: new(l.id%3 + 1), To: new(l.id), Entries: []*raftpb.Entry{{Data: data}},
	}}})
	c.settle()
	if now, _ := l.WorkerLease(held.Worker); now.Revoked || l.Status().Counters.ProposalsDropped != before+1 {
		t.Errorf("%+v, %d dropped", now, l.Status().Counters.ProposalsDropped-before)
	}
}

// TestRevoke_AllWorkersOfANodeAgainAndAgain: slots, releases and requests do not get mixed up.
func TestRevoke_AllWorkersOfANodeAgainAndAgain(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	n := c.nodes[c.leader().id%3+1]
	for range 20 {
		for _, l := range n.Status().Workers {
			c.revoke(c.leader(), l.Worker, l.Start)
		}
		c.tick(7)
		c.use(n)
		if len(n.Status().Workers) > 2 {
			t.Fatalf("%+v", n.Status().Workers)
		}
	}
	c.until("two leases that are not revoked", func() bool {
		return len(n.Status().Workers) == 2 && !slices.ContainsFunc(n.Status().Workers, func(l oracle.WorkerLease) bool { return l.Revoked })
	})
}
