package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/search"
)

// Clients that find the leader with the code of production (internal/core/search), and keep their
// floors by it. Each has a source of randomness of its own, one connection, and one request, which
// it sends until that is answered, or it has waited for long enough.
//
// A process that has died refuses connections, and ends those that it had; a machine that is down
// says nothing. One that is paused is slow.

const (
	// dialTimeout is how long a client waits for a connection, or for an answer about the cluster,
	// as production does. It tries that many times within.
	dialTimeout  = time.Second
	dialAttempts = 10
	// giveUpFactor times its patience, and giveUpMin at least, a client waits for an answer on a
	// connection to a node that says on another one that it leads.
	giveUpFactor = 10
	giveUpMin    = time.Second
)

// searcher is what such a client knows.
type searcher struct {
	client *client
	rng    *rand.Rand
	// process is the number of its process. Events of a process have no effect after it.
	process int
	search  *search.Search
	floor   search.Floor
	given   []string // addresses that it was started with
	// told are the members that a leader has named last, at toldAt.
	told   []string
	toldAt time.Duration
	// well is since when it has been answered again and again, and latest when it was last.
	well, latest time.Duration
	want         *call // to be answered; nil: none
	line         *line // to the leader; nil: none
	dialing      map[string]bool
	// patience is how long an answer takes at most, before the leader is suspected.
	patience time.Duration
	due      time.Duration // of the next step
	answers  int           // since the last fault
}

// line is a connection to a process.
type line struct {
	addr     string
	node     *node
	session  uint64
	call     *call // under way; nil: none
	since    time.Duration
	answered bool
	refusals int           // in a row
	resume   time.Duration // the pause after them
}

// newSearcher makes every second client that is asked for search; it returns nil for the others, which go to new
// leaders before the former ones refuse them.
func (w *world) newSearcher(c *client) *searcher {
	s := &searcher{client: c, rng: rand.New(rand.NewPCG(w.seed, 0x5ea7c4<<8|c.id))}
	if s.rng.IntN(2) == 0 {
		return nil
	}
	s.patience = w.cfg.tick + time.Duration(s.rng.Int64N(int64(20*w.cfg.tick)))
	w.beginSearch(s)
	return s
}

// beginSearch starts a process, which is given the addresses of some nodes, and the floor of the last one.
func (w *world) beginSearch(s *searcher) {
	s.process++
	s.given = nil
	least := s.rng.IntN(len(w.nodes))
	for i, n := range w.nodes {
		if i == least || s.rng.IntN(3) == 0 {
			s.given = append(s.given, w.clientAddr(n))
		}
	}
	s.search = search.New(s.given, func(below time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(below))) })
	s.told, s.toldAt, s.line, s.dialing, s.due = nil, w.now, nil, map[string]bool{}, 0
	w.seek(s)
}

// moveClients starts the processes of all such clients again: their addresses have become useless.
func (w *world) moveClients() {
	for _, c := range w.clients {
		if c.searcher != nil {
			w.beginSearch(c.searcher)
		}
	}
}

// clientAddr returns where clients find a machine: by a name, or at an address that changes.
func (w *world) clientAddr(n *node) string {
	if w.addresses.moves {
		return "client." + n.place.addr
	}
	return clientAddr(n.id)
}

// machineAt returns the machine at a client address, or nil.
func (w *world) machineAt(addr string) *node {
	for _, n := range w.nodes {
		if n.tampered != Copy.String() && w.clientAddr(n) == addr {
			return n
		}
	}
	return nil
}

// isSilent reports whether the machine, and not only the process, is down while that is.
func (n *node) isSilent() bool { return n.lost || n.session>>1&1 == 0 }

// later schedules an event of the present process.
func (w *world) later(s *searcher, d time.Duration, do func()) {
	process := s.process
	w.after(d, func() {
		if s.process == process {
			do()
		}
	})
}

func (s *searcher) transit() time.Duration {
	return 20*time.Microsecond + time.Duration(s.rng.Int64N(int64(time.Millisecond)))
}

