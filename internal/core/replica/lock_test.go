package replica_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
)

const sessionTTL = time.Second

// says sends a request of a session over a connection, and returns it with its token.
func (c *cluster) says(n *node, conn session.Conn, q session.Request, counts ...uint64) (*session.Reply, uint64) {
	q.Conn = conn
	return &q.Reply, c.request(n, replica.Request{Session: &q, Counts: counts})
}

// binds binds session id over the connection of the same number, and wants that to be answered.
func (c *cluster) binds(n *node, id session.ID, groups ...string) *session.Reply {
	c.t.Helper()
	b := &session.Bind{ID: id, Epoch: 1, TTL: sessionTTL, Linger: sessionTTL}
	for _, g := range groups {
		b.Reports = append(b.Reports, frontier.Report{Group: g, Low: isotone.Timestamp{Index: 1}})
	}
	reply, token := c.says(n, session.Conn(id), session.Request{Bind: b})
	c.settle()
	if got := n.outcome(token); got != "ok" || reply.Outcome != session.Alive || reply.Session != id {
		c.t.Fatalf("session %d binds: %q, %+v", id, got, reply)
	}
	return reply
}

// locks sends a request of a session about the lock "x".
func (c *cluster) locks(n *node, id session.ID, op session.LockOp, token isotone.Timestamp64) *session.Reply {
	reply, _ := c.says(n, session.Conn(id), session.Request{Lock: &session.LockRequest{Op: op, Name: "x", Token: token}})
	c.settle()
	return reply
}

// grants returns the tokens that a session was granted.
func (n *node) grants(id session.ID) (tokens []isotone.Timestamp64) {
	for _, m := range n.told {
		if m.Conn == session.Conn(id) && m.Kind == session.MessageGranted {
			tokens = append(tokens, m.Token)
		}
	}
	return tokens
}

// locking is a cluster with a leader to which the sessions 1 to 3 are bound. The first one holds "x".
func locking(t *testing.T) (*cluster, *node, isotone.Timestamp64) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	for id := range session.ID(3) {
		c.binds(l, id+1)
	}
	c.locks(l, 1, session.LockAcquire, 0)
	if len(l.grants(1)) != 1 {
		t.Fatalf("told: %+v", l.told)
	}
	return c, l, l.grants(1)[0]
}

// wakesNobody reports whether nobody gets a lock that is released, though one waits.
func wakesNobody(t *testing.T) bool {
	c, l, token := locking(t)
	c.locks(l, 2, session.LockAcquire, 0)
	c.locks(l, 1, session.LockRelease, token)
	c.tick(5)
	got := l.grants(2)
	if len(got) > 0 && got[0] <= token {
		t.Errorf("the token %v follows %v", got[0], token)
	}
	return len(got) != 1
}

// wakesTheLast reports whether a lock goes to whoever came last.
func wakesTheLast(t *testing.T) bool {
	c, l, token := locking(t)
	c.locks(l, 2, session.LockAcquire, 0)
	c.locks(l, 3, session.LockAcquire, 0)
	c.locks(l, 1, session.LockRelease, token)
	c.tick(5)
	return len(l.grants(3)) > 0
}

// releasesAnother reports whether a release that comes late frees the lock that its session has acquired again (R7).
func releasesAnother(t *testing.T) bool {
	c, l, token := locking(t)
	c.locks(l, 1, session.LockRelease, token)
	c.locks(l, 1, session.LockAcquire, 0)
	c.locks(l, 1, session.LockRelease, token)
	c.locks(l, 2, session.LockAcquire, 0)
	c.tick(5)
	return len(l.grants(2)) > 0
}

// tellsNobody reports whether who releases a lock does not hear when it is released.
func tellsNobody(t *testing.T) bool {
	c, l, token := locking(t)
	c.locks(l, 1, session.LockRelease, token)
	c.tick(5)
	return !slices.ContainsFunc(l.told, func(m session.Message) bool {
		return m.Conn == 1 && m.Kind == session.MessageReleased && m.Token == token
	})
}

// answersWhileReleasing reports whether a session that asks for a lock again, before its release is applied, is told that it holds it (R7).
func answersWhileReleasing(t *testing.T) bool {
	c, l, token := locking(t)
	c.says(l, 1, session.Request{Lock: &session.LockRequest{Op: session.LockRelease, Name: "x", Token: token}})
	reply, _ := c.says(l, 1, session.Request{Lock: &session.LockRequest{Op: session.LockAcquire, Name: "x"}})
	c.settle()
	c.tick(5)
	return len(reply.Holds) > 0 || len(l.grants(1)) != 2
}

// keepsWithoutRound reports whether a leader that reaches nobody tells a session that it is alive (R3).
func keepsWithoutRound(t *testing.T) bool {
	c, l, _ := locking(t)
	c.drop = func(m *raftpb.Message) bool { return m.GetFrom() == l.id || m.GetTo() == l.id }
	reply, _ := c.says(l, 1, session.Request{})
	c.settle()
	return reply.Outcome == session.Alive
}

