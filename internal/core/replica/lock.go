package replica

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/session"
)

// Locks. Who holds which is in the log ([oracle.Holds]); who waits is in the memory of the leader. A lock is granted without a round: a
// leader that is deposed commits nothing, and nobody is told of a grant before it is applied (R6).

const (
	// waitersMax and nameWaitersMax bound the waiters, of all locks and of one.
	waitersMax, nameWaitersMax = 20_000, 1000
	// lockChangesMax bounds the changes that are not proposed yet.
	lockChangesMax = 2 * oracle.HoldsMax
)

// waiter is a session that waits for a lock.
type waiter struct {
	session session.ID
	ticket  isotone.Timestamp
	ttl     time.Duration
	value   string
	clock   uint64        // what the cluster clock showed when it came
	since   time.Duration // when it came, by the steady clock
}

// locks are what a leader knows of locks beside the log.
type locks struct {
	*facts
	leading *leading
	// waiters are those of each lock, by ticket; waits are the locks for which a session waits.
	waiters map[string][]waiter
	waits   map[session.ID]map[string]struct{}
	count   int // of waiters
	// upcoming are the locks with changes that are not applied. The leader alone changes locks in its term, so it knows what comes of them.
	upcoming map[string]*upcomingHold
	// claiming are the names that a session has claimed, claims how many claims there are, and releasing how many holds a session has released; none of these is applied.
	claiming  map[session.ID][]string
	claims    int
	releasing map[session.ID]int
	// ready are locks with waiters that may be free, in the order in which they became so; isReady are those.
	ready   []string
	isReady map[string]struct{}
	// batch are changes that are to be proposed, in their order.
	batch []oracle.HoldChange
}

// upcomingHold is who holds a lock once so many changes are applied: nobody, if hold is zero.
type upcomingHold struct {
	hold    oracle.Hold
	changes int
	// asked and claimed are when the latest claim was asked for, and when it was proposed.
	asked, claimed time.Duration
}

func newLocks(r *Replica) locks {
	return locks{
		facts: &r.facts, leading: &r.leading, waiters: map[string][]waiter{}, waits: map[session.ID]map[string]struct{}{},
		upcoming: map[string]*upcomingHold{}, claiming: map[session.ID][]string{}, releasing: map[session.ID]int{}, isReady: map[string]struct{}{},
	}
}

// request carries out what a session asks for, or returns why not.
func (l *locks) request(id session.ID, s *session.Request) *isotone.Error {
	q := s.Lock
	switch {
	case q.Name == "" || len(q.Name) > oracle.LockNameMax || len(q.Value) > oracle.LockValueMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "a lock has a name of 1 to %d bytes and a value of at most %d", oracle.LockNameMax, oracle.LockValueMax)
	case l.state.CurrentLevel() < oracle.HoldLevel:
		return isotone.Errorf(isotone.CodeInvalidArgument, "locks need feature level %d, and the cluster is at level %d; once all nodes run this version, run isotone upgrade finalize",
			oracle.HoldLevel, l.state.CurrentLevel())
	}
	switch q.Op {
	case session.LockAcquire, session.LockTry:
		return l.acquire(id, s)
	case session.LockCancel:
		l.remove(id, q.Name)
		l.tell(id, session.Message{Kind: session.MessageReleased, Name: q.Name})
	case session.LockRelease:
		return l.release(id, q)
	}
	return nil
}

// acquire has a session wait for a lock.
func (l *locks) acquire(id session.ID, s *session.Request) *isotone.Error {
	q := s.Lock
	holder := l.holder(q.Name)
	held := holder.Token != 0
	at := slices.IndexFunc(l.waiters[q.Name], func(w waiter) bool { return w.session == id })
	switch {
	case held && holder.Session == uint64(id):
		return nil // the answer shows it, or it will be told
	case at >= 0:
		l.tell(id, session.Message{Kind: session.MessageQueued, Name: q.Name, Ticket: l.waiters[q.Name][at].ticket})
		return nil
	case q.Op == session.LockTry && (held || len(l.waiters[q.Name]) > 0):
		s.Reply.Outcome = session.Locked
		return nil
	case l.count >= waitersMax || len(l.waiters[q.Name]) >= nameWaitersMax || !held && l.state.Holds.Len()+l.claims >= oracle.HoldsMax:
		return isotone.ErrOverloaded
	}
	quota := l.leading.sessions.table.Quota(id)
	if err := quota.OverLocks(l.countOf(id)); err != nil {
		return err
	}
	if q.Ticket == (isotone.Timestamp{}) {
		r, err := l.leading.alloc.Next(1)
		if err != nil {
			return isotone.ErrOverloaded
		}
		q.Ticket = r.First
	}
	l.add(q.Name, waiter{session: id, ticket: q.Ticket, ttl: l.leading.sessions.table.TTL(id), value: q.Value, since: l.mono, clock: l.leading.arrivalClock(Request{U64: true})})
	l.tell(id, session.Message{Kind: session.MessageQueued, Name: q.Name, Ticket: q.Ticket})
	return nil
}