// seek does what is due, as the router of production does.
func (w *world) seek(s *searcher) {
	if s.want == nil {
		return
	}
	next := time.Duration(0)
	sooner := func(wait time.Duration) {
		if next == 0 || wait > 0 && wait < next {
			next = wait
		}
	}
	if l := s.line; l != nil && l.call != nil {
		rest := l.since + s.patience - w.now
		if rest <= 0 {
			s.search.Suspect(l.addr)
			rest = s.patience
		}
		sooner(rest)
	}
	addrs, wait := s.search.Ask(w.now)
	if len(addrs) > 0 {
		s.well = w.now // it searches, and the time until it asks although all is well begins anew
	}
	if sooner(wait); len(addrs) > 0 {
		s.search.Forget(func(addr string) bool { return s.dialing[addr] || s.line != nil && s.line.addr == addr })
	}
	for _, addr := range addrs {
		w.ask(s, addr)
	}
	leader := s.search.Leader()
	if s.search.Refresh(w.now) {
		w.question(s, leader)
	}
	switch l := s.line; {
	case leader == "", l == nil && s.dialing[leader]:
	case l == nil:
		if wait := s.search.DialWait(leader, search.Stamps, w.now); wait > 0 {
			sooner(wait)
		} else {
			w.dialLeader(s, leader)
		}
	case l.call == nil && w.now < l.resume:
		sooner(l.resume - w.now)
	case l.call == nil:
		w.submit(s, l)
		sooner(s.patience)
	}
	if next > 0 && (s.due <= w.now || s.due > w.now+next) {
		due := w.now + next
		s.due = due
		w.later(s, next, func() {
			if s.due == due {
				w.seek(s)
			}
		})
	}
}

// reach calls then with the machine at an address when that answers, or with nil.
func (w *world) reach(s *searcher, addr string, attempts int, then func(*node)) {
	w.later(s, s.transit(), func() {
		switch n := w.machineAt(addr); {
		case n != nil && n.up() && !n.paused:
			then(n)
		case n != nil && !n.up() && !n.isSilent(), attempts == 0:
			w.later(s, s.transit(), func() { then(nil) })
		default:
			w.later(s, dialTimeout/dialAttempts, func() { w.reach(s, addr, attempts-1, then) })
		}
	})
}

// question asks a node for the leader and the members, unless it is asked already.
func (w *world) question(s *searcher, addr string) {
	if s.search.Question(addr, w.now) {
		w.ask(s, addr)
	}
}

// ask asks a node, which answers with what it knows now.
func (w *world) ask(s *searcher, addr string) {
	w.reach(s, addr, dialAttempts, func(n *node) {
		if n == nil {
			s.search.Answered(addr)
			s.search.Reported(addr, search.Unreachable, w.now)
			w.seek(s)
			return
		}
		v, session, leads := w.view(n), n.session, w.leader() == n
		w.later(s, s.transit(), func() {
			s.search.Answered(addr)
			s.search.Reported(addr, search.Ours, w.now)
			if v.Leader != "" {
				if v.Leader == addr {
					s.toldAt = w.now
				}
				if leads {
					s.told = v.Members
				}
				w.heard(s, v, &line{addr: addr, node: n, session: session})
			}
			w.seek(s)
		})
	})
}

// view returns what a node says of the cluster, as CLUSTER SLOTS does. There is no leader in it while
// it knows none, or not where that is.
func (w *world) view(n *node) (v search.View) {
	leader := n.replica.Brief().Leader
	for _, m := range n.replica.Members() {
		addr := m.ClientAddr
		if m.ID == n.id {
			addr = cmp.Or(addr, w.clientAddr(n))
		}
		if addr == "" {
			continue
		}
		if v.Members = append(v.Members, addr); m.ID == leader {
			v.Leader = addr
		}
	}
	return v
}

// heard handles what a node says. The connection to it may become the one for requests.
func (w *world) heard(s *searcher, v search.View, asked *line) {
	switch s.search.Heard(asked.addr, v, w.now) {
	case search.Confirmed:
		if l := s.line; l != nil {
			if l.call != nil && w.now-l.since > max(giveUpFactor*s.patience, giveUpMin) {
				w.lose(s)
			}
			s.search.Confirm()
		}
	case search.Followed:
		w.stats.Followed++
		if s.line != nil {
			w.lose(s)
		}
	}
	leads := v.Leader == asked.addr && s.search.Leader() == asked.addr
	if leads && s.search.Suspects() && s.line == nil && !s.dialing[asked.addr] && s.search.DialWait(asked.addr, search.Stamps, w.now) <= 0 {
		s.line = asked
		s.search.Connected()
	}
}

// dialLeader opens a connection for requests.
func (w *world) dialLeader(s *searcher, addr string) {
	s.dialing[addr] = true
	w.reach(s, addr, dialAttempts, func(n *node) {
		if n == nil {
			w.dialed(s, addr, nil)
			return
		}
		l := &line{addr: addr, node: n, session: n.session}
		w.later(s, s.transit(), func() { w.dialed(s, addr, l) })
	})
}

