package replica_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

func lines(err error) []string { return strings.Split(err.Error(), "\n") }

// lease lets a client ask a node for a lease, and returns the token.
func (c *cluster) lease(n *node, q replica.LeaseRequest) uint64 {
	c.token++
	q.Token = c.token
	c.turn(n, &replica.Input{LeaseRequests: []replica.LeaseRequest{q}})
	return c.token
}

// leaseOutcome returns "ok", an error code, or "" while there is no answer.
func (n *node) leaseOutcome(token uint64) isotone.Code {
	i := slices.IndexFunc(n.leases, func(a replica.LeaseAnswer) bool { return a.Token == token })
	switch {
	case i < 0:
		return ""
	case n.leases[i].Err != nil:
		return n.leases[i].Err.Code
	}
	return "ok"
}

func (c *cluster) wants(session uint64) replica.LeaseRequest {
	return replica.LeaseRequest{Session: session, Fixed: oracle.AnyWorker, FromMillis: c.millis(), LengthMillis: leaseMillis}
}

func TestClientLease_IsGrantedRenewedAndGivenBack(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	one, two := c.lease(l, c.wants(91)), c.lease(l, c.wants(92))
	if l.leaseOutcome(one) != "" {
		t.Fatal("answered before it was applied")
	}
	c.settle()
	a, b := l.leases[0], l.leases[1]
	if a.Token != one || b.Token != two || a.Err != nil || b.Err != nil || a.Worker == b.Worker || a.Space != space || a.End != a.Start+leaseMillis {
		t.Fatalf("answers %+v, %+v", a, b)
	}
	c.tick(10)
	c.lease(l, c.wants(91))
	c.settle()
	if got := l.leases[2]; got.Worker != a.Worker || got.Start != a.Start || got.End <= a.End {
		t.Errorf("renewed: %+v, before %+v", got, a)
	}
	back := c.lease(l, replica.LeaseRequest{Session: 91, Release: &oracle.Used{Worker: a.Worker, Start: a.Start, Next: a.Start + 5}})
	c.settle()
	if rec, _ := l.WorkerLease(a.Worker); l.leaseOutcome(back) != "ok" || rec.Session != 0 || rec.End != a.Start+5 {
		t.Errorf("given back: %q, %+v", l.leaseOutcome(back), rec)
	}
}

func TestClientLease_ARefusalSaysWhy(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	other := c.wants(97)
	other.Fixed = 3
	c.lease(l, other)
	c.settle()
	for name, tc := range map[string]struct {
		spoil func(*replica.LeaseRequest)
		want  isotone.Code
	}{
		"no session":       {func(q *replica.LeaseRequest) { q.Session = 0 }, isotone.CodeInvalidArgument},
		"a worker of none": {func(q *replica.LeaseRequest) { q.Fixed = 8 }, isotone.CodeInvalidArgument},
		"too long":         {func(q *replica.LeaseRequest) { q.LengthMillis = oracle.LeaseMax + 1 }, isotone.CodeInvalidArgument},
		"beyond all time":  {func(q *replica.LeaseRequest) { q.FromMillis = 1<<64 - 1 }, isotone.CodeInvalidArgument},
		"another layout":   {func(q *replica.LeaseRequest) { q.Space = space; q.Space.Epoch = 9 }, isotone.CodeInvalidArgument},
		"its layout":       {func(q *replica.LeaseRequest) { q.Space = space }, "ok"},
		"a member's":       {func(q *replica.LeaseRequest) { q.Fixed = 0 }, isotone.CodeInvalidArgument},
		"a held worker":    {func(q *replica.LeaseRequest) { q.Fixed, q.Session = 3, 98 }, isotone.CodeNoWorker},
		"the far future":   {func(q *replica.LeaseRequest) { q.FromMillis += 2 * oracle.LeaseMax }, isotone.CodeClock},
		"a bad release":    {func(q *replica.LeaseRequest) { q.Session, q.Release = 0, &oracle.Used{} }, isotone.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.wants(99)
			tc.spoil(&q)
			token := c.lease(l, q)
			c.settle()
			if got := l.leaseOutcome(token); got != tc.want {
				t.Errorf("answered %q, want %q", got, tc.want)
			}
		})
	}
	f := c.nodes[l.id%3+1]
	token := c.lease(f, c.wants(99))
	if got := f.leaseOutcome(token); got != isotone.CodeNotLeader || f.leases[0].Err.Leader != l.cfg.Self.ClientAddr {
		t.Errorf("a follower answered %q, %+v", got, f.leases)
	}
}

func TestClientLease_EachIsAnsweredOnceWhateverHappensToTheLeader(t *testing.T) {
	c := newIDCluster(t, func(cfg *replica.Config) { cfg.RequestTicks = 5 })
	c.leasing()
	old := c.leader()
	c.isolate(old.id)
	first := c.lease(old, c.wants(91))
	c.tick(4)
	if got := old.leaseOutcome(first); got != "" {
		t.Fatalf("without a quorum: %q", got)
	}
	c.tick(1)
	if got := old.leaseOutcome(first); got != isotone.CodeDeadlineExceeded {
		t.Fatalf("when its time ran out: %q", got)
	}
	second := c.lease(old, c.wants(92))
	c.isolate() // the first is applied now, and must not answer the second
	c.tick(2)
	if got := old.leaseOutcome(second); got != "ok" || old.leases[1].Worker == 0 || len(old.leases) != 2 {
		t.Fatalf("the second: %q of %+v", got, old.leases)
	}
	if l, _ := old.WorkerLease(old.leases[1].Worker); l.Session != 92 {
		t.Errorf("it was told of %+v", l)
	}
	c.isolate(old.id)
	third := c.lease(old, c.wants(93))
	c.leader(old)
	c.isolate()
	c.tick(3)
	if got := old.leaseOutcome(third); got != isotone.CodeNotLeader && got != isotone.CodeNoLeader && got != isotone.CodeDeadlineExceeded {
		t.Errorf("the third, whose leader lost its term: %q", got)
	}
	c.tick(300)
	if len(old.leases) != 3 {
		t.Errorf("three requests have the answers %+v", old.leases)
	}
}

func TestClientLease_RefusesMoreThanItsQueueHolds(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	c.isolate(l.id)
	for i := range uint64(256) {
		c.lease(l, c.wants(100+i))
	}
	if len(l.leases) > 0 {
		t.Fatalf("answered: %+v", l.leases)
	}
	if got := l.leaseOutcome(c.lease(l, c.wants(99))); got != isotone.CodeOverloaded {
		t.Errorf("request 257: %q, want overloaded", got)
	}
	c.isolate()
	c.tick(2)
	if len(l.leases) != 257 {
		t.Errorf("%d answers", len(l.leases))
	}
}
