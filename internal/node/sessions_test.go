package node_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/node"
)

// talker asks about sessions in one loop of a node.
type talker struct {
	t    *testing.T
	ask  front.Sessions
	loop *loop.Loop
}

// talkers returns one for each loop of a node, and one for the standard servers.
func talkers(t *testing.T, n *node.Node) (list []*talker) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = n.Serve(ln, loop.Limits{}, func(_ int, b front.Backend, l *loop.Loop) loop.Service {
		list = append(list, &talker{t, b.(front.Sessions), l})
		return loop.Service{}
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(list, &talker{t, n.Sessions(), list[0].loop})
}

// client is a connection of a session. What it hears, answers and messages, is in order.
type client struct {
	*talker
	conn  session.Conn
	heard chan any // *front.SessionRequest or session.Message
}

func (k *talker) open() *client {
	c := &client{talker: k, heard: make(chan any, 1000)}
	opened := make(chan struct{})
	k.loop.Post(func() {
		c.conn = k.ask.OpenSession(func(m session.Message) { c.heard <- m })
		close(opened)
	})
	<-opened
	return c
}

// sends sends a request, whose answer will be heard.
func (c *client) sends(r *front.SessionRequest) {
	r.Conn, r.Done = c.conn, func(r *front.SessionRequest) { c.heard <- r }
	c.loop.Post(func() { c.ask.AskSession(r) })
}

func (c *client) hears(what string) any {
	c.t.Helper()
	return await.Receive(c.t, fmt.Sprintf("%s, on connection %d", what, c.conn), c.heard)
}

// says sends a request and returns its answer, and which messages came before.
func (c *client) says(r *front.SessionRequest) (before []session.Message) {
	c.t.Helper()
	c.sends(r)
	for {
		x := c.hears("its answer")
		if x == any(r) {
			return before
		}
		before = append(before, x.(session.Message))
	}
}

// binds binds a session, once there is a leader.
func (c *client) binds(id session.ID, epoch uint32, linger time.Duration, reports ...frontier.Report) *front.SessionRequest {
	c.t.Helper()
	r := &front.SessionRequest{Request: session.Request{Bind: &session.Bind{ID: id, Epoch: epoch, TTL: time.Minute, Linger: linger, Reports: reports}}}
	if c.says(r); r.Err != nil {
		c.t.Fatal(r.Err)
	}
	return r
}

func (c *client) locks(op session.LockOp, token isotone.Timestamp64) (*front.SessionRequest, []session.Message) {
	c.t.Helper()
	r := &front.SessionRequest{Request: session.Request{Lock: &session.LockRequest{Op: op, Name: "x", Value: fmt.Sprint("by ", c.conn), Token: token}}}
	return r, c.says(r)
}

// awaits returns the next message of a kind.
func (c *client) awaits(kind session.MessageKind, before []session.Message) session.Message {
	c.t.Helper()
	for _, m := range before {
		if m.Kind == kind {
			return m
		}
	}
	for {
		if m, ok := c.hears(fmt.Sprint("message ", kind)).(session.Message); ok && m.Kind == kind {
			return m
		}
	}
}

func (c *client) closes() { c.loop.Post(func() { c.ask.CloseSession(c.conn) }) }

// watches returns the answer to a watch.
func (k *talker) watches(w *front.SessionWatch) <-chan *front.SessionWatch {
	done := make(chan *front.SessionWatch, 1)
	w.Done = func(w *front.SessionWatch) { done <- w }
	k.loop.Post(func() { k.ask.WatchSessions(w) })
	return done
}

func (k *talker) sees(w *front.SessionWatch) *front.SessionWatch {
	k.t.Helper()
	return k.gets(k.watches(w))
}

func (k *talker) gets(answer <-chan *front.SessionWatch) *front.SessionWatch {
	k.t.Helper()
	return await.Receive(k.t, "the answer to a watch", answer)
}

// TestSessions_PassALockOn between loops: to whoever waits when it is released, or when the holder's connection has ended.
func TestSessions_PassALockOn(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c := newCluster(t, size, func(cfg *node.Config) { cfg.Loops = 3 })
			k := talkers(t, c.nodes[c.leader()])
			first, second, third := k[0].open(), k[1].open(), k[2].open()
			for i, c := range []*client{first, second, third} {
				c.binds(session.ID(i+1), 1, 0)
			}
			_, before := first.locks(session.LockAcquire, 0)
			token := first.awaits(session.MessageGranted, before).Token
			if r, _ := second.locks(session.LockTry, 0); !errors.Is(r.Err, isotone.ErrLocked) {
				t.Errorf("a lock that is held is tried: %v", r.Err)
			}
			seen := k[1].sees(&front.SessionWatch{Lock: "x"})
			if h := seen.Holders; len(h) != 1 || h[0].Token != token || h[0].Value != fmt.Sprint("by ", first.conn) || h[0].Session == 0 || h[0].Session == 1 {
				t.Errorf("the holder is %+v, %v", h, seen.Err)
			}
			changed := k[2].watches(&front.SessionWatch{Lock: "x", After: token, Wait: time.Hour})
			for _, c := range []*client{second, third} {
				r, before := c.locks(session.LockAcquire, 0)
				if r.Err != nil || c.awaits(session.MessageQueued, before).Ticket == (isotone.Timestamp{}) {
					t.Fatal(r.Err)
				}
			}
			first.locks(session.LockRelease, token)
			next := second.awaits(session.MessageGranted, nil).Token
			if w := k[2].gets(changed); w.Err != nil || len(w.Holders) > 1 || len(w.Holders) == 1 && w.Holders[0].Token != next {
				t.Errorf("what a watch sees: %+v, %v", w.Holders, w.Err)
			}
			if _, before = first.locks(session.LockRelease, token); first.awaits(session.MessageReleased, before).Token != token {
				t.Error("a lock that was released is released again")
			}
			if next <= token {
				t.Errorf("token %v follows %v", next, token)
			}
			second.closes()
			if last := third.awaits(session.MessageGranted, nil).Token; last <= next {
				t.Errorf("token %v follows %v", last, next)
			}
			if w := k[0].sees(&front.SessionWatch{Prefix: "x"}); len(w.Holders) != 1 || w.Holders[0].Name != "x" {
				t.Errorf("%+v, %v", w.Holders, w.Err)
			}
			if w := k[0].sees(&front.SessionWatch{Prefix: "y"}); len(w.Holders) != 0 || w.Err != nil {
				t.Errorf("%+v, %v", w.Holders, w.Err)
			}
		})
	}
}

