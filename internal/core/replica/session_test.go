package replica_test

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
)

// bindsOn binds a session over another connection than that of its number. The request may stay without an answer.
func (c *cluster) bindsOn(n *node, id session.ID, conn session.Conn, epoch uint32, linger time.Duration) (*session.Reply, uint64) {
	reply, token := c.says(n, conn, session.Request{Bind: &session.Bind{ID: id, Epoch: epoch, TTL: sessionTTL, Linger: linger}})
	c.settle()
	return reply, token
}

// deposed cuts off a leader, which does not notice that there is another one.
func (c *cluster) deposed(l *node) (next *node) {
	c.drop = func(m *raftpb.Message) bool { return m.GetFrom() == l.id || m.GetTo() == l.id }
	l.down = true
	next = c.leader(l)
	c.tick(1)
	l.down, l.told = false, nil
	return next
}

func TestSessions_ADeposedLeaderTellsNothing(t *testing.T) {
	c, l, token := locking(t)
	next := c.deposed(l)
	c.bindsOn(next, 1, 11, 2, sessionTTL)
	c.says(next, 11, session.Request{Lock: &session.LockRequest{Op: session.LockRelease, Name: "x", Token: token}})
	c.settle()
	reply, answer := c.says(l, 21, session.Request{
		Bind: &session.Bind{ID: 1, Epoch: 3, TTL: sessionTTL, Linger: sessionTTL}, Lock: &session.LockRequest{Op: session.LockAcquire, Name: "x"},
	})
	c.settle()
	if granted := slices.ContainsFunc(l.told, func(m session.Message) bool { return m.Kind == session.MessageGranted }); granted || l.outcome(answer) == "ok" || len(reply.Holds) > 0 {
		t.Errorf("a deposed leader says %+v, and %+v", l.told, reply)
	}
}

func TestSessions_ADeposedLeaderEndsNobody(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	c.bindsOn(l, 1, 1, 1, 0)
	c.locks(l, 1, session.LockAcquire, 0)
	c.drop = func(m *raftpb.Message) bool { return m.GetFrom() == l.id || m.GetTo() == l.id }
	c.turn(l, &replica.Input{SessionsGone: []session.Conn{1}})
	next := c.leader(l)
	if reply, _ := c.bindsOn(next, 1, 11, 2, sessionTTL); len(reply.Holds) != 1 {
		t.Fatalf("%+v", reply)
	}
	if reply, answer := c.bindsOn(l, 1, 21, 3, 0); reply.Outcome != 0 || l.outcome(answer) == "ok" {
		t.Errorf("a deposed leader says %v", reply.Outcome)
	}
}

// What comes over a connection that ends before the allocator is open binds nobody.
func TestSessions_TheDeadDoNotBind(t *testing.T) {
	c, l, _ := locking(t)
	l.down = true
	var next *node
	for range 500 * 30 {
		if next = leadsUnopened(c); next != nil {
			break
		}
		if c.pass() {
			continue
		}
		c.mono += tick
		for _, n := range c.running() {
			c.turn(n, &replica.Input{Ticks: 1})
		}
	}
	if next == nil {
		t.Fatal("nobody leads")
	}
	b := &session.Bind{ID: 7, Epoch: 1, TTL: 10 * time.Second, Linger: 0}
	reply, answer := c.says(next, 7, session.Request{Bind: b})
	c.turn(next, &replica.Input{SessionsGone: []session.Conn{7}})
	c.settle()
	if next.outcome(answer) != "no_leader" || reply.Outcome != 0 {
		t.Errorf("it is answered %q, %+v", next.outcome(answer), reply)
	}
}

// leadsUnopened returns a node that leads and does not serve yet.
func leadsUnopened(c *cluster) *node {
	for _, n := range c.running() {
		if s := n.Status(); s.Leader == n.id && !s.Serving {
			return n
		}
	}
	return nil
}

// A leader with a cluster clock each of whose steps confirms a round, and has another request, grants locks.
func TestLocks_AreGrantedUnderLoad(t *testing.T) {
	c := newIntervalCluster(t, 3)
	l := c.leader()
	c.tick(20)
	c.binds(l, 1)
	lock := session.Request{Conn: 1, Lock: &session.LockRequest{Op: session.LockAcquire, Name: "x"}}
	for i := 0; len(l.grants(1)) == 0; i++ {
		if i == 1000 {
			t.Fatal("no grant in 1000 rounds")
		}
		c.mono += 300 * time.Microsecond
		in := &replica.Input{Messages: l.inbox}
		l.inbox = nil
		if l.flying != nil {
			l.disk.save(l.flying)
			in.Persisted, l.flying = l.flying, nil
		}
		requests := []replica.Request{{Counts: []uint64{1}}}
		if i == 10 {
			requests = append(requests, replica.Request{Session: &lock})
		}
		for _, q := range requests {
			c.token++
			q.Token, q.Ranges = c.token, make([]isotone.Range, len(q.Counts))
			l.answers[c.token] = &answered{ranges: q.Ranges}
			in.Requests = append(in.Requests, q)
		}
		c.turn(l, in)
		c.followersAnswer(l)
	}
}