// claimsTooEarly reports whether a lock of a restored cluster is granted though holders of the former one may believe in it still.
func claimsTooEarly(t *testing.T) bool {
	c := seeded(t, nil)
	c.greet()
	c.settle()
	l := c.leader()
	raisesLevel(t, c, l)
	c.binds(l, 1)
	c.locks(l, 1, session.LockAcquire, 0)
	c.tick(20)
	return len(l.grants(1)) > 0
}

// raisesLevel raises the feature level of a restored cluster, which begins at the lowest.
func raisesLevel(t *testing.T, c *cluster, n *node) {
	t.Helper()
	c.tick(20)
	c.turn(n, &replica.Input{RaiseLevel: true})
	c.settle()
	if n.levelRefused != nil {
		t.Fatal(n.levelRefused)
	}
}

// agreesOnOtherHolds reports whether states with different holds have one digest (I12).
func agreesOnOtherHolds(*testing.T) bool {
	var a, b oracle.State
	claim := func(s *oracle.State, session uint64) {
		h := oracle.Hold{Name: "x", Session: session, Token: 7, TTL: sessionTTL}
		s.Apply(1, oracle.Command{Kind: oracle.KindHold, Holds: []oracle.HoldChange{{Kind: oracle.HoldClaim, Hold: h}}})
	}
	claim(&a, 1)
	claim(&b, 2)
	return a.Digest() == b.Digest()
}

func TestLocks_KeepTheirRules(t *testing.T) {
	for name, harms := range map[string]func(*testing.T) bool{
		"nobody gets a released lock":                     wakesNobody,
		"nobody is told of a release":                     tellsNobody,
		"a hold that is being released is shown":          answersWhileReleasing,
		"whoever came last gets it":                       wakesTheLast,
		"a late release frees another hold":               releasesAnother,
		"a leader without a quorum says alive":            keepsWithoutRound,
		"a restored cluster grants at once":               claimsTooEarly,
		"other holds have the same digest":                agreesOnOtherHolds,
		"the end of a session frees nothing":              keepsForTheDead,
		"a new leader forgets holds":                      forgetsHolds,
		"a lock is granted twice":                         grantsHeld,
		"a session answers over its former connection":    answersTheFormer,
		"stamps are issued to a session without an entry": takesUnbound,
	} {
		t.Run(name, func(t *testing.T) {
			if harms(t) {
				t.Error("it does")
			}
		})
	}
}

// keepsForTheDead reports whether a lock stays held when its session has ended.
func keepsForTheDead(t *testing.T) bool {
	c, l, token := locking(t)
	c.locks(l, 2, session.LockAcquire, 0)
	for range 140 { // the others are heard
		c.tick(1)
		for id := range session.Conn(2) {
			c.says(l, id+2, session.Request{})
		}
		c.settle()
	}
	got := l.grants(2)
	expired := slices.ContainsFunc(l.told, func(m session.Message) bool { return m.Conn == 1 && m.Kind == session.MessageExpired })
	return len(got) != 1 || got[0] <= token || !expired
}

// forgetsHolds reports whether a session does not learn from a new leader what it holds, or another gets it within its TTL.
func forgetsHolds(t *testing.T) bool {
	c, l, token := locking(t)
	l.down = true
	next := c.leader(l)
	c.tick(1)
	reply := c.binds(next, 1)
	c.binds(next, 2)
	c.locks(next, 2, session.LockAcquire, 0)
	c.tick(20)
	return len(reply.Holds) != 1 || reply.Holds[0].Token != token || len(next.grants(2)) > 0
}

// grantsHeld reports whether one that only tries gets a lock that is held, or an error.
func grantsHeld(t *testing.T) bool {
	c, l, token := locking(t)
	reply := c.locks(l, 2, session.LockTry, 0)
	again := c.locks(l, 1, session.LockAcquire, 0)
	return reply.Outcome != session.Locked || again.Outcome != session.Alive || len(l.grants(2)) > 0 || len(again.Holds) != 1 || again.Holds[0].Token != token
}

// answersTheFormer reports whether a connection speaks for a session that another one has bound (R1).
func answersTheFormer(t *testing.T) bool {
	c, l, _ := locking(t)
	c.says(l, 9, session.Request{Bind: &session.Bind{ID: 1, Epoch: 2, TTL: sessionTTL, Linger: sessionTTL}})
	c.settle()
	reply, _ := c.says(l, 1, session.Request{})
	c.settle()
	told := slices.ContainsFunc(l.told, func(m session.Message) bool { return m.Conn == 1 && m.Kind == session.MessageSuperseded })
	return reply.Outcome != session.Unbound || !told
}

// takesUnbound reports whether stamps of a group are issued to a session that has not bound with it (R10).
func takesUnbound(t *testing.T) bool {
	c, l, _ := locking(t)
	_, token := c.says(l, 1, session.Request{Group: "orders"}, 1)
	c.settle()
	return l.outcome(token) != "invalid_argument"
}

