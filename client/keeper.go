package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

const (
	// backoffMin and backoffMax bound the pause after a failure, before jitter. An
	// election takes some hundred milliseconds, and ends sooner for who asks often.
	backoffMin = 5 * time.Millisecond
	backoffMax = 100 * time.Millisecond
	// memberBackoffMax bounds it for a member that is not needed, because others give ids.
	memberBackoffMax = 2 * time.Second
	// movesMax is how many nodes in a row may point to another one, before the client
	// pauses between them.
	movesMax = 3
	// giveUpFactor times the patience is how long a connection may be silent while the
	// leader answers on another one; giveUpMin is the least.
	giveUpFactor = 10
	giveUpMin    = time.Second
	// refreshInterval is how often a client that is in use asks for the members, though
	// all is well.
	refreshInterval = 30 * time.Second
)

// backoff returns the pause after so many failures in a row: it doubles, and is between
// half and one and a half of that.
func backoff(failures int) time.Duration { return backoffTo(failures, backoffMax) }

func backoffTo(failures int, most time.Duration) time.Duration {
	pause := min(backoffMin<<min(failures, 10), most)
	return pause/2 + rand.N(pause)
}

// A keeper keeps a client connected: it knows the members, finds the leader, makes and
// closes connections. It is one goroutine; all else reaches it as events, so it has no
// lock. It never waits for a node: questions and dials have goroutines of their own, so
// that a dead or slow member delays nothing but itself.
//
// It works by level, not by edge: step compares what there is with what should be.
type keeper struct {
	c     *Client
	hosts map[string]*host
	// members are as a node told last, and empty until then.
	members []string
	leader  string // to the best of its knowledge
	// doubt: the leader has failed, refused, or been silent, so the others are asked.
	doubt    bool
	asked    time.Time // when they were last
	askAfter time.Time
	rounds   int // of questions since all was well
	moves    int // in a row
	connects bool
	sent     [places]uint64 // of each pool, when last looked at
}

// host is an address.
type host struct {
	addr     string
	standing standing
	why      *isotone.Error // it is foreign
	asking   bool           // a question is under way
	dialing  [places]int    // for each pool
	lanes    []*lane        // of all pools
	failures [places]int    // in a row
	retry    [places]time.Time
}

// Places of the pools in arrays.
const (
	forStamps = iota
	forLone
	forIDs
	places
)

func (p *pool) place() int {
	switch p {
	case p.client.ids:
		return forIDs
	case p.client.lone:
		return forLone
	}
	return forStamps
}

func newKeeper(c *Client) *keeper {
	return &keeper{c: c, hosts: map[string]*host{}, doubt: true}
}

func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.c.ctx.Done():
			k.closeAll()
			return
		case event := <-k.c.events:
			event(k)
		case <-k.c.poked:
		case <-timer.C:
		}
		now := time.Now()
		if wait := k.step(now); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

func (k *keeper) closeAll() {
	for _, h := range k.hosts {
		for _, l := range h.lanes {
			_ = l.conn.Close()
		}
	}
}

// step does what is due, and returns when to look again; 0: only after an event.
func (k *keeper) step(now time.Time) time.Duration {
	next := k.watch(k.c.stamps, k.suspect)
	next = sooner(next, k.watch(k.c.lone, k.suspect))
	next = sooner(next, k.watch(k.c.ids, func(l *lane, _ time.Duration) { k.giveUp(l) }))
	switch {
	case k.doubt:
		next = sooner(next, k.ask(now))
	case next > 0 && now.Sub(k.asked) > refreshInterval:
		k.ask(now) // members come and go
	}
	if k.leader != "" {
		next = sooner(next, k.connect(now, k.c.stamps, k.leader, k.c.opt.Conns))
		next = sooner(next, k.connect(now, k.c.lone, k.leader, 1))
	}
	if k.c.idsOn.Load() {
		for _, addr := range k.idAddrs() {
			next = sooner(next, k.connect(now, k.c.ids, addr, 1))
		}
	}
	return next
}

// sooner returns the shorter wait; 0 is for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// watch calls silent for each lane that has been silent for too long. It watches as long
// as there are requests.
func (k *keeper) watch(p *pool, silent func(*lane, time.Duration)) time.Duration {
	if !p.watched.Load() {
		return 0
	}
	sent, patience := p.activity()
	last := &k.sent[p.place()]
	busy := sent != *last
	*last = sent
	now := k.c.now()
	next := patience
	for _, l := range k.lanes(p) {
		if l.pending.Load() == nil {
			continue
		}
		busy = true
		if age := l.silent(now); age >= patience {
			silent(l, patience)
		} else if age > 0 {
			next = min(next, patience-age+time.Millisecond)
		}
	}
	if busy {
		return next
	}
	// A request may be sent at this very moment, by someone who still sees the flag set.
	p.watched.Store(false)
	if sent, _ := p.activity(); sent != *last && p.watched.CompareAndSwap(false, true) {
		return patience
	}
	return 0
}

