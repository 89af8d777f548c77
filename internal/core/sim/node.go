package sim

import (
	"slices"
	"strconv"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
)

// node is one machine and its process.
type node struct {
	id   uint64
	slot int // index in world.nodes
	// replica is nil while the process is down.
	replica *replica.Replica
	// session is the number of the process. Events of a session have no effect after it.
	session uint64
	disk    disk
	clock   clock
	// steady is its steady clock. published is what its process knows of the cluster clock, of the
	// cluster publishedBy.
	steady      *steady
	published   interval.Estimate
	publishedBy uint64
	// in is what has arrived. spare is empty: it was that of the latest turn, and becomes the next one, so the memory is reused.
	in, spare *inbox
	// waking is set while a turn is scheduled. awake takes it, unless the process has ended.
	waking bool
	awake  func()
	paused bool
	// deafUntil is until when entries of the log are lost that are sent to it.
	deafUntil time.Duration
	// slowTurns is the number of turns, after a pause, that read only part of what piled up.
	// pauseNext is how long the process will be paused after its next sends, 0 for not.
	slowTurns int
	pauseNext time.Duration
	// level is the newest feature level of its version.
	level uint64
	// founders is its PEERS, nil for a machine that joins.
	founders []oracle.Member
	place    place
	// seed is set on a machine that restores the cluster, lost on one that is gone for good.
	seed *replica.Seed
	lost bool
	// refused is set when its process stopped because it was refused.
	refused bool
	// tampered says what was done to its disk; empty while it is in order.
	tampered string
	// members is the transport's list of peers, voters those with a vote in the latest turn.
	members []replica.Member
	voters  []uint64
	calls   []*call
	// makers are those of its generators by slot, retired those of stopped generators, which
	// other threads may still have.
	ids            idSetup
	makers         []*maker
	retired        []*maker
	workersRefused *oracle.LeaseRefusal
	leaseCalls     []*leaseCall
	timelineCalls  []*timelineChange
	// keeper keeps the locks of Redis libraries, by a session on keeperConn; nil if there are none in the run.
	keeper     *redislock.Keeper
	keeperConn session.Conn
	// began describes the first turn of its process, aheads the readings of its clock, jumps
	// how often the clock may have jumped.
	began  beginning
	aheads []ahead
	jumps  int
	// agreedAt is the log index at which its state was last compared.
	agreedAt uint64
}

// inbox is what has arrived since the latest turn.
type inbox struct {
	persisted    *replica.Write
	messages     []*raftpb.Message
	hellos       []replica.Hello
	gone         []uint64
	refused      []uint64
	requests     []replica.Request
	ticks        int
	transfer     bool
	change       *replica.MemberChange
	clocks       []replica.PeerClock
	behind       uint64
	stopIDs      bool
	stopOwning   bool
	raise        bool
	floor        *replica.FloorRequest
	leases       []replica.LeaseRequest
	timelines    []replica.TimelineRequest
	ownerAsks    []replica.OwnerAsk
	ownerAnswers []replica.OwnerAnswer
	clockAsks    []replica.ClockAsk
	clockAnswers []replica.ClockAnswer
	sessionsGone []session.Conn
	redis        []func()
}

// empty empties an inbox, which keeps its memory.
func (i *inbox) empty() {
	*i = inbox{messages: i.messages[:0], requests: i.requests[:0], clocks: i.clocks[:0]}
}

func (n *node) up() bool { return n.replica != nil }

// knows reports whether o is among the peers that n's transport was given.
func (n *node) knows(o *node) bool {
	if len(n.members) == 0 {
		return true // it joins, and has the addresses of the others
	}
	if n.up() && slices.Contains(n.replica.Strangers(), o.id) {
		return true
	}
	return slices.ContainsFunc(n.members, func(m replica.Member) bool { return m.ID == o.id })
}

