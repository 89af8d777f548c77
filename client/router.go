package client

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

const (
	// movesMax is how many nodes in a row may redirect to another one before the client
	// pauses between them.
	movesMax = 3
	// refreshInterval is how often an active client asks the leader for the members while all is
	// well. If all other members are replaced and the leader dies within this time, the client
	// knows none that remains.
	refreshInterval = 10 * time.Second
)

// A router keeps a client connected: it knows the members, finds the leader, opens and
// closes connections. It is one goroutine that receives events from all others, so it needs
// no lock. It never waits for a node: questions and dials have their own goroutines, so a
// dead or slow member does not delay others.
//
// It is level-triggered: step compares the state with what it should be.
type router struct {
	c     *Client
	hosts map[string]*host
	// members are those that the leader reported last, and what others have added since; empty
	// until then.
	members []string
	leader  string // the last known leader
	// suspected: the leader has failed, refused, or been silent, so the router asks all
	// members.
	suspected bool
	asked     time.Time // when they were last asked
	askAfter  time.Time
	rounds    int       // of questions since all was well
	begun     time.Time // the first of them
	moves     int       // redirections in a row
	connects  bool      // connecting to a new leader
	sent      [poolCount]uint64
}

// host is an address.
type host struct {
	addr     string
	status   hostStatus
	why      *isotone.Error // with statusForeign and statusRefuses
	asking   bool           // a question is under way
	inquiry  *inquiry       // for the next one, while the search lasts
	dialing  [poolCount]int
	conns    []*conn        // of all pools
	failures [poolCount]int // failed dials in a row
	retry    [poolCount]time.Time
	// leftUntil is how long only the host's own word, and no other's, makes it the leader again
	// that it was.
	leftUntil time.Time
	// refusals counts those of the client in a row; after one the host is asked at askAfter.
	refusals int
	askAfter time.Time
}

// Indices of the pools in arrays.
const (
	forStamps = iota
	forDirect
	forIDs
	poolCount
)

func (p *pool) index() int {
	switch p {
	case p.client.ids:
		return forIDs
	case p.client.direct:
		return forDirect
	}
	return forStamps
}

func newRouter(c *Client) *router {
	return &router{c: c, hosts: map[string]*host{}, suspected: true}
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
		now := time.Now()
		if wait := r.step(now); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// step does what is due. It returns the wait until the next step; 0 means until an event.
func (r *router) step(now time.Time) time.Duration {
	next := r.watch(r.c.stamps, r.suspect)
	next = sooner(next, r.watch(r.c.direct, r.suspect))
	next = sooner(next, r.watch(r.c.ids, func(cn *conn, _ time.Duration) { r.giveUp(cn) }))
	switch {
	case r.suspected:
		next = sooner(next, r.ask(now))
	case next > 0 && now.Sub(r.asked) > refreshInterval && r.leader != "":
		r.asked = now
		r.forget()
		r.question(r.leader)
	}
	if !r.suspected {
		r.hangUp()
	}
	if r.leader != "" {
		next = sooner(next, r.connect(now, r.c.stamps, r.leader, r.c.opt.Conns))
		next = sooner(next, r.connect(now, r.c.direct, r.leader, 1))
	}
	if r.c.idsOn.Load() {
		for _, addr := range r.idAddrs() {
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
	last := &r.sent[p.index()]
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

func (r *router) suspect(cn *conn, timeout time.Duration) {
	if cn.addr == r.leader {
		r.c.trouble.note(cn.addr, fmt.Errorf("silent for %v", timeout.Round(time.Millisecond)))
		r.suspectLeader()
	}
}

func (r *router) suspectLeader() {
	r.suspected = true
	r.c.stamps.suspected.Store(true)
}

// known returns all addresses that may be those of nodes.
func (r *router) known() []string {
	list := slices.Concat(r.members, r.c.opt.Addrs)
	if r.leader != "" {
		list = append(list, r.leader)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// idAddrs returns the addresses to ask for IDs: the members, or all known addresses while
// the members are unknown.
func (r *router) idAddrs() []string {
	if len(r.members) > 0 {
		return r.members
	}
	return r.known()
}

// publish makes the state visible to other goroutines.
func (r *router) publish() {
	r.c.seen.Store(&view{leader: r.leader, members: r.known()})
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
	known := r.known()
	maps.DeleteFunc(r.hosts, func(addr string, h *host) bool {
		unused := !h.asking && h.dialing == [poolCount]int{} && len(h.conns) == 0 && !slices.Contains(known, addr)
		if unused {
			h.inquiry.close()
		}
		return unused
	})
}

// follow makes addr the leader.
func (r *router) follow(addr string) {
	if addr == r.leader {
		return
	}
	if r.leader != "" && r.suspected {
		r.host(r.leader).leftUntil = time.Now().Add(backoffMax)
	}
	r.leader, r.connects = addr, true
	r.publish()
	for _, cn := range r.conns(r.c.stamps) {
		if cn.addr != addr {
			_ = cn.netConn.Close() // its request is queued again
		}
	}
	for _, cn := range r.conns(r.c.direct) {
		if cn.addr != addr {
			_ = cn.netConn.Close()
			if r.c.direct.remove(cn) { // otherwise the call that uses it notices
				r.connEnded(cn, nil)
			}
		}
	}
}

// moved: the node at the end of the connection redirects to another leader.
func (r *router) moved(cn *conn, leader string) {
	if cn.addr != r.leader {
		_ = cn.netConn.Close()
		return
	}
	var retry time.Time // at once: the node knows that it does not lead
	if r.moves++; r.moves > movesMax {
		retry = time.Now().Add(backoff(r.moves - movesMax))
	}
	h := r.host(leader)
	h.retry[forStamps], h.leftUntil = retry, time.Time{}
	r.c.stamps.suspected.Store(true)
	r.follow(leader)
}

// refused: the node at the end of the connection cannot serve now.
func (r *router) refused(cn *conn) {
	if cn.addr == r.leader {
		r.suspectLeader()
	}
}

// recovered: the first request after a suspicion was answered.
func (r *router) recovered(cn *conn) {
	r.c.trouble.clear()
	if cn.addr == r.leader {
		r.suspected, r.rounds, r.moves = false, 0, 0
		r.askAfter = r.asked.Add(backoffMin) // the next search begins without the pause of this one
		r.host(cn.addr).failures[forStamps] = 0
	}
}
