package client

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
)

// A router keeps a client connected: it knows the members, finds the leader, opens and
// closes connections. It is one goroutine that receives events from all others, so it needs
// no lock. What to do, its search decides. It never waits for a node: questions and dials have their own goroutines, so a
// dead or slow member does not delay others.
//
// It is level-triggered: step compares the state with what it should be.
type router struct {
	c      *Client
	hosts  map[string]*host
	search *search.Search
	sent   [search.Uses]uint64
}

// host is an address.
type host struct {
	addr    string
	why     *isotone.Error       // with search.Foreign and search.Refuses
	inquiry *inquiry             // for the next question, while the search lasts
	dialing [search.Uses + 1]int // for each search.Use, and useLines
	conns   []*conn              // of all pools
}

// use returns what the pool is for.
func (p *pool) use() search.Use {
	switch p {
	case p.client.ids:
		return search.IDs
	case p.client.direct:
		return search.Direct
	case p.client.ahead:
		return search.Ahead
	}
	if p.node != nil {
		return useLines
	}
	return search.Stamps
}

func newRouter(c *Client) *router {
	return &router{c: c, hosts: map[string]*host{}, search: search.New(c.opt.Addrs, rand.N[time.Duration])}
}

func (r *router) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.c.ctx.Done():
			r.closeAll()
			return
		case event := <-r.c.events:
			event(r)
		case <-r.c.woken:
		case <-timer.C:
		}
		if wait := r.step(r.c.now()); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// step does what is due. It returns the wait until the next step; 0 means until an event.
func (r *router) step(now time.Duration) time.Duration {
	next := r.watch(r.c.stamps, r.silent)
	next = sooner(next, r.watch(r.c.direct, r.silent))
	next = sooner(next, r.watch(r.c.ahead, func(cn *conn, _ time.Duration) { r.giveUp(cn) }))
	next = sooner(next, r.watch(r.c.ids, func(cn *conn, _ time.Duration) { r.giveUp(cn) }))
	next = sooner(next, r.watchLines())
	leader := r.search.Leader()
	addrs, wait := r.search.Ask(now)
	switch {
	case len(addrs) > 0:
		r.forget()
		for _, addr := range addrs {
			r.ask(addr)
		}
	case next > 0 && r.search.Refresh(now):
		r.forget()
		r.question(leader)
	}
	next = sooner(next, wait)
	if !r.search.Suspects() {
		r.hangUp()
	}
	next = sooner(next, r.connectLines(now))
	if leader != "" {
		next = sooner(next, r.connect(now, r.c.stamps, leader, r.c.opt.Conns))
		next = sooner(next, r.connect(now, r.c.direct, leader, 1))
		if r.c.aheadOn.Load() {
			next = sooner(next, r.connect(now, r.c.ahead, leader, 1))
		}
	}
	if r.c.idsOn.Load() {
		for _, addr := range r.search.Members() {
			next = sooner(next, r.connect(now, r.c.ids, addr, 1))
		}
	}
	return next
}

// sooner returns the shorter wait; 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// watch calls silent for each connection whose answer is late. It stops watching when there
// are no requests.
func (r *router) watch(p *pool, silent func(*conn, time.Duration)) time.Duration {
	if !p.watched.Load() {
		return 0
	}
	sent, timeout := p.activity()
	switch {
	case p == r.c.ahead:
		timeout += heldMax
	case p.node != nil:
		timeout = max(timeout, time.Duration(r.c.timelines.patience.Load()))
	}
	last := r.lastSent(p)
	busy := sent != *last
	*last = sent
	now := r.c.now()
	next := timeout
	for _, cn := range r.conns(p) {
		if cn.pending.Load() == nil {
			continue
		}
		busy = true
		if age := cn.silent(now); age >= timeout {
			silent(cn, timeout)
		} else if age > 0 {
			next = min(next, timeout-age+time.Millisecond)
		}
	}
	if busy {
		return next
	}
	// A sender that still sees the flag set may be sending right now.
	p.watched.Store(false)
	if sent, _ := p.activity(); sent != *last && p.watched.CompareAndSwap(false, true) {
		return timeout
	}
	return 0
}

// lastSent returns where watch keeps how many requests a pool had sent.
func (r *router) lastSent(p *pool) *uint64 {
	if p.node != nil {
		return &p.node.sent
	}
	return &r.sent[p.use()]
}

// silent: the answer to a request on the connection is late.
func (r *router) silent(cn *conn, timeout time.Duration) {
	if cn.addr == r.search.Leader() {
		r.c.trouble.note(cn.addr, fmt.Errorf("silent for %v", timeout.Round(time.Millisecond)))
		r.suspect(cn.addr)
	}
}

// suspect: the node has failed, refused, or been silent.
func (r *router) suspect(addr string) {
	if r.search.Suspect(addr) {
		r.c.stamps.suspected.Store(true)
	}
}

// publish makes the state visible to other goroutines.
func (r *router) publish() {
	r.c.seen.Store(&search.View{Leader: r.search.Leader(), Members: r.search.Known()})
}

func (r *router) host(addr string) *host {
	h := r.hosts[addr]
	if h == nil {
		h = &host{addr: addr}
		r.hosts[addr] = h
	}
	return h
}

// forget removes unused addresses, so that they do not accumulate.
func (r *router) forget() {
	used := func(h *host) bool { return h != nil && (h.dialing != [search.Uses + 1]int{} || len(h.conns) > 0) }
	r.c.timelines.forget(func(addr string) bool { return used(r.hosts[addr]) })
	r.search.Forget(func(addr string) bool { return used(r.hosts[addr]) })
	maps.DeleteFunc(r.hosts, func(addr string, h *host) bool {
		unused := !used(h) && !r.search.Has(addr)
		if unused {
			h.inquiry.close()
		}
		return unused
	})
}

// followed: there is another leader.
func (r *router) followed() {
	r.publish()
	leader := r.search.Leader()
	for _, cn := range append(r.conns(r.c.stamps), r.conns(r.c.ahead)...) {
		if cn.addr != leader {
			_ = cn.netConn.Close() // its request is queued again
		}
	}
	for _, cn := range r.conns(r.c.direct) {
		if cn.addr != leader {
			_ = cn.netConn.Close()
			if r.c.direct.remove(cn) { // otherwise the call that uses it notices
				r.connEnded(cn, nil)
			}
		}
	}
}

// moved: the node at the end of the connection redirects to another leader.
func (r *router) moved(cn *conn, leader string) {
	if !r.search.Moved(cn.addr, leader, r.c.now()) {
		_ = cn.netConn.Close()
		return
	}
	r.c.stamps.suspected.Store(true)
	r.followed()
}

// recovered: the first request after a suspicion was answered.
func (r *router) recovered(cn *conn) {
	r.c.trouble.clear()
	r.search.Recovered(cn.addr)
}