// countOf returns how many locks a session has or waits for. One that it has released does not count.
func (l *locks) countOf(id session.ID) int {
	n := l.state.Holds.Count(uint64(id)) + len(l.claiming[id]) + len(l.waits[id])
	if mutant.On(mutant.QuotaOfReleased) {
		return n
	}
	return n - l.releasing[id]
}

// release frees a lock that a session holds. Any other is not touched (R7).
func (l *locks) release(id session.ID, q *session.LockRequest) *isotone.Error {
	have, held := l.state.Holds.Get(q.Name)
	switch {
	case !held || have.Session != uint64(id) || have.Token != q.Token && !mutant.On(mutant.ReleaseByName):
		l.tell(id, session.Message{Kind: session.MessageReleased, Name: q.Name, Token: q.Token})
	case l.holder(q.Name) != have: // it is being released, and will be told
	case len(l.batch) >= lockChangesMax:
		return isotone.ErrOverloaded
	default:
		l.change(oracle.HoldChange{Kind: oracle.HoldRelease, Hold: have})
	}
	return nil
}

// holder returns who holds a lock once all changes are applied; the zero Hold: nobody.
func (l *locks) holder(name string) oracle.Hold {
	if u := l.upcoming[name]; u != nil {
		return u.hold
	}
	h, _ := l.state.Holds.Get(name)
	return h
}

// shows reports whether answers show a hold. Once its release is proposed it is nobody's (R7).
func (l *locks) shows(h oracle.Hold) bool {
	return l.holder(h.Name) == h || mutant.On(mutant.AnswerWhileReleasing)
}

// change notes a change that is to be proposed. Whoever waits for a lock that it frees may claim it at once: that claim is behind it in the log.
func (l *locks) change(c oracle.HoldChange) {
	l.batch = append(l.batch, c)
	name := c.Hold.Name
	u := l.upcoming[name]
	if u == nil {
		u = &upcomingHold{}
		l.upcoming[name] = u
	}
	u.changes++
	if c.Kind == oracle.HoldClaim {
		u.hold = c.Hold
		l.claims++
		id := session.ID(c.Hold.Session)
		l.claiming[id] = append(l.claiming[id], name)
		return
	}
	u.hold = oracle.Hold{}
	l.releasing[session.ID(c.Hold.Session)]++
	if len(l.waiters[name]) > 0 && !mutant.On(mutant.LostWakeup) {
		l.mayBeFree(name)
	}
}

// end frees all locks of a session that is condemned, and reports whether any has to be applied.
func (l *locks) end(id session.ID) bool {
	names := slices.Clone(l.claiming[id])
	for _, h := range l.state.Holds.Of(uint64(id)) {
		names = append(names, h.Name)
	}
	for _, name := range names {
		if h := l.holder(name); h.Session == uint64(id) && h.Token != 0 {
			l.change(oracle.HoldChange{Kind: oracle.HoldRelease, Hold: h})
		}
	}
	return len(names) > 0
}

// add adds a waiter, in the order of the tickets.
func (l *locks) add(name string, w waiter) {
	at, _ := slices.BinarySearchFunc(l.waiters[name], w, func(a, b waiter) int { return cmp.Or(a.ticket.Compare(b.ticket), cmp.Compare(a.session, b.session)) })
	if mutant.On(mutant.LastInFirstOut) {
		at = 0
	}
	l.waiters[name] = slices.Insert(l.waiters[name], at, w)
	if l.waits[w.session] == nil {
		l.waits[w.session] = map[string]struct{}{}
	}
	l.waits[w.session][name] = struct{}{}
	l.count++
	l.mayBeFree(name)
}

// remove removes a waiter, if there is one.
func (l *locks) remove(id session.ID, name string) {
	at := slices.IndexFunc(l.waiters[name], func(w waiter) bool { return w.session == id })
	if at < 0 {
		return
	}
	if l.waiters[name] = slices.Delete(l.waiters[name], at, at+1); len(l.waiters[name]) == 0 {
		delete(l.waiters, name)
	}
	if delete(l.waits[id], name); len(l.waits[id]) == 0 {
		delete(l.waits, id)
	}
	l.count--
}

// stopWaiting removes a session from all queues: its connection has ended, and over the next one it asks again, with its tickets.
func (l *locks) stopWaiting(id session.ID) {
	for name := range l.waits[id] { // order-free: each by itself
		l.remove(id, name)
	}
}

// step grants what is free, and proposes all changes.
func (l *locks) step() {
	for len(l.ready) > 0 && l.canClaim() && l.grant(l.ready[0]) {
		delete(l.isReady, l.ready[0])
		l.ready = l.ready[1:]
	}
	for len(l.batch) > 0 {
		n := min(len(l.batch), oracle.HoldChangesMax)
		if !l.leading.tail.propose(oracle.Command{Kind: oracle.KindHold, Holds: l.batch[:n]}) {
			return // the next step tries again
		}
		l.batch = l.batch[n:]
	}
	l.batch = nil
}