// suspect doubts a leader that is silent.
func (k *keeper) suspect(l *lane, patience time.Duration) {
	if l.addr == k.leader {
		k.c.note(l.addr, fmt.Errorf("silent for %v", patience.Round(time.Millisecond)))
		k.suspectLeader()
	}
}

func (k *keeper) suspectLeader() {
	k.doubt = true
	k.c.stamps.doubted.Store(true)
}

// lanes returns the lanes of a pool.
func (k *keeper) lanes(p *pool) (list []*lane) {
	for _, h := range k.hosts {
		for _, l := range h.lanes {
			if l.pool == p {
				list = append(list, l)
			}
		}
	}
	return list
}

// known returns all addresses that may be a node's.
func (k *keeper) known() []string {
	list := slices.Concat(k.members, k.c.opt.Addrs)
	if k.leader != "" {
		list = append(list, k.leader)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// idAddrs returns whom to ask for ids: the members, or who may be one.
func (k *keeper) idAddrs() []string {
	if len(k.members) > 0 {
		return k.members
	}
	return k.known()
}

// publish shows others what is known.
func (k *keeper) publish() {
	k.c.seen.Store(&view{leader: k.leader, members: k.known()})
}

func (k *keeper) host(addr string) *host {
	h := k.hosts[addr]
	if h == nil {
		h = &host{addr: addr}
		k.hosts[addr] = h
	}
	return h
}

// forget drops addresses that are of no use any more, so that they do not pile up.
func (k *keeper) forget() {
	known := k.known()
	maps.DeleteFunc(k.hosts, func(addr string, h *host) bool {
		idle := !h.asking && h.dialing == [places]int{} && len(h.lanes) == 0
		return idle && !slices.Contains(known, addr)
	})
}

// ask asks all members who leads, unless it has only just done so.
func (k *keeper) ask(now time.Time) time.Duration {
	if wait := k.askAfter.Sub(now); wait > 0 {
		return wait
	}
	k.forget()
	for _, addr := range k.known() {
		h := k.host(addr)
		if h.asking {
			continue
		}
		h.asking = true
		k.c.work.Go(func() { k.c.askView(addr) })
	}
	pause := backoff(k.rounds)
	k.rounds++
	k.asked, k.askAfter = now, now.Add(pause)
	return pause
}

// askView asks one node.
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
	c.post(func(k *keeper) { k.answered(addr, seen, err) })
}

// answered takes what a node says of the cluster.
func (k *keeper) answered(addr string, seen view, err error) {
	h := k.host(addr)
	h.asking = false
	if k.heard(h, err); err != nil {
		return
	}
	k.members = seen.members
	k.publish()
	for _, l := range k.lanes(k.c.ids) {
		if !slices.Contains(k.members, l.addr) {
			_ = l.conn.Close()
		}
	}
	switch {
	case seen.leader == k.leader:
		k.confirmed(addr)
	case k.doubt && k.believes(addr, seen.leader, time.Now()):
		k.lead(seen.leader)
	}
}

// believes reports whether to follow a node that names another leader than the one that
// is doubted. Who leads by its own account at least lives. Others may not have noticed
// yet that their leader is down, so what they say does not count against a leader that
// is only just being connected, nor for one that has failed.
func (k *keeper) believes(addr, leader string, now time.Time) bool {
	if k.leader == "" || addr == leader {
		return true
	}
	connecting := k.connects && !now.Before(k.host(k.leader).retry[forStamps])
	return !connecting && !now.Before(k.host(leader).retry[forStamps])
}

// confirmed: the leader is still the one that is known. If it says so itself, though a
// connection to it is silent, that connection is broken. A silent or refusing leader is
// doubted again as soon as it is seen to be.
func (k *keeper) confirmed(addr string) {
	_, patience := k.c.stamps.activity()
	limit := max(giveUpFactor*patience, giveUpMin)
	lanes := 0
	for _, l := range k.host(k.leader).lanes {
		if l.pool == k.c.ids {
			continue
		}
		lanes++
		if addr == k.leader && l.silent(k.c.now()) > limit {
			k.giveUp(l)
		}
	}
	if lanes > 0 {
		k.doubt = false
	}
}

// giveUp closes a lane that is silent. Its request is sent again on another one.
func (k *keeper) giveUp(l *lane) {
	l.pool.slower()
	_ = l.conn.Close()
}

// lead makes addr the leader.
func (k *keeper) lead(addr string) {
	if addr == k.leader {
		return
	}
	if k.leader != "" && k.doubt {
		k.host(k.leader).retry[forStamps] = time.Now().Add(backoffMax)
	}
	k.leader, k.connects = addr, true
	k.publish()
	for _, l := range k.lanes(k.c.stamps) {
		if l.addr != addr {
			_ = l.conn.Close() // its request is queued again
		}
	}
	for _, l := range k.lanes(k.c.lone) {
		if l.addr != addr {
			_ = l.conn.Close()
			if k.c.lone.remove(l) { // else who uses it will notice
				k.laneEnded(l, nil)
			}
		}
	}
}

// connect sees to it that there are so many lanes to an address.
func (k *keeper) connect(now time.Time, p *pool, addr string, want int) time.Duration {
	h, at := k.host(addr), p.place()
	have := h.dialing[at]
	for _, l := range h.lanes {
		if l.pool == p {
			have++
		}
	}
	if have >= want {
		return 0
	}
	if wait := h.retry[at].Sub(now); wait > 0 {
		return wait
	}
	for range want - have {
		h.dialing[at]++
		k.c.work.Go(func() { k.c.dial(p, addr) })
	}
	return 0
}

// dial makes a lane.
func (c *Client) dial(p *pool, addr string) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.DialTimeout)
	defer cancel()
	conn, read, err := c.reach(ctx, addr)
	if err == nil {
		// A machine that is frozen accepts connections as well.
		var pong value
		begin := c.now()
		if pong, err = c.introduce(ctx, conn, read, addr, "PING"); err == nil && pong.text != "PONG" {
			err = malformed("%.40q to PING", pong.text)
		}
		if err == nil {
			p.measured(c.now() - begin)
		} else {
			_ = conn.Close()
		}
	}
	if err != nil && c.ctx.Err() == nil {
		c.note(addr, err)
	}
	select {
	case c.events <- func(k *keeper) { k.dialed(p, addr, conn, read, err) }:
	case <-c.ctx.Done():
		if err == nil {
			_ = conn.Close()
		}
	}
}

