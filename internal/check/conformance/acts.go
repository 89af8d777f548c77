package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

// This file is the vocabulary of scenarios.

// callDeadline is that of calls that are to succeed: longer than the kit waits.
const callDeadline = 10 * time.Minute

// client is a client of the driver under test.
type client struct {
	s    *stage
	name string
}

// options changes the options of a client.
type options func(*Options)

// make begins to make a client, with the addresses of all nodes unless the options have others.
func (s *stage) make(deadline time.Duration, change ...options) (*client, *call) {
	s.mu.Lock()
	s.names++
	c := &client{s, fmt.Sprintf("%s-%d", s.name, s.names)}
	o := &Options{Addrs: s.addrs()}
	for _, f := range change {
		f(o)
	}
	s.secretive, s.secret = o.User != "", o.Secret
	if floor, err := isotone.ParseTimestamp(o.Floor); err == nil {
		s.received = floor
	}
	s.clients[c.name] = o.Mode
	s.mu.Unlock()
	return c, s.begin(Command{Do: "new", Client: c.name, Options: o, DeadlineMS: deadline.Milliseconds()})
}

// open makes a client that must find the leader.
func (s *stage) open(change ...options) *client {
	c, made := s.make(callDeadline, change...)
	if made.wait().OK == nil {
		panic(broken{fmt.Sprintf("no client was made: %s %s", made.reply.Error, made.reply.Message)})
	}
	return c
}

// serving begins a cluster, and a client that was answered.
func (s *stage) serving(rule string, nodes int, change ...options) *client {
	s.start(nodes)
	c := s.open(change...)
	c.timestamp(rule)
	return c
}

// neverMade makes clients that cannot be made, until a connection has ended before the deadline: a client that is slow has seen nothing of the node.
func (s *stage) neverMade(rule string, change ...options) {
	for began := time.Now(); ; {
		_, made := s.make(2*short, change...)
		made.fails(rule, "deadline_exceeded", "unauthorized")
		if made.reply.OK != nil || s.nodes[0].hasEnded(made.begunAt, made.begunAt.Add(2*short)) || time.Since(began) > s.patience {
			return
		}
	}
}

// hasEnded reports whether a connection has ended between these times.
func (n *node) hasEnded(after, before time.Time) bool {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	return slices.ContainsFunc(n.ends, func(t time.Time) bool { return t.After(after) && t.Before(before) })
}

// at has a client know these nodes only.
func at(nodes ...*node) options {
	return func(o *Options) {
		o.Addrs = nil
		for _, n := range nodes {
			o.Addrs = append(o.Addrs, n.addr)
		}
	}
}

// connections sets how many connections to the leader a client has, if it has that option.
func connections(n int) options { return func(o *Options) { o.Connections = n } }

func lazy(o *Options) { o.Lazy = true }

// arg changes a command.
type arg func(*Command)

func within(d time.Duration) arg { return func(c *Command) { c.DeadlineMS = d.Milliseconds() } }
func mode(m string) arg          { return func(c *Command) { c.Mode = m } }
func above(t isotone.Timestamp) arg {
	return func(c *Command) { c.Above = t.String() }
}

// begin begins a call. A count of 0 is none.
func (c *client) begin(method string, count uint64, args ...arg) *call {
	cmd := Command{Do: "call", Client: c.name, Method: method, DeadlineMS: callDeadline.Milliseconds()}
	if count > 0 {
		cmd.Count = &count
	}
	for _, f := range args {
		f(&cmd)
	}
	return c.s.begin(cmd)
}

// get makes a call that must succeed.
func (c *client) get(rule, method string, count uint64, args ...arg) *Result {
	return c.begin(method, count, args...).want(rule)
}

// timestamp gets one timestamp.
func (c *client) timestamp(rule string) isotone.Timestamp {
	t, _ := isotone.ParseTimestamp(c.get(rule, "timestamp", 0).First)
	return t
}

func (c *client) close() *call { return c.s.begin(Command{Do: "close", Client: c.name}) }
func (c *call) cancel()        { c.s.begin(Command{Do: "cancel", Call: c.id}).want("driver") }
func (s *stage) sync()         { s.begin(Command{Do: "sync"}).want("driver") }
func (c *client) pinned() string {
	return c.s.begin(Command{Do: "cluster", Client: c.name}).want("driver").Cluster
}