func TestSessions_OutcomesAreErrors(t *testing.T) {
	c := newCluster(t, 1, func(cfg *node.Config) { cfg.Loops = 2 })
	c.leader()
	for _, k := range talkers(t, c.nodes[1]) {
		one, other := k.open(), k.open()
		keep := &front.SessionRequest{}
		if one.says(keep); !errors.Is(keep.Err, isotone.ErrNotBound) {
			t.Errorf("before it is bound: %v", keep.Err)
		}
		id := session.ID(one.conn)
		one.binds(id, 1, 0)
		other.binds(id, 2, 0)
		one.awaits(session.MessageSuperseded, nil)
		keep = &front.SessionRequest{}
		if one.says(keep); !errors.Is(keep.Err, isotone.ErrNotBound) {
			t.Errorf("superseded: %v", keep.Err)
		}
		end := &front.SessionRequest{Request: session.Request{Close: true}}
		if other.says(end); end.Err != nil {
			t.Errorf("the end: %v", end.Err)
		}
		one.closes()
		gone := &front.SessionRequest{}
		if one.says(gone); !errors.Is(gone.Err, isotone.ErrOverloaded) {
			t.Errorf("on a connection that is none: %v", gone.Err)
		}
	}
}

// TestSessions_AFrontierIsWaitedFor until the writes below it are decided.
func TestSessions_AFrontierIsWaitedFor(t *testing.T) {
	c := newCluster(t, 1, func(cfg *node.Config) { cfg.Loops = 2 })
	c.leader()
	for _, k := range talkers(t, c.nodes[1]) {
		writer := k.open()
		group := fmt.Sprint("g", writer.conn)
		bound := writer.binds(session.ID(writer.conn), 1, 0, frontier.Report{Group: group, Low: isotone.Timestamp{Index: 1}})
		if f := bound.Reply.Frontiers; len(f) != 1 || f[0].Group != group {
			t.Errorf("%+v", f)
		}
		seal := writer.awaits(session.MessageSeal, nil)
		writer.says(&front.SessionRequest{Request: session.Request{Sealed: []session.GroupStamp{{Group: group, Stamp: seal.Through}}}})
		take := &front.SessionRequest{Request: session.Request{Group: group}, Count: 3}
		if writer.says(take); take.Err != nil || take.Range.Count != 3 {
			t.Fatalf("%+v, %v", take.Range, take.Err)
		}
		last := take.Range.First
		last.Index += 2
		if w := k.sees(&front.SessionWatch{Group: group, At: last}); w.Err != nil || !w.Frontier.Before(take.Range.First) {
			t.Errorf("with a write outstanding the frontier is %v, %v", w.Frontier, w.Err)
		}
		waits := k.watches(&front.SessionWatch{Group: group, At: last, Wait: time.Hour})
		above := last
		above.Index++
		writer.says(&front.SessionRequest{Request: session.Request{Lows: []session.GroupStamp{{Group: group, Stamp: above}}}})
		if w := k.gets(waits); w.Err != nil || w.Frontier.Before(last) {
			t.Errorf("the frontier is %v, not %v: %v", w.Frontier, last, w.Err)
		}
	}
}