// dialed handles a new connection; nil is none.
func (w *world) dialed(s *searcher, addr string, l *line) {
	delete(s.dialing, addr)
	if l == nil {
		s.search.Reported(addr, search.Unreachable, w.now)
		s.search.Failed(addr, search.Stamps, s.search.DialPauseMax(w.now), w.now)
	} else if s.search.Reported(addr, search.Ours, w.now); addr == s.search.Leader() && s.line == nil {
		s.line = l
		if s.search.Connected() {
			w.question(s, addr)
		}
	}
	w.seek(s)
}

// lose records that the connection has ended. Its request is sent again.
func (w *world) lose(s *searcher) {
	l := s.line
	if s.line = nil; l.answered {
		s.search.Suspect(l.addr)
	} else {
		s.search.Failed(l.addr, search.Stamps, search.PauseMax, w.now)
	}
}

// submit sends the request on a connection.
func (w *world) submit(s *searcher, l *line) {
	k := *s.want
	k.line, k.ranges = l, make([]isotone.Range, len(k.counts))
	k.sent, k.earliest = s.floor.Last, w.interval.earliest
	k.floor = search.Carried(k.sent, isotone.Timestamp{}, l.answered)
	if !l.answered && k.floor.Before(s.client.seen) {
		w.fail("I13: client %d tells a node the floor %v, though it has received %v", s.client.id, k.floor, s.client.seen)
	}
	l.call, l.since = &k, w.now
	w.after(s.transit(), func() {
		if l.node.session == l.session {
			w.arrive(l.node, &k)
		} else {
			w.dropCall(&k)
		}
	})
}

// served handles the answer to a request that was sent on a connection.
func (w *world) served(k *call, err *isotone.Error) {
	l, s := k.line, k.client.searcher
	if s.line != l || l.call != k {
		return // the connection was closed
	}
	l.call = nil
	switch {
	case err == nil:
		l.answered, l.refusals = true, 0
		s.search.Recovered(l.addr)
		w.noteServed(s)
		if s.want != nil && s.want.op == k.op {
			w.take(k)
			w.goOn(s)
		}
	case err == errConnectionLost:
		w.lose(s)
	case err.Leader != "" && err.Leader != l.addr:
		if s.search.Moved(l.addr, err.Leader, w.now) {
			w.stats.Followed++
			w.lose(s)
		} else {
			s.line = nil
		}
	case err.Code == isotone.CodeNotLeader, err.Code == isotone.CodeNoLeader, err.Code == isotone.CodeOverloaded:
		s.search.Suspect(l.addr)
		l.resume = w.now + search.Jitter(func(below time.Duration) time.Duration { return below / 2 }).Pause(l.refusals, search.PauseMax)
		l.refusals++
	default:
		w.goOn(s) // refused for good
	}
	w.seek(s)
}

// goOn has the client go on to its next request, though the last one may be under way.
func (w *world) goOn(s *searcher) {
	s.want = nil
	w.runClient(s.client)
}

// noteServed notes that a request was answered. Then the client asks for the members now and then.
func (w *world) noteServed(s *searcher) {
	s.answers++
	const most = 4 * search.RefreshInterval // a question that a crash leaves without an answer is repeated after one
	if w.now-s.latest > search.RefreshInterval {
		s.well = w.now
	}
	if s.latest = w.now; w.now-max(s.toldAt, s.well) > most {
		w.fail("liveness: client %d has not heard of the members for %v, though requests are answered", s.client.id, most)
	}
}

// checkOrder checks that the client may use an answer, by its own floor.
func (w *world) checkOrder(k *call, r isotone.Range) {
	if s := k.client.searcher; s != nil && !s.floor.Raise(k.sent, r.First, r.Last()) {
		w.fail("I4, I13: client %d rejects %v, as it had received %v before it sent the request", s.client.id, r.First, k.sent)
	}
}

// canFind reports whether a client can find the leader: it was told of some member, when it was started
// or by a leader, whose machine is still there.
func (w *world) canFind(s *searcher) bool {
	l := w.leader()
	return l != nil && slices.ContainsFunc(slices.Concat(s.given, s.told), func(addr string) bool {
		n := w.machineAt(addr)
		return n != nil && n.up() && slices.ContainsFunc(l.replica.Members(), func(m replica.Member) bool {
			return m.ID == n.id && m.Incarnation == n.disk.durable.incarnation // and not wiped
		})
	})
}