// mayBeFree notes that a lock with waiters may be free.
func (l *locks) mayBeFree(name string) {
	if _, ok := l.isReady[name]; !ok {
		l.ready, l.isReady[name] = append(l.ready, name), struct{}{}
	}
}

// canClaim reports whether any lock can be claimed now. In a restored cluster, holders of the former one may believe in theirs for a minute. The clocks count, too, as a floor
// moves oracle time.
func (l *locks) canClaim() bool {
	from := l.state.ClaimsFrom()
	return (from == 0 || min(l.leading.alloc.Time(), l.leading.clocks.time()) >= from) && l.state.Holds.Len()+l.claims < oracle.HoldsMax && len(l.batch) < lockChangesMax
}

// grant claims a lock for whoever has waited for the longest time, if it is free. It reports false if there is no time for a token yet.
func (l *locks) grant(name string) bool {
	list := l.waiters[name]
	if len(list) == 0 || l.holder(name).Token != 0 && !mutant.On(mutant.GrantUnchecked) {
		return true
	}
	w := list[0]
	r, hold, err := l.leading.next64(1, w.clock)
	if hold || err != nil {
		return false
	}
	l.remove(w.session, name)
	token := isotone.Timestamp64From(r.First)
	l.change(oracle.HoldChange{Kind: oracle.HoldClaim, Hold: oracle.Hold{
		Name: name, Session: uint64(w.session), Token: token, TTL: w.ttl, Value: w.value,
	}})
	u := l.upcoming[name]
	u.asked, u.claimed = w.since, l.mono
	if mutant.On(mutant.TokenBeforeCommit) {
		l.tell(w.session, session.Message{Kind: session.MessageGranted, Name: name, Token: token})
	}
	return true
}

// applied is called when changes, proposed in term, are applied. freed are the holds that have ended by them.
func (l *locks) applied(term uint64, changes []oracle.HoldChange, freed []oracle.Hold) {
	if term != l.term || l.leading.sessions.table == nil {
		return
	}
	for _, c := range changes {
		name := c.Hold.Name
		if u := l.upcoming[name]; u != nil {
			if c.Kind == oracle.HoldClaim && c.Hold.Token == u.hold.Token {
				l.effects.Grants = append(l.effects.Grants, Grant{Waited: l.mono - u.asked, Committed: l.mono - u.claimed})
			}
			if u.changes--; u.changes == 0 {
				delete(l.upcoming, name)
			}
		}
		switch {
		case c.Kind == oracle.HoldClaim:
			id := session.ID(c.Hold.Session)
			l.claims--
			if l.claiming[id] = slices.DeleteFunc(l.claiming[id], func(claimed string) bool { return claimed == name }); len(l.claiming[id]) == 0 {
				delete(l.claiming, id)
			}
			l.tell(id, session.Message{Kind: session.MessageGranted, Name: name, Token: c.Hold.Token})
		case len(freed) > 0 && freed[0].Name == name: // its entry does not say whose it was
			l.freed(freed[0])
			freed = freed[1:]
		}
	}
}

// freed is called when the end of a hold is applied.
func (l *locks) freed(h oracle.Hold) {
	id, table := session.ID(h.Session), l.leading.sessions.table
	if l.releasing[id]--; l.releasing[id] == 0 {
		delete(l.releasing, id)
	}
	if !mutant.On(mutant.ReleaseUntold) {
		l.tell(id, session.Message{Kind: session.MessageReleased, Name: h.Name, Token: h.Token})
	}
	if table.IsEnding(id) && len(l.claiming[id]) == 0 && len(l.state.Holds.Of(h.Session)) == 0 {
		table.Ended(id)
	}
}

// tell tells a session, if it is alive and has a connection.
func (l *locks) tell(id session.ID, m session.Message) {
	s := &l.leading.sessions
	if m.Conn = s.table.ConnOf(id); s.table.Speaks(m.Conn, id) {
		s.tell(m)
	}
}

// Holder returns who holds a lock, as far as this process has applied the log.
func (r *Replica) Holder(name string) (oracle.Hold, bool) { return r.state.Holds.Get(name) }

// OldestHolders returns the holds of at most limit locks that were granted first, by token.
func (r *Replica) OldestHolders(limit int) []oracle.Hold { return r.state.Holds.Oldest(limit) }

// HoldsOf returns the holds of a session by name, as [Replica.Holder] does.
func (r *Replica) HoldsOf(id session.ID) []oracle.Hold { return r.state.Holds.Of(uint64(id)) }

// Holders returns the holds of at most limit locks whose names begin with prefix and that are shown, by name, as [Replica.Holder] does.
func (r *Replica) Holders(prefix string, limit int, shown func(oracle.Hold) bool) (list []oracle.Hold) {
	for h := range r.state.Holds.All() {
		if len(list) == limit {
			break
		}
		if strings.HasPrefix(h.Name, prefix) && shown(h) {
			list = append(list, h)
		}
	}
	return list
}