// dialed takes a connection, or the reason why there is none.
func (k *keeper) dialed(p *pool, addr string, conn net.Conn, read *bufio.Reader, err error) {
	h, at := k.host(addr), p.place()
	h.dialing[at]--
	if k.heard(h, err); err != nil {
		k.failed(h, at)
		return
	}
	if p != k.c.ids && addr != k.leader || p == k.c.ids && !slices.Contains(k.idAddrs(), addr) {
		_ = conn.Close()
		return
	}
	if at == forIDs && h.failures[at] > 0 {
		h.failures[at]-- // one that connects and falls silent, again and again, is tried less often
	}
	l := newLane(p, addr, conn, read)
	h.lanes = append(h.lanes, l)
	if p == k.c.lone {
		p.put(l)
		return
	}
	k.c.work.Go(l.run)
	if l.writes != nil {
		k.c.work.Go(l.write)
	}
	if p == k.c.stamps {
		k.connected(addr)
	}
}

func (k *keeper) connected(addr string) {
	k.doubt = false
	if !k.connects {
		return
	}
	k.connects = false
	select {
	case <-k.c.led:
	default:
		close(k.c.led)
	}
	if k.c.opt.Hooks.Leader != nil {
		k.c.opt.Hooks.Leader(addr)
	}
}

// failed notes that an address cannot be reached, or is of no use.
func (k *keeper) failed(h *host, at int) {
	most := backoffMax
	if at == forIDs && len(k.lanes(k.c.ids)) > 0 {
		most = memberBackoffMax
	}
	if now := time.Now(); !now.Before(h.retry[at]) { // else it is one of several attempts
		h.retry[at] = now.Add(backoffTo(h.failures[at], most))
		h.failures[at]++
	}
	if at == forStamps && h.addr == k.leader {
		k.suspectLeader()
	}
}

// laneEnded is the last event of a lane.
func (k *keeper) laneEnded(l *lane, err error) {
	h, at := k.host(l.addr), l.pool.place()
	h.lanes = slices.DeleteFunc(h.lanes, func(other *lane) bool { return other == l })
	// One that has never answered does not count as a success of the dial, else a node
	// that hangs up at once would be dialed without end.
	switch {
	case at == forIDs && errors.Is(err, net.ErrClosed), !l.answered.Load():
		k.failed(h, at)
	case at != forIDs && l.addr == k.leader:
		k.suspectLeader()
	}
	if at == forIDs && len(k.lanes(k.c.ids)) == 0 {
		for _, h := range k.hosts { // now everyone is needed
			h.failures[forIDs] = min(h.failures[forIDs], 1)
			h.retry[forIDs] = time.Now().Add(backoff(h.failures[forIDs]))
		}
	}
}

// moved: the node at the end of the lane says that another one leads.
func (k *keeper) moved(l *lane, leader string) {
	if l.addr != k.leader {
		_ = l.conn.Close()
		return
	}
	var retry time.Time // at once: a node that does not lead knows better
	if k.moves++; k.moves > movesMax {
		retry = time.Now().Add(backoff(k.moves - movesMax))
	}
	k.host(leader).retry[forStamps] = retry
	k.c.stamps.doubted.Store(true)
	k.lead(leader)
}

// refused: the node at the end of the lane cannot serve now.
func (k *keeper) refused(l *lane) {
	if l.addr == k.leader {
		k.suspectLeader()
	}
}

// recovered: a request was answered, the first one after a doubt.
func (k *keeper) recovered(l *lane) {
	k.c.trouble.Store(nil)
	if l.addr == k.leader {
		k.doubt, k.rounds, k.moves = false, 0, 0
		k.host(l.addr).failures[forStamps] = 0
	}
}