// TestSessions_FollowTheLeader: requests, and watches that wait, are answered with the name of the next one.
func TestSessions_FollowTheLeader(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) { cfg.Loops = 2 })
	was := c.leader()
	k := talkers(t, c.nodes[was])
	var waiting []<-chan *front.SessionWatch
	var bound []*client
	for i, k := range k {
		conn := k.open()
		conn.binds(session.ID(i+1), 1, time.Minute)
		bound = append(bound, conn)
		waiting = append(waiting, k.watches(&front.SessionWatch{Lock: "x", Wait: time.Hour}), k.watches(&front.SessionWatch{Group: "g", At: isotone.Timestamp{Time: 1 << 63}, Wait: time.Hour}))
	}
	if err := c.nodes[was].TransferLeadership(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, w := range waiting {
		if err := k[i/2].gets(w).Err; !errors.Is(err, isotone.ErrNotLeader) && !errors.Is(err, isotone.ErrNoLeader) {
			t.Errorf("a watch that waited: %v", err)
		}
	}
	now := c.leader()
	for i, conn := range bound {
		keep := &front.SessionRequest{}
		conn.says(keep)
		watched := k[i].sees(&front.SessionWatch{Lock: "x"}).Err
		for _, err := range []error{keep.Err, watched} {
			if !errors.Is(err, isotone.ErrNotLeader) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("client%d:1", now)) {
				t.Errorf("node %d leads: %v", now, err)
			}
		}
	}
	next := talkers(t, c.nodes[now])[1].open()
	next.binds(1, 2, time.Minute)
}

func TestSessions_EverythingIsAnsweredWhenTheNodeCloses(t *testing.T) {
	c := newCluster(t, 3, func(cfg *node.Config) { cfg.Loops = 2 })
	leader := c.leader()
	k := talkers(t, c.nodes[leader])
	var waiting []<-chan *front.SessionWatch
	var conns []*client
	var asked []*front.SessionRequest
	for id := range c.nodes { // so that no round is confirmed
		if id != leader {
			if err := c.stop(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, k := range k {
		waiting = append(waiting, k.watches(&front.SessionWatch{Lock: "x", Wait: time.Hour}))
		conn := k.open()
		r := &front.SessionRequest{Request: session.Request{Bind: &session.Bind{ID: session.ID(i + 1), Epoch: 1, TTL: time.Minute}}}
		conn.sends(r)
		conns, asked = append(conns, conn), append(asked, r)
	}
	if err := c.stop(leader); err != nil {
		t.Fatal(err)
	}
	for i, w := range waiting {
		if err := k[i].gets(w).Err; err == nil {
			t.Error("a watch has seen something")
		}
		if x := conns[i].hears("the end"); x != any(asked[i]) || asked[i].Err == nil {
			t.Errorf("%+v", x)
		}
	}
}