// followersAnswer has all but the leader work through what they have, without a tick.
func (c *cluster) followersAnswer(l *node) {
	for range 3 {
		for _, n := range c.followers(l) {
			in := &replica.Input{Messages: n.inbox}
			n.inbox = nil
			if n.flying != nil {
				n.disk.save(n.flying)
				in.Persisted, n.flying = n.flying, nil
			}
			c.turn(n, in)
		}
	}
}

// No floor shortens the minute in which a restored cluster grants no lock.
func TestLocks_WaitForClocksAfterARestoration(t *testing.T) {
	c := seeded(t, nil)
	for _, n := range c.nodes {
		n.skew = 999*time.Hour + 3*time.Second
	}
	c.greet()
	c.settle()
	l := c.leader()
	raisesLevel(t, c, l)
	c.tick(50)
	c.binds(l, 1)
	c.locks(l, 1, session.LockAcquire, 0)
	c.turn(l, &replica.Input{RaiseFloor: &replica.FloorRequest{Time: l.Upcoming().Time + uint64(2*time.Minute)}})
	c.settle()
	c.tick(5)
	if len(l.grants(1)) > 0 {
		t.Error("it is granted")
	}
	for i := 0; len(l.grants(1)) == 0; i++ {
		if i == 7000 {
			t.Fatal("it is not granted after a minute")
		}
		c.tick(1)
		c.says(l, 1, session.Request{})
		c.settle()
	}
}

func TestSessions_RefuseStampsThatNobodyRegisters(t *testing.T) {
	c, l, _ := locking(t)
	for what, q := range map[string]replica.Request{
		"of a timeline": {Timeline: "orders", Counts: []uint64{1}},
		"two ranges":    {Counts: []uint64{1, 1}},
	} {
		q.Session = &session.Request{Conn: 1}
		token := c.request(l, q)
		c.settle()
		if got := l.outcome(token); got != isotone.CodeInvalidArgument {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// A session is ended by whoever has its ID, over any connection, and by a leader that has not bound it.
func TestSessions_AreEndedByTheirIDs(t *testing.T) {
	c, l, _ := locking(t)
	end, token := c.says(l, 77, session.Request{End: 1})
	c.settle()
	c.tick(1)
	if got := l.outcome(token); got != "ok" || end.Outcome != session.Expired {
		t.Errorf("%q, %+v", got, end)
	}
	told := slices.ContainsFunc(l.told, func(m session.Message) bool { return m.Conn == 1 && m.Kind == session.MessageExpired })
	if h, held := l.Holder("x"); held || !told {
		t.Errorf("%+v holds the lock; the session was told: %v", h, told)
	}
	if _, token = c.says(l, 77, session.Request{End: 1}); l.outcome(token) != "ok" {
		t.Errorf("again: %q", l.outcome(token))
	}
	c.locks(l, 2, session.LockAcquire, 0)
	l.down = true
	next := c.leader(l)
	c.tick(20)
	c.says(next, 77, session.Request{End: 2})
	c.settle()
	c.tick(1)
	if h, held := next.Holder("x"); held {
		t.Errorf("%+v holds the lock", h)
	}
}

func TestSessions_ShowWhatTheyHold(t *testing.T) {
	c, l, token := locking(t)
	shown, _ := c.says(l, 1, session.Request{Show: true, Join: []string{"orders"}})
	c.settle()
	if len(shown.Holds) != 1 || shown.Holds[0] != (session.Hold{Name: "x", Token: token}) || len(shown.Frontiers) != 1 || shown.Frontiers[0].Group != "orders" {
		t.Errorf("%+v", shown)
	}
	_, taken := c.says(l, 1, session.Request{Group: "orders"}, 1)
	c.settle()
	if got := l.outcome(taken); got != "ok" {
		t.Errorf("a stamp of a group that was joined: %q", got)
	}
	l.told = nil
	releasing, _ := c.says(l, 1, session.Request{Lock: &session.LockRequest{Op: session.LockRelease, Name: "x", Token: token}, Show: true})
	c.settle()
	if len(releasing.Holds) != 0 {
		t.Errorf("a lock that is being released is shown: %+v", releasing)
	}
}