// start starts a process from its disk. It must be down: without crash its write would stay in
// flight.
func (w *world) start(n *node) {
	if n.up() {
		panic("sim: started a process that runs")
	}
	if n.lost {
		return
	}
	found, ok := w.openJournal(n)
	if !ok {
		return
	}
	n.session++
	w.setUpAddresses(n)
	own, configured := n.ownAddr()
	d := n.disk.durable
	d.hard, d.snapshot, d.entries = found.HardState, found.Snapshot, found.Entries
	cfg := replica.Config{
		Self: replica.Hello{
			ClusterID: d.cluster, NodeID: n.id, Incarnation: d.incarnation, Boot: d.boot,
			Session: w.rng.Uint64() | 1, ClientAddr: w.clientAddr(n), PeerAddr: own, Configured: configured,
		},
		Founders:  n.founders,
		Seed:      n.seed,
		Level:     n.level,
		HardState: d.hard, Snapshot: d.snapshot, Entries: d.entries,
		EpochTicks:            w.cfg.epochTicks,
		EpochInterval:         w.cfg.epochInterval,
		TickInterval:          w.cfg.tick,
		Interval:              w.interval.length,
		ClockJumpMax:          w.cfg.clockJumpMax,
		ReservationsMissedMax: 20,
		QueueMax:              100,
		RequestTicks:          300,
		SettleTicks:           w.timelines.settleTicks,
		SnapshotEvery:         w.cfg.snapshotEvery,
		Log:                   raftLog{w, n.id},
	}
	w.setUpIDs(n, &cfg)
	if w.observe != nil {
		cfg.Observer = w.observe(cfg)
	}
	r, err := replica.New(cfg)
	if err != nil {
		w.fail("node %d does not start from its disk: %v", n.id, err)
		return
	}
	w.trace("node %d starts, start %d, log to %d", n.id, d.boot, d.lastIndex())
	n.replica, n.calls, n.refused, n.paused, n.pauseNext = r, nil, false, false, 0
	n.in, n.spare = &inbox{}, &inbox{}
	n.members, n.voters = r.Members(), nil
	n.makers, n.retired, n.workersRefused, n.leaseCalls, n.agreedAt = nil, nil, nil, nil, 0
	n.timelineCalls = nil
	w.openKeeper(n)
	n.waking, n.awake, n.published = false, w.turnOf(n, n.session), interval.Estimate{}
	limit := n.began.limit
	if n.began.turn > 0 {
		limit = n.aloneLimit(w) + w.lead()
	}
	n.began = beginning{ceiling: d.reserved(), limit: limit}
	w.wake(n)
	w.tick(n, n.session)
}

func clientAddr(id uint64) string { return "node" + strconv.FormatUint(id, 10) }

// crash kills a process.
func (w *world) crash(n *node) {
	if !n.up() {
		return
	}
	w.trace("node %d dies", n.id)
	if n.tampered != Copy.String() {
		w.endCopies(n)
	}
	w.note('x', n.id)
	n.replica, n.makers, n.retired = nil, nil, nil
	n.session++
	w.disconnect(n)
	w.loseWrite(n)
	for _, c := range n.calls {
		if c != nil {
			w.dropCall(c)
		}
	}
	w.dropTimelineChanges(n)
	w.breakSessions(n)
	for _, k := range n.leaseCalls {
		if k != nil && k.client.call == k {
			k.over, k.client.call = true, nil
		}
	}
}

// tick runs the timer of a process by the machine's clock. After a pause there is one tick at
// most.
func (w *world) tick(n *node, session uint64) {
	w.after(n.clock.toTrue(w.cfg.tick), func() {
		if n.session != session {
			return
		}
		n.in.ticks = 1
		w.wake(n)
		w.tick(n, session)
	})
}

// wake schedules a turn soon, with all that arrives until then.
func (w *world) wake(n *node) {
	if n.waking || n.paused || !n.up() {
		return
	}
	n.waking = true
	delay := w.between(0, 200*time.Microsecond)
	if w.chance(0.001) {
		delay = w.between(0, 20*time.Millisecond)
	}
	w.after(delay, n.awake)
}

// turnOf returns what a process does when it was woken.
func (w *world) turnOf(n *node, session uint64) func() {
	return func() {
		if n.session == session {
			n.waking = false
			w.turn(n)
		}
	}
}

// turn is one turn of a node's loop.
func (w *world) turn(n *node) {
	if n.paused || !n.up() {
		return
	}
	in := w.collect(n)
	wall, mono := n.clock.read(w.now)
	w.turns++
	if b := &n.began; !b.voted {
		b.voted = n.replica.Voters() > 0 // so it looks at its clock in this turn
		b.turn, b.at, b.wall, b.ceiling = w.turns, w.now, wall, max(w.ceiling, b.ceiling)
	}
	w.keepRedisLocks(n, in.redis, mono)
	e := n.replica.Step(&replica.Input{
		Now: uint64(wall), Mono: mono, Steady: n.steady.read(w.now), ClockAsks: in.clockAsks, ClockAnswers: in.clockAnswers, Persisted: in.persisted, Messages: in.messages, Hellos: in.hellos, Gone: in.gone, Refused: in.refused,
		Ticks: in.ticks, Requests: in.requests, Transfer: in.transfer, Change: in.change,
		Clocks: in.clocks, Behind: in.behind, StopIDs: in.stopIDs, StopOwning: in.stopOwning, RaiseLevel: in.raise, RaiseFloor: in.floor, LeaseRequests: in.leases, TimelineRequests: in.timelines, OwnerAsks: in.ownerAsks, OwnerAnswers: in.ownerAnswers,
		SessionsGone: in.sessionsGone,
	})
	in.empty()
	if e.Fatal != nil {
		w.fatal(n, e.Fatal)
		return
	}
	if e.Changed {
		w.noteVoters(n)
	}
	w.inspect(n)
	w.noteClusterClock(n, e)
	w.sendOwners(n, e)
	w.send(n, e.Send)
	if e.Announce {
		w.announce(n)
	}
	if e.SendClock {
		w.sendClock(n)
	}
	if n.pauseNext > 0 && len(e.Send) > 1 {
		w.pause(n, n.pauseNext)
		n.pauseNext = 0
	}
	if e.Write != nil {
		w.write(n, e.Write)
	}
	for _, a := range e.Answers {
		c := n.calls[a.Token]
		n.calls[a.Token] = nil
		w.answer(n, c, a.Err)
	}
	for _, m := range e.Sessions {
		w.tellSession(n, m)
	}
	w.noteFrontiers(n)
	for _, a := range e.LeaseAnswers {
		w.answerLease(n, a)
	}
	for _, a := range e.TimelineAnswers {
		w.timelineChanged(n, a)
	}
	if e.Changed {
		w.memberChange(n)
		w.updateMakers(n)
	}
}

