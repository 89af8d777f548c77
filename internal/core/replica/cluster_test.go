package replica_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
)

const tick = 10 * time.Millisecond

// cluster is a handful of replicas in one goroutine, with a perfect network and
// perfect disks unless a test says otherwise.
type cluster struct {
	t     testing.TB
	nodes map[uint64]*node
	mono  time.Duration
	// drop says whether a message gets lost; nil for none.
	drop func(m *raftpb.Message) bool
	// highest is the largest timestamp that was answered so far.
	highest isotone.Timestamp
	// tell says whether a reading of the cluster clock arrives; nil for always.
	tell  func(from *node, a replica.ClockAnswer) bool
	token uint64
	// fatal takes what ends a node; nil fails the test.
	fatal func(n *node, err error)
}

// node is one member of a test cluster and its disk.
type node struct {
	*replica.Replica
	id         uint64
	cfg        replica.Config
	disk       disk
	inbox      []*raftpb.Message
	clocks     []replica.PeerClock
	hellos     []replica.Hello // admitted, from peers that repeat them
	asks       []replica.ClockAsk
	tells      []replica.ClockAnswer
	ownerAsks  []replica.OwnerAsk
	ownerTells []replica.OwnerAnswer
	// rate is by how many millionths its steady clock is fast, origin by how much it was ahead at first.
	rate, origin int64
	flying       *replica.Write // given out, not durable yet; nil: none
	// stalled keeps writes from becoming durable; down keeps the node from running.
	stalled, down bool
	met           map[uint64]bool // who it is connected to
	// skew is added to this node's wall clock.
	skew    time.Duration
	answers map[uint64]*answered
	rounds  int
	// workers is how many worker leases it is to have; leases are the answers to clients.
	workers int
	leases  []replica.LeaseAnswer
	altered []replica.TimelineAnswer // of timelines
	told    []session.Message        // to clients
	// levelRefused is the latest refusal to raise the feature level.
	levelRefused *isotone.Error
}

type answered struct {
	err    *isotone.Error
	ranges []isotone.Range
	u64    bool
	moved  bool // the floor of the request has moved time
	apart  bool // of a timeline
}

// issued returns the first and the last timestamp of each range.
func (a *answered) issued() (bounds [][2]isotone.Timestamp) {
	for _, r := range a.ranges {
		last := isotone.Timestamp{Time: r.First.Time, Index: r.First.Index + r.Count - 1}
		if a.u64 {
			last = (isotone.Timestamp64From(r.First) + isotone.Timestamp64(r.Count-1)).Timestamp()
		}
		bounds = append(bounds, [2]isotone.Timestamp{r.First, last})
	}
	return bounds
}

func members(n int) []oracle.Member {
	var list []oracle.Member
	for id := range uint64(n) {
		list = append(list, oracle.Member{ID: id + 1, PeerAddr: fmt.Sprintf("peer%d:1", id+1)})
	}
	return list
}

// newCluster starts n nodes with empty disks, which form a cluster. mutate, if not nil,
// changes each node's configuration.
func newCluster(t testing.TB, n int, mutate func(*replica.Config)) *cluster {
	c := unformed(t, n, mutate)
	c.greet()
	c.settle()
	for _, n := range c.nodes {
		if s := n.Status(); s.Forming != "" {
			t.Fatalf("node %d: %s", n.id, s.Forming)
		}
	}
	return c
}

// unformed starts n nodes with empty disks that have not met.
func unformed(t testing.TB, n int, mutate func(*replica.Config)) *cluster {
	c := &cluster{t: t, nodes: map[uint64]*node{}, mono: time.Hour}
	for id := range uint64(n) {
		c.add(id+1, members(n), mutate)
	}
	return c
}

