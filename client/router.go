package client

import (
	"context"
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
	rounds    int  // of questions since all was well
	moves     int  // redirections in a row
	connects  bool // connecting to a new leader
	sent      [poolCount]uint64
}

// host is an address.
type host struct {
	addr     string
	status   hostStatus
	why      *isotone.Error // with statusForeign and statusRefuses
	asking   bool           // a question is under way
	dialing  [poolCount]int
	conns    []*conn        // of all pools
	failures [poolCount]int // failed dials in a row
	retry    [poolCount]time.Time
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
		r.c.note(cn.addr, fmt.Errorf("silent for %v", timeout.Round(time.Millisecond)))
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
		idle := !h.asking && h.dialing == [poolCount]int{} && len(h.conns) == 0
		return idle && !slices.Contains(known, addr)
	})
}

// ask asks all members for the leader, unless the pause since the last time is not over.
func (r *router) ask(now time.Time) time.Duration {
	if wait := r.askAfter.Sub(now); wait > 0 {
		return wait
	}
	r.forget()
	for _, addr := range r.known() {
		r.question(addr)
	}
	pause := backoff(r.rounds)
	r.rounds++
	r.asked, r.askAfter = now, now.Add(pause)
	return pause
}

// question asks one node for the leader and the members, unless it is asked already, or has just
// refused this client.
func (r *router) question(addr string) {
	if h := r.host(addr); !h.asking && !time.Now().Before(h.askAfter) {
		h.asking = true
		r.c.work.Go(func() { r.c.askView(addr) })
	}
}

func (c *Client) askView(addr string) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.DialTimeout)
	defer cancel()
	v, err := c.exchange(ctx, addr, "CLUSTER", "SLOTS")
	var seen view
	if err == nil {
		seen, err = viewOf(v, addr)
	}
	if err != nil && c.ctx.Err() == nil {
		c.note(addr, err)
	}
	c.post(func(r *router) { r.answered(addr, seen, err) })
}

// answered handles a node's answer to askView.
func (r *router) answered(addr string, seen view, err error) {
	h := r.host(addr)
	h.asking = false
	if r.reported(h, err); err != nil {
		return
	}
	r.learn(addr, &seen)
	r.publish()
	for _, cn := range r.conns(r.c.ids) {
		if !slices.Contains(r.members, cn.addr) {
			_ = cn.netConn.Close()
		}
	}
	switch {
	case seen.leader == r.leader:
		r.confirmed(addr)
	case r.suspected && r.accepts(addr, seen.leader, time.Now()):
		r.follow(seen.leader)
	}
}

// learn takes in the members that a node has reported. Those of a leader are all there are. Other
// nodes may have been removed without knowing it, or have joined just now: what they report adds
// to the list, and the next report of the leader ends that.
func (r *router) learn(addr string, seen *view) {
	list := seen.members
	if addr != seen.leader {
		list = slices.Concat(r.members, seen.members)
		slices.Sort(list)
		list = slices.Compact(list)
	}
	if len(list) > membersMax {
		list = seen.members
	}
	r.members = list
}

// accepts reports whether to follow a node that names a leader other than the suspected
// one. A node that names itself is at least alive. Others may not have noticed yet that
// their leader is down, so their answers count neither against a leader that the client is
// still connecting to, nor for one that has failed.
func (r *router) accepts(addr, leader string, now time.Time) bool {
	if r.leader == "" || addr == leader {
		return true
	}
	connecting := r.connects && !now.Before(r.host(r.leader).retry[forStamps])
	return !connecting && !now.Before(r.host(leader).retry[forStamps])
}

// confirmed: addr names the leader that is already known. If addr is that leader itself, its
// silent connections are broken. It is suspected again as soon as it is silent or refuses.
func (r *router) confirmed(addr string) {
	_, timeout := r.c.stamps.activity()
	limit := max(giveUpFactor*timeout, giveUpMin)
	conns := 0
	for _, cn := range r.host(r.leader).conns {
		if cn.pool == r.c.ids {
			continue
		}
		conns++
		if addr == r.leader && cn.silent(r.c.now()) > limit {
			r.giveUp(cn)
		}
	}
	if conns > 0 {
		r.suspected = false
	}
}

// follow makes addr the leader.
func (r *router) follow(addr string) {
	if addr == r.leader {
		return
	}
	if r.leader != "" && r.suspected {
		r.host(r.leader).retry[forStamps] = time.Now().Add(backoffMax)
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
	r.host(leader).retry[forStamps] = retry
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
	r.c.trouble.Store(nil)
	if cn.addr == r.leader {
		r.suspected, r.rounds, r.moves = false, 0, 0
		r.host(cn.addr).failures[forStamps] = 0
	}
}
