package replica_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// breaks has an operator break the lock "x".
func (c *cluster) breaks(n *node, token isotone.Timestamp64) *session.Reply {
	c.t.Helper()
	reply, answer := c.says(n, 0, session.Request{Lock: &session.LockRequest{Op: session.LockBreak, Name: "x", Token: token}})
	c.settle()
	if got := n.outcome(answer); got != "ok" {
		c.t.Errorf("it is answered %q", got)
	}
	return reply
}

// A lock that an operator breaks is free when its holder, which may not have heard of that, cannot believe in it any more.
func TestLocks_AreBroken(t *testing.T) {
	c, l, token := locking(t)
	c.locks(l, 2, session.LockAcquire, 0)
	if reply := c.breaks(l, token+1); reply.Outcome != session.NotHeld {
		t.Errorf("with another token: %+v", reply)
	}
	reply := c.breaks(l, token)
	if reply.Outcome != session.Alive || reply.FreeAfter < sessionTTL {
		t.Fatalf("%+v", reply)
	}
	if !slices.ContainsFunc(l.told, func(m session.Message) bool { return m.Conn == 1 && m.Kind == session.MessageExpired }) {
		t.Error("the holder is not told")
	}
	if again := c.breaks(l, token); again.Outcome != session.Alive || again.FreeAfter > reply.FreeAfter {
		t.Errorf("again: %+v", again)
	}
	for ran := time.Duration(0); len(l.grants(2)) == 0; ran += tick {
		if ran > reply.FreeAfter+10*tick {
			t.Fatalf("it is not free after %v", ran)
		}
		c.tick(1)
		alive, _ := c.says(l, 1, session.Request{})
		for id := range session.Conn(2) {
			c.says(l, id+2, session.Request{})
		}
		c.settle()
		if alive.Outcome == session.Alive {
			t.Fatal("the broken session is alive")
		}
		if len(l.grants(2)) > 0 && ran < sessionTTL-tick {
			t.Errorf("it is free after %v", ran)
		}
	}
	if n := l.Status().Counters; n.SessionsBroken != 1 || n.SessionsLost != 0 {
		t.Errorf("%d broken, %d lost", n.SessionsBroken, n.SessionsLost)
	}
}

// A leader that is deposed does not say that it has broken a lock.
func TestLocks_AreNotBrokenByADeposedLeader(t *testing.T) {
	c, l, token := locking(t)
	c.deposed(l)
	reply, answer := c.says(l, 0, session.Request{Lock: &session.LockRequest{Op: session.LockBreak, Name: "x", Token: token}})
	c.settle()
	if l.outcome(answer) == "ok" || reply.Outcome != 0 {
		t.Errorf("%q, %+v", l.outcome(answer), reply)
	}
}

// breaksTheReserved reports whether an operator who breaks one of the locks that have no sessions of their own ends the session of all of them.
func breaksTheReserved(t *testing.T) bool {
	c, l, token := locking(t)
	c.locks(l, 1, session.LockRelease, token)
	_, bound := c.says(l, 9, session.Request{Bind: &session.Bind{ID: session.Reserved, Epoch: 1, TTL: session.TTLMax, Linger: session.TTLMax}})
	c.settle()
	c.locks(l, 9, session.LockAcquire, 0)
	held := l.grants(9)
	if l.outcome(bound) != "ok" || len(held) != 1 {
		t.Fatalf("bound: %q, granted: %v", l.outcome(bound), held)
	}
	reply := c.locks(l, 0, session.LockBreak, held[0])
	return reply.Outcome != session.NotHeld
}

func TestLocks_OfTheReservedSessionAreNotBroken(t *testing.T) {
	if breaksTheReserved(t) {
		t.Error("the session is ended")
	}
}

// Whoever waits is granted a lock by the entry that releases it.
func TestLocks_AreHandedOverInOneEntry(t *testing.T) {
	c, l, token := locking(t)
	c.locks(l, 2, session.LockAcquire, 0)
	applied := l.Status().Applied
	c.locks(l, 1, session.LockRelease, token)
	if got, entries := l.grants(2), l.Status().Applied-applied; len(got) != 1 || entries != 1 {
		t.Errorf("%d grants after %d entries", len(got), entries)
	}
}