// add starts a node with an empty disk, as a founder, or without founders to join.
func (c *cluster) add(id uint64, founders []oracle.Member, mutate func(*replica.Config)) *node {
	cfg := replica.Config{
		Self: replica.Hello{
			NodeID: id, Incarnation: 1000 + id, ClientAddr: fmt.Sprintf("client%d:1", id), PeerAddr: fmt.Sprintf("peer%d:1", id),
		},
		Founders:              founders,
		EpochTicks:            10,
		EpochInterval:         100 * time.Millisecond,
		TickInterval:          tick,
		ReservationsMissedMax: 100,
		QueueMax:              10000,
		RequestTicks:          500,
		SnapshotEvery:         1000,
		Log:                   quiet{},
	}
	if mutate != nil {
		mutate(&cfg)
	}
	n := &node{id: id}
	cfg.IDClock = func() int64 { return int64((c.mono + n.skew) / time.Millisecond) }
	n.cfg = cfg
	c.nodes[id] = n
	c.start(n)
	return n
}

// start runs a node from its disk. All that was not durable is gone.
func (c *cluster) start(n *node) {
	n.disk.boot++
	cfg := n.cfg
	cfg.Self.Boot, cfg.Self.Session = n.disk.boot, 100*n.id+n.disk.boot
	cfg.Self.ClusterID = n.disk.cluster
	cfg.HardState, cfg.Snapshot, cfg.Entries = n.disk.hard, n.disk.snap, n.disk.entries
	r, err := replica.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	n.Replica, n.down, n.inbox, n.hellos, n.flying, n.answers = r, false, nil, nil, nil, map[uint64]*answered{}
	n.met = map[uint64]bool{}
	for _, o := range c.running() {
		if o != n {
			c.turn(o, &replica.Input{Gone: []uint64{n.id}})
		}
	}
	c.turn(n, &replica.Input{})
}

// greet introduces all running nodes to each other, as their handshakes would.
func (c *cluster) greet() {
	for _, a := range c.running() {
		for _, b := range c.running() {
			if a != b && a.Admit(b.Hello()) == nil && b.Admit(a.Hello()) == nil {
				a.met[b.id], b.met[a.id] = true, true
				c.turn(a, &replica.Input{Hellos: []replica.Hello{b.Hello()}})
			}
		}
	}
}

func (c *cluster) running() []*node {
	var list []*node
	for _, n := range c.nodes {
		if !n.down {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *node) int { return int(a.id) - int(b.id) })
	return list
}

// turn steps one node and carries out its effects, but for durability.
func (c *cluster) turn(n *node, in *replica.Input) {
	in.Mono = c.mono
	in.Now = uint64(c.mono + n.skew)
	in.Steady = n.steady(c.mono)
	in.Clocks = append(in.Clocks, n.clocks...)
	in.ClockAsks, in.ClockAnswers = append(in.ClockAsks, n.asks...), append(in.ClockAnswers, n.tells...)
	in.OwnerAsks, in.OwnerAnswers = append(in.OwnerAsks, n.ownerAsks...), append(in.OwnerAnswers, n.ownerTells...)
	n.clocks, n.asks, n.tells, n.ownerAsks, n.ownerTells = nil, nil, nil, nil, nil
	e := n.Step(in)
	switch {
	case e.Fatal == nil:
	case c.fatal != nil:
		n.down = true
		c.fatal(n, e.Fatal)
		return
	default:
		c.t.Fatalf("node %d: %v", n.id, e.Fatal)
	}
	for _, m := range e.Send {
		if to := c.nodes[m.GetTo()]; to != nil && !to.down && (c.drop == nil || !c.drop(m)) {
			to.inbox = append(to.inbox, m)
		}
	}
	for _, q := range e.AskClock {
		if to := c.reached(n, q.Peer); to != nil {
			to.asks = append(to.asks, replica.ClockAsk{Peer: n.id, Nonce: q.Nonce})
		}
	}
	for _, q := range e.AskVoters {
		if to := c.reached(n, q.Peer); to != nil {
			q.Peer = n.id
			to.ownerAsks = append(to.ownerAsks, q)
		}
	}
	for _, a := range e.TellOwners {
		if to := c.reached(n, a.Peer); to != nil {
			a.Peer = n.id
			to.ownerTells = append(to.ownerTells, a)
		}
	}
	for _, a := range e.TellClock {
		if to := c.reached(n, a.Peer); to != nil && (c.tell == nil || c.tell(n, a)) {
			to.tells = append(to.tells, replica.ClockAnswer{Peer: n.id, Nonce: a.Nonce, Reading: a.Reading})
		}
	}
	if e.SendClock {
		for _, to := range c.running() {
			if to != n && to.met[n.id] && n.met[to.id] && (c.drop == nil || !c.drop(&raftpb.Message{From: new(n.id), To: new(to.id)})) {
				to.clocks = append(to.clocks, replica.PeerClock{ID: n.id, Wall: int64(in.Now)})
			}
		}
	}
	if e.Announce {
		for _, to := range c.running() {
			if h := n.Hello(); to != n && n.met[to.id] && to.met[n.id] && to.Admit(h) == nil {
				to.hellos = append(to.hellos, h)
			}
		}
	}
	for _, a := range e.Answers {
		n.answers[a.Token].err, n.answers[a.Token].moved = a.Err, a.Moved
		if a.Err == nil && !n.answers[a.Token].apart {
			c.check(n.answers[a.Token])
		}
		n.answers[a.Token].done()
	}
	if in.RaiseLevel {
		n.levelRefused = e.LevelRefused
	}
	n.rounds += len(e.Rounds)
	n.leases = append(n.leases, e.LeaseAnswers...)
	n.altered = append(n.altered, e.TimelineAnswers...)
	n.told = append(n.told, e.Sessions...)
	if e.Write != nil {
		if n.flying != nil {
			c.t.Fatalf("node %d gives out a write while another is under way", n.id)
		}
		n.flying = e.Write
	}
}

