package client

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone/internal/core/search"
)

// This file opens and closes the connections to the nodes that serve timelines. The search for the leader knows nothing of them, and
// what happens to the leader does not concern them.

// useLines is what such a connection is for, beside what a search.Use says.
const useLines = search.Uses

// lineSilentMin is how long a node may be silent before others are asked. They take its timelines no sooner: after ten ticks.
const lineSilentMin = 100 * time.Millisecond

// dialing paces the dials of a node.
type dialing struct {
	failures int // in a row
	after    time.Duration
}

// watchLines looks for late answers.
func (r *router) watchLines() (next time.Duration) {
	for _, p := range r.c.timelines.pools() {
		next = sooner(next, r.watch(p, r.lineSilent))
	}
	return next
}

// connectLines opens the connections that timelines need.
func (r *router) connectLines(now time.Duration) (next time.Duration) {
	for _, want := range r.c.timelines.wanted(r.search.Members()) {
		next = sooner(next, r.connect(now, want.pool, want.pool.node.addr, want.conns))
	}
	return next
}

// lineSilent: the answer of a node is late. All its connections are closed: if it lives, it accepts others, and answers on them. Meanwhile the
// other nodes are asked.
func (r *router) lineSilent(cn *conn, timeout time.Duration) {
	if cn.leaving {
		return
	}
	r.c.trouble.note(cn.addr, fmt.Errorf("silent for %v", timeout.Round(time.Millisecond)))
	cn.pool.backOff()
	for _, other := range r.conns(cn.pool) {
		other.leaving = true
		_ = other.netConn.Close()
	}
}

// lineEnded: a connection has ended.
func (r *router) lineEnded(cn *conn) {
	if cn.answered.Load() {
		cn.pool.node.dialing = dialing{}
		return
	}
	r.lineFailed(cn.pool)
}

// lineFailed: a node cannot be reached, or hangs up without an answer.
func (r *router) lineFailed(p *pool) {
	d, now, most := &p.node.dialing, r.c.now(), search.PauseMax
	if r.search.Outcome(p.node.addr) == search.Refuses {
		most = search.RefusedPauseMax
	}
	if now >= d.after { // concurrent attempts count once
		d.after = now + search.Jitter(rand.N[time.Duration]).Pause(d.failures, most)
		d.failures++
	}
}

// lineWant is how many connections a node should have.
type lineWant struct {
	pool  *pool
	conns int
}

// pools returns those of all nodes.
func (t *timelines) pools() []*pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.nodes) == 0 {
		return nil
	}
	list := make([]*pool, 0, len(t.nodes))
	for _, p := range t.nodes {
		list = append(list, p)
	}
	return list
}

// wanted returns the nodes that timelines need connections to: owners and, while one is looked for, all members. Nodes that no timeline uses
// cost nothing.
func (t *timelines) wanted(members []string) (list []lineWant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isLost := len(t.lost) > 0
	seeks := t.seeks || isLost
	if t.seeks = false; seeks {
		for _, addr := range members {
			if p := t.node(addr); p.node.conns == 0 {
				list = append(list, lineWant{p, 1})
			}
		}
	}
	for _, p := range t.nodes {
		n := p.node
		if n.wanted || n.owns > 0 && (n.conns > 0 || isLost) {
			list = append(list, lineWant{p, t.client.opt.Conns})
		}
		n.wanted = false
	}
	return list
}

// forget removes nodes that nothing uses, so that they do not accumulate.
func (t *timelines) forget(used func(addr string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, p := range t.nodes {
		if n := p.node; n.conns == 0 && n.owns == 0 && len(n.waiting) == 0 && !used(addr) {
			delete(t.nodes, addr)
		}
	}
}