// collect returns what one turn works on: mostly all that has arrived, sometimes part of it, as
// if some sockets were not read yet. The order within a kind is kept.
func (w *world) collect(n *node) *inbox {
	in := n.in
	n.in, n.spare = n.spare, in
	partial, short := w.cfg.partial, 0.5
	if n.slowTurns > 0 {
		n.slowTurns--
		partial, short = 0.7, 0.8
	}
	if !w.chance(partial) {
		return in
	}
	keep := w.rng.IntN(len(in.messages) + 1)
	if w.chance(short) {
		keep = min(keep, w.rng.IntN(3))
	}
	n.in.messages = append(n.in.messages, in.messages[keep:]...)
	in.messages = in.messages[:keep]
	if w.chance(0.3) {
		in.requests, n.in.requests = n.in.requests, in.requests
		in.sessionsGone, n.in.sessionsGone = n.in.sessionsGone, in.sessionsGone
	}
	if w.chance(0.3) {
		in.persisted, n.in.persisted = nil, in.persisted
	}
	w.wake(n)
	return in
}

// memberChange disconnects former members, as a node's transport does.
func (w *world) memberChange(n *node) {
	before := n.members
	n.members = n.replica.Members()
	w.checkRemoved(n, before)
	for _, o := range w.nodes {
		if o != n && !n.knows(o) {
			w.conn(n, o).up = [2]bool{}
		}
	}
}

// inspect checks one node after a turn.
func (w *world) inspect(n *node) {
	s := n.replica.Brief()
	w.note('s', n.id, s.Term, uint64(s.Role), s.Applied, s.Ceiling)
	if s.Serving {
		if s.Time >= s.Ceiling {
			w.fail("I1: node %d is at time %d with ceiling %d", n.id, s.Time, s.Ceiling)
		}
		w.checkOneCluster(n, s.ClusterID)
		if !w.servedBy(s.Term, n.id) {
			w.fail("I2: two nodes serve in term %d, one of them node %d", s.Term, n.id)
		}
	}
	w.agree(n, s)
	w.noteClock(n)
	w.checkRevoked(n)
	w.checkCeiling(n, s.Ceiling)
	w.checkShared(n, n.replica.Timelines().Ceiling)
	queues := n.replica.Queues()
	for i := range queues {
		if q := &queues[i]; q.Length > q.Max {
			w.fail("I7: node %d has %d %s, at most %d are allowed", n.id, q.Length, q.Name, q.Max)
		}
	}
	if w.wiped {
		w.checkKeptOut(n)
	}
}

// servedBy notes that id serves in a term and reports whether no other node did.
func (w *world) servedBy(term, id uint64) bool {
	for uint64(len(w.servers)) <= term {
		w.servers = append(w.servers, 0)
	}
	if w.servers[term] == 0 {
		w.servers[term] = id
		w.stats.Terms++
		w.trace("node %d serves in term %d", id, term)
	}
	return w.servers[term] == id
}

// agree checks that nodes have the same state at the same log index.
func (w *world) agree(n *node, s replica.Brief) {
	if s.Applied == n.agreedAt || s.Forming {
		return
	}
	n.agreedAt = s.Applied
	for uint64(len(w.states)) <= s.Applied {
		w.states = append(w.states, agreed{})
	}
	have := agreed{known: true, ceiling: s.Ceiling, cluster: s.ClusterID, digest: n.replica.Digest()}
	if !w.states[s.Applied].known {
		w.states[s.Applied] = have
	} else if w.states[s.Applied] != have {
		w.fail("node %d has %+v at log index %d, another had %+v", n.id, have, s.Applied, w.states[s.Applied])
	}
}

// agreed is what must be equal on all nodes at one log index.
type agreed struct {
	known            bool
	ceiling, cluster uint64
	digest           uint64
}

// leader returns the node that serves in the highest term, or nil.
func (w *world) leader() *node {
	var best *node
	var term uint64
	for _, n := range w.nodes {
		if !n.up() {
			continue
		}
		if s := n.replica.Brief(); s.Serving && s.Term >= term {
			best, term = n, s.Term
		}
	}
	return best
}

func (w *world) node(id uint64) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// founders returns the initial members of a cluster of that size.
func founders(size int) []oracle.Member {
	var list []oracle.Member
	for id := range uint64(size) {
		list = append(list, oracle.Member{ID: id + 1, PeerAddr: "peer"})
	}
	return list
}

// errConnectionLost is the result of a call to a node that died.
var errConnectionLost = isotone.Errorf(isotone.CodeInternal, "connection lost")