// steady returns what the steady clock of a node shows. It differs from the cluster's by rate only.
func (n *node) steady(mono time.Duration) int64 {
	return n.origin + int64(mono) + int64(mono-time.Hour)*n.rate/1_000_000
}

// setRate changes the rate of the steady clock of a node.
func (c *cluster) setRate(n *node, rate int64) {
	before := n.steady(c.mono)
	n.rate = rate
	n.origin += before - n.steady(c.mono)
}

// reached returns a node if something that is sent to it arrives, or nil.
func (c *cluster) reached(from *node, id uint64) *node {
	to := c.nodes[id]
	if to == nil || to.down || c.drop != nil && c.drop(&raftpb.Message{From: new(from.id), To: new(id)}) {
		return nil
	}
	return to
}

func (a *answered) done() {
	if a.err == nil {
		a.err = isotone.Errorf("ok", "ok")
	}
}

// check asserts that answers come in strictly increasing order. One goroutine runs
// the whole cluster, so the order of answers is their real-time order.
func (c *cluster) check(a *answered) {
	for _, r := range a.issued() {
		if !c.highest.Before(r[0]) {
			c.t.Fatalf("I3/I4: %v was answered after %v", r[0], c.highest)
		}
		c.highest = r[1]
	}
}

// settle delivers messages and makes writes durable until nothing is left to do.
func (c *cluster) settle() {
	for c.pass() {
	}
}

// pass does so once for each node, and reports whether there was anything to do.
func (c *cluster) pass() (busy bool) {
	for _, n := range c.running() {
		in := &replica.Input{Messages: n.inbox, Hellos: n.hellos}
		n.inbox, n.hellos = nil, nil
		asked := len(n.asks)+len(n.tells)+len(n.ownerAsks)+len(n.ownerTells) > 0
		if !n.stalled && n.flying != nil {
			n.disk.save(n.flying)
			in.Persisted, n.flying = n.flying, nil
		}
		if len(in.Messages)+len(in.Hellos) > 0 || in.Persisted != nil || asked {
			busy = true
			c.turn(n, in)
		}
	}
	return busy
}

// passes lets time go on by as much, in steps, and delivers messages after each.
func (c *cluster) passes(total, step time.Duration) {
	for ; total > 0; total -= step {
		c.mono += step
		c.pass()
	}
}