// credentials has the client authenticate new connections so.
func (c *client) credentials(user, secret string) {
	c.s.begin(Command{Do: "credentials", Client: c.name, User: user, Secret: secret}).want("driver")
}

// on has a node answer the next times requests of a name in its own way; a negative number is for all.
func (n *node) on(name string, times int, act func(*request) answer) *rule {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	r := &rule{name, times, act}
	n.rules = append(n.rules, r)
	return r
}

// off ends a rule.
func (n *node) off(r *rule) {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	n.rules = slices.DeleteFunc(n.rules, func(other *rule) bool { return other == r })
}

// say has the node answer with these bytes.
func (n *node) say(name string, times int, bytes []byte) *rule {
	return n.on(name, times, func(*request) answer { return answer{bytes: bytes} })
}

// hangUp has the node end the connection instead of an answer.
func (n *node) hangUp(name string, times int) *rule {
	return n.on(name, times, func(*request) answer { return answer{end: true} })
}

// then has the node answer, after which the answer is changed. What it gives away counts for nothing, by that rule.
func (n *node) spoil(rule, name string, times int, change func(answer) answer) *rule {
	return n.on(name, times, func(r *request) answer {
		a := n.s.proper(r)
		if a.issued != nil {
			n.s.mu.Lock()
			a.issued.void = rule
			n.s.mu.Unlock()
		}
		return change(a)
	})
}

// gate holds requests.
type gate struct {
	n     *node
	name  string
	held  []*request
	opens chan struct{}
	rule  *rule
}

// hold has the node hold the next times requests of a name until the gate opens; then it answers them.
func (n *node) hold(name string, times int) *gate {
	g := &gate{n: n, name: name, opens: make(chan struct{})}
	g.rule = n.on(name, times, func(r *request) answer {
		g.keep(r)
		return n.s.proper(r)
	})
	return g
}

// keep waits until the gate opens.
func (g *gate) keep(r *request) {
	s := g.n.s
	s.mu.Lock()
	g.held = append(g.held, r)
	s.event("%s holds %s", r.conn.name, r.name)
	s.mu.Unlock()
	select {
	case <-g.opens:
	case <-s.ctx.Done():
	}
}

// await waits until so many requests are held.
func (g *gate) await(count int) *gate {
	g.n.s.await(fmt.Sprintf("%d %s at %s", count, g.name, g.n.name()), func() bool { return len(g.held) >= count })
	return g
}

// open has the node answer what it holds, and hold no more.
func (g *gate) open() {
	g.n.off(g.rule)
	close(g.opens)
}

// freeze has a node accept connections and read requests, but answer nothing until the gate opens.
func (n *node) freeze() *gate { return n.hold("", -1) }

// got returns the requests of a name that the node has received, all of them for "".
func (n *node) got(name string) (list []*request) {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	return n.gotLocked(name)
}

func (n *node) gotLocked(name string) (list []*request) {
	for _, r := range n.s.requests {
		if r.conn.node == n && (name == "" || r.name == name) {
			list = append(list, r)
		}
	}
	return list
}

// awaitGot waits until the node has received so many requests of a name.
func (n *node) awaitGot(name string, count int) []*request {
	n.s.await(fmt.Sprintf("%d %s at %s", count, name, n.name()), func() bool { return len(n.gotLocked(name)) >= count })
	return n.got(name)
}

// awaitClosed waits until the client has closed a connection.
func (n *node) awaitClosed(what string, c *conn) {
	n.s.await(what, func() bool { return c.over })
}

// awaitEvent waits for an event of the client.
func (s *stage) awaitEvent(event, code string) {
	s.await("the event "+event, func() bool {
		return slices.ContainsFunc(s.events, func(r Reply) bool { return r.Event == event && (code == "" || r.Error == code) })
	})
}

// reject waits for the event rejected, if the client has events.
func (s *stage) rejected(code string) {
	if s.driver.lacks([]string{featEvents}) == "" {
		s.awaitEvent("rejected", code)
	}
}

// unpaced blames the client if it sent count requests sooner than its pauses allow at the least.
func (s *stage) paced(rule string, list []*request, least time.Duration) {
	if took := list[len(list)-1].at.Sub(list[0].at); took < least {
		s.blame(rule, "%d times %s within %v, want pauses of %v together at least", len(list), list[0].name, took, least)
	}
}