func TestLocks_RefuseWhatIsTooMuch(t *testing.T) {
	c, l, _ := locking(t)
	for _, name := range []string{"", strings.Repeat("n", oracle.LockNameMax+1)} {
		_, token := c.says(l, 1, session.Request{Lock: &session.LockRequest{Op: session.LockAcquire, Name: name}})
		c.settle()
		if got := l.outcome(token); got != "invalid_argument" {
			t.Errorf("a name of %d bytes: %q", len(name), got)
		}
	}
	refused := isotone.Code("")
	for id := session.ID(10); id < 1100 && refused == ""; id++ {
		c.binds(l, id)
		_, token := c.says(l, session.Conn(id), session.Request{Lock: &session.LockRequest{Op: session.LockAcquire, Name: "x"}})
		c.settle()
		if got := l.outcome(token); got != "ok" {
			refused = got
		}
	}
	if refused != "overloaded" {
		t.Errorf("the waiter beyond the bound: %q", refused)
	}
}

func TestFrontier_FollowsWhatIsDecided(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	c.binds(l, 1, "orders")
	seal := func() {
		for _, m := range l.told {
			if m.Kind == session.MessageSeal {
				c.says(l, m.Conn, session.Request{Sealed: []session.GroupStamp{{Group: m.Group, Stamp: m.Through}}})
			}
		}
		l.told = nil
		c.settle()
	}
	for range 20 {
		c.tick(1)
		seal()
	}
	_, token := c.says(l, 1, session.Request{Group: "orders"}, 3)
	c.settle()
	r := l.answers[token].ranges[0]
	if f, ok := l.Frontier("orders"); !ok || !f.Before(r.First) {
		t.Fatalf("%v is open and the frontier is %v, %v", r.First, f, ok)
	}
	low := r.Last()
	low.Index++
	c.says(l, 1, session.Request{Lows: []session.GroupStamp{{Group: "orders", Stamp: low}}})
	c.settle()
	if f, _ := l.Frontier("orders"); f.Before(r.Last()) {
		t.Errorf("all up to %v is decided and the frontier is %v", r.Last(), f)
	}
	if _, ok := c.followers(l)[0].Frontier("orders"); ok {
		t.Error("a follower tells a frontier")
	}
}

// A session with a quota of two locks waits for one and holds one. It may ask again for what it has, and gets others once it has given one back.
func TestLocks_QuotaOfASession(t *testing.T) {
	c, l, token := locking(t)
	_, bound := c.says(l, 4, session.Request{Bind: &session.Bind{ID: 4, Epoch: 1, TTL: sessionTTL, Linger: sessionTTL, Quota: session.Quota{Account: "shop", Locks: 2}}})
	c.settle()
	asks := func(op session.LockOp, name string, token isotone.Timestamp64) string {
		_, answer := c.says(l, 4, session.Request{Lock: &session.LockRequest{Op: op, Name: name, Token: token}})
		c.settle()
		return string(l.outcome(answer))
	}
	if got := l.outcome(bound); got != "ok" {
		t.Fatal(got)
	}
	const over = "quota_exceeded"
	for _, step := range []struct {
		op         session.LockOp
		name, want string
	}{
		{session.LockAcquire, "x", "ok"}, {session.LockAcquire, "y", "ok"}, {session.LockAcquire, "z", over}, {session.LockTry, "z", over},
		{session.LockAcquire, "x", "ok"}, {session.LockTry, "y", "ok"}, {session.LockCancel, "x", "ok"}, {session.LockTry, "z", "ok"}, {session.LockAcquire, "x", over},
	} {
		if got := asks(step.op, step.name, 0); !strings.HasPrefix(got, step.want) {
			t.Errorf("%v of %q: %q, want %q", step.op, step.name, got, step.want)
		}
	}
	if got := asks(session.LockRelease, "z", l.grants(4)[1]); got != "ok" {
		t.Error(got)
	}
	c.locks(l, 1, session.LockRelease, token)
	if got := asks(session.LockAcquire, "x", 0); got != "ok" || len(l.grants(4)) != 3 {
		t.Errorf("%q; granted: %v", got, l.grants(4))
	}
	// What is released does not count before that is applied.
	hold := l.grants(4)[2]
	c.says(l, 4, session.Request{Lock: &session.LockRequest{Op: session.LockRelease, Name: "x", Token: hold}})
	_, answer := c.says(l, 4, session.Request{Lock: &session.LockRequest{Op: session.LockAcquire, Name: "x"}})
	c.settle()
	if got := l.outcome(answer); got != "ok" || len(l.grants(4)) != 4 {
		t.Errorf("a lock that is released and asked for again: %q; granted: %v", got, l.grants(4))
	}
	if got := asks(session.LockAcquire, "z", 0); !strings.HasPrefix(got, over) {
		t.Errorf("a third lock: %q", got)
	}
}