// flush makes what a node has given out durable, and what comes of that, and returns it.
func (c *cluster) flush(n *node) (list []*replica.Write) {
	for n.flying != nil {
		w := n.flying
		n.disk.save(w)
		n.flying, list = nil, append(list, w)
		c.turn(n, &replica.Input{Persisted: w})
	}
	return list
}

// tick lets ticks pass on all running nodes.
func (c *cluster) tick(count int) {
	for range count {
		c.mono += tick
		for _, n := range c.running() {
			c.turn(n, &replica.Input{Ticks: 1})
		}
		c.settle()
	}
}

// ask submits requests to a node and returns their token.
func (c *cluster) ask(n *node, counts ...uint64) uint64 {
	return c.askMode(n, isotone.ReadQuorum, counts...)
}

func (c *cluster) askMode(n *node, mode isotone.ReadMode, counts ...uint64) uint64 {
	return c.askAbove(n, mode, isotone.Timestamp{}, counts...)
}

// askAbove submits requests with the floor of a client.
func (c *cluster) askAbove(n *node, mode isotone.ReadMode, floor isotone.Timestamp, counts ...uint64) uint64 {
	return c.request(n, replica.Request{Mode: mode, Floor: floor, Raise: true, Counts: counts})
}

// ask64 is askMode for 64-bit timestamps.
func (c *cluster) ask64(n *node, mode isotone.ReadMode, counts ...uint64) uint64 {
	return c.request(n, replica.Request{Mode: mode, U64: true, Counts: counts})
}

// request submits a request without token and ranges.
func (c *cluster) request(n *node, q replica.Request) uint64 {
	c.token++
	q.Token, q.Ranges = c.token, make([]isotone.Range, len(q.Counts))
	n.answers[c.token] = &answered{ranges: q.Ranges, u64: q.U64, apart: q.Timeline != ""}
	c.turn(n, &replica.Input{Requests: []replica.Request{q}})
	return c.token
}

// outcome returns "ok", an error code, or "" while there is no answer.
func (n *node) outcome(token uint64) isotone.Code {
	if a := n.answers[token]; a.err != nil {
		return a.err.Code
	}
	return ""
}

// leader ticks until some node serves that is none of the given ones, and returns it.
func (c *cluster) leader(not ...*node) *node {
	c.t.Helper()
	for range 500 {
		for _, n := range c.running() {
			if n.Status().Serving && !slices.Contains(not, n) {
				return n
			}
		}
		c.tick(1)
	}
	c.t.Fatal("no leader after 500 ticks")
	return nil
}

// must asks a node for one timestamp and returns it.
func (c *cluster) must(n *node) isotone.Timestamp {
	c.t.Helper()
	token := c.ask(n, 1)
	c.settle()
	if got := n.outcome(token); got != "ok" {
		c.t.Fatalf("node %d answered %q", n.id, got)
	}
	return n.answers[token].ranges[0].First
}

// isolate cuts the given nodes off from all others; no nodes heals.
func (c *cluster) isolate(ids ...uint64) {
	if len(ids) == 0 {
		c.drop = nil
		return
	}
	c.drop = func(m *raftpb.Message) bool {
		return slices.Contains(ids, m.GetFrom()) != slices.Contains(ids, m.GetTo())
	}
}

// quiet is a raft.Logger that keeps only what must not be missed.
type quiet struct{}

var _ raft.Logger = quiet{}

func (quiet) Debug(...any)            {}
func (quiet) Debugf(string, ...any)   {}
func (quiet) Info(...any)             {}
func (quiet) Infof(string, ...any)    {}
func (quiet) Warning(...any)          {}
func (quiet) Warningf(string, ...any) {}
func (quiet) Error(...any)            {}
func (quiet) Errorf(string, ...any)   {}
func (quiet) Fatal(v ...any)          { panic(fmt.Sprint(v...)) }
func (quiet) Fatalf(f string, v ...any) {
	panic(fmt.Sprintf(f, v...))
}
func (quiet) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
