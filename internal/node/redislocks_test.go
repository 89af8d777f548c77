package node_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
)

// redis asks about the lock "x" of a client of a Redis library, again while the node cannot answer for the moment.
func (k *talker) redis(q redislock.Request) *front.RedisLockRequest {
	k.t.Helper()
	q.Name = "x"
	var got *front.RedisLockRequest
	await.Until(k.t, "an answer", func() bool {
		answered := make(chan *front.RedisLockRequest, 1)
		k.loop.Post(func() {
			k.ask.(front.RedisLocks).AskRedisLock(&front.RedisLockRequest{Request: q, Done: func(r *front.RedisLockRequest) { answered <- r }})
		})
		got = await.Receive(k.t, "an answer", answered)
		return !errors.Is(got.Err, isotone.ErrNoLeader) && !errors.Is(got.Err, isotone.ErrOverloaded)
	})
	return got
}

// TestRedisLocks_OutliveTheLeader: in any loop of any node that leads, with the time and the value that they were given last.
func TestRedisLocks_OutliveTheLeader(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) { cfg.Loops = 2 })
	was := c.leader()
	k := talkers(t, c.nodes[was])
	does := func(k *talker, q redislock.Request, done bool) *front.RedisLockRequest {
		t.Helper()
		r := k.redis(q)
		if r.Err != nil || r.Reply.Done != done {
			t.Fatalf("%+v: done %v, %v", q, r.Reply.Done, r.Err)
		}
		return r
	}
	obtain := redislock.Request{Op: redislock.Obtain, Value: "b", TTL: time.Hour}
	does(k[0], redislock.Request{Op: redislock.Obtain, Value: "a", TTL: 30 * time.Second}, true)
	does(k[1], redislock.Request{Op: redislock.Refresh, Value: "a", TTL: time.Hour}, true)
	does(k[1], obtain, false)
	token := does(k[0], redislock.Request{Op: redislock.Read, Value: "a"}, true).Token

	if err := c.nodes[was].TransferLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := c.leader()
	if r := k[1].redis(obtain); !errors.Is(r.Err, isotone.ErrNotLeader) {
		t.Errorf("a node that does not lead: %v", r.Err)
	}
	next := talkers(t, c.nodes[now])
	does(next[1], obtain, false)
	if r := does(next[0], redislock.Request{Op: redislock.Read, Value: "a"}, true); r.Left < 50*time.Minute || r.Token != token {
		t.Errorf("after the change of leaders: %+v, want token %d", r.Reply, token)
	}
	does(next[0], redislock.Request{Op: redislock.Delete, Value: "a"}, true)
	does(next[1], obtain, true)
	if r := does(next[0], redislock.Request{Op: redislock.Read, Value: "b"}, true); r.Token <= token {
		t.Errorf("token %d after %d", r.Token, token)
	}
	lock := &session.LockRequest{Op: session.LockBreak, Name: "x", Token: token}
	operator := next[1].open()
	for _, want := range []error{isotone.ErrNotHeld, nil} { // the token of the earlier holder, and of this one
		r := &front.SessionRequest{Request: session.Request{Lock: lock}}
		if operator.says(r); !errors.Is(r.Err, want) {
			t.Errorf("an operator breaks the lock: %v, want %v", r.Err, want)
		}
		if want == nil && r.Reply.FreeAfter < time.Hour {
			t.Errorf("it is said to be free in %v", r.Reply.FreeAfter)
		}
		lock = &session.LockRequest{Op: session.LockBreak, Name: "x", Token: next[0].redis(redislock.Request{Op: redislock.Read, Any: true}).Token}
	}
	does(next[0], redislock.Request{Op: redislock.Refresh, Value: "b", TTL: time.Hour}, false)
	// Others see the value, and a session cannot get the lock, nor that of all these locks.
	if h := next[0].sees(&front.SessionWatch{Lock: "x"}).Holders; len(h) != 1 || h[0].Value != "b" {
		t.Errorf("holders: %+v", h)
	}
	conn := next[1].open()
	conn.binds(5, 1, time.Minute)
	if r, _ := conn.locks(session.LockTry, 0); !errors.Is(r.Err, isotone.ErrLocked) {
		t.Errorf("a session: %v", r.Err)
	}
	r := &front.SessionRequest{Request: session.Request{Bind: &session.Bind{ID: redislock.SessionID, Epoch: 9, TTL: time.Minute}}}
	if next[0].open().says(r); !errors.Is(r.Err, isotone.ErrInvalidArgument) {
		t.Errorf("somebody binds the session of these locks: %v", r.Err)
	}
	r = &front.SessionRequest{Request: session.Request{End: redislock.SessionID}}
	if next[0].open().says(r); !errors.Is(r.Err, isotone.ErrInvalidArgument) {
		t.Errorf("somebody ends the session of these locks: %v", r.Err)
	}
	does(next[0], obtain, false)
}

// TestRedisLocks_AmendmentsAreNobodyElses: they take no place in lists, and no session has their names.
func TestRedisLocks_AmendmentsAreNobodyElses(t *testing.T) {
	c := newCluster(t, 1, nil)
	k := talkers(t, c.nodes[c.leader()])[0]
	k.redis(redislock.Request{Op: redislock.Obtain, Value: "a", TTL: time.Minute})
	const amendments = 1000 // as many as a list has at most
	const together = 50
	answered := make(chan error, 2*together)
	does := func(q redislock.Request) {
		k.loop.Post(func() {
			k.ask.(front.RedisLocks).AskRedisLock(&front.RedisLockRequest{Request: q, Done: func(r *front.RedisLockRequest) { answered <- r.Err }})
		})
	}
	for i := 0; i < amendments; i += together {
		for n := range together {
			name := fmt.Sprintf("y%d", i+n)
			does(redislock.Request{Op: redislock.Obtain, Name: name, Value: "a", TTL: time.Minute})
			does(redislock.Request{Op: redislock.Refresh, Name: name, Value: "a", TTL: time.Hour})
		}
		for range 2 * together {
			if err := await.Receive(t, "an answer", answered); err != nil {
				t.Fatal(err)
			}
		}
	}
	if h := k.sees(&front.SessionWatch{}).Holders; len(h) != amendments || h[0].Name != "x" {
		t.Errorf("%d locks are listed", len(h))
	}
	conn := k.open()
	conn.binds(5, 1, time.Minute)
	r := &front.SessionRequest{Request: session.Request{Lock: &session.LockRequest{Op: session.LockTry, Name: "isotone:redis:1:1.1"}}}
	if conn.says(r); !errors.Is(r.Err, isotone.ErrInvalidArgument) {
		t.Errorf("a session takes a name of theirs: %v", r.Err)
	}
}

// TestRedisLocks_EndByThemselves, and then others get them.
func TestRedisLocks_EndByThemselves(t *testing.T) {
	c := newCluster(t, 1, nil)
	k := talkers(t, c.nodes[c.leader()])[0]
	began := time.Now()
	first := k.redis(redislock.Request{Op: redislock.Obtain, Value: "a", TTL: 50 * time.Millisecond})
	if !first.Reply.Done || first.Err != nil {
		t.Fatalf("%+v: %v", first.Reply, first.Err)
	}
	await.Until(t, "the lock is free", func() bool {
		return k.redis(redislock.Request{Op: redislock.Obtain, Value: "b", TTL: time.Hour}).Reply.Done
	})
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("it was free after %v", took)
	}
}
