package redislock

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/session"
)

const (
	// requestsMax bounds the requests that are not answered.
	requestsMax = 20_000
	// sweepInterval is how often the session is kept alive, and what was left undone is tried again.
	sweepInterval = time.Second
	// requestMax is for how long a request is not answered at most, but for sweepInterval.
	requestMax = 5 * time.Second
	// never is later than any time.
	never = time.Duration(math.MaxInt64)
)

// Leader is what a [Keeper] uses of the leader.
type Leader interface {
	// Ask hands over a request of the session. done is called once, not within the call, with the error of the request, if any.
	Ask(q session.Request, done func(error))
	// Holder returns who holds a lock, as far as the log is applied.
	Holder(name string) (oracle.Hold, bool)
	// Holds returns all holds of a session, in the order of their names.
	Holds(id session.ID) []oracle.Hold
}

// Keeper keeps the locks in the terms of this process.
type Keeper struct {
	leader Leader
	now    time.Duration // by the steady clock of the leader
	term   uint64        // 0: it does not lead
	// bound is set once the session is bound and its locks are known.
	bound bool
	// early are requests from before that.
	early []*request
	// locks are those that are held, or that requests wait for.
	locks map[string]*lock
	// open are the requests in the order in which they came, from the first one on that is not answered. unanswered counts those that are not.
	open       []*request
	unanswered int
	// changes are those of holds that are under way, by name.
	changes map[string]*change
	// stray are holds that are to be released, by name: no client has them.
	stray map[string]isotone.Timestamp64
	// due is when the next lock may be free, swept when the latest sweep was.
	due, swept time.Duration
	stops      uint64 // counts the calls of Stop
	amended    uint64 // counts amendments
}

// lock is what is known of a lock.
type lock struct {
	name, value string
	token       isotone.Timestamp64 // 0: not held
	// recorded is the time in the log, 0 for ever.
	recorded time.Duration
	// until is when it ends for its holder, free when others may have it.
	until, free time.Duration
	amendment   string              // the name of the hold that amends it, or ""
	amendedBy   isotone.Timestamp64 // its token
	// busy is set while a change is under way, for which queue waits.
	busy  bool
	queue []*request
}

type request struct {
	*Request
	asked    time.Duration
	answered bool
	done     func(error)
}

// NewKeeper returns a keeper that does not lead.
func NewKeeper(leader Leader) *Keeper {
	k := &Keeper{leader: leader}
	k.Stop(nil)
	return k
}

// Leads tells that this process leads in that term, and the time. It is called in each turn of the leader once the leader's session table is open.
func (k *Keeper) Leads(term uint64, now time.Duration) {
	if k.now = now; term != k.term {
		k.Stop(isotone.ErrNoLeader)
		k.term, k.swept = term, now
		if len(k.leader.Holds(SessionID)) > 0 {
			k.bind()
		}
		return
	}
	if now >= k.swept+sweepInterval {
		k.swept = now
		k.sweep()
	}
	if now >= k.due {
		k.freeOver()
	}
}

// Stop ends the term, and answers all requests with err.
func (k *Keeper) Stop(err error) {
	open := k.open
	k.stops++
	k.term, k.bound, k.early, k.due, k.swept = 0, false, nil, never, 0
	k.locks, k.open, k.unanswered, k.changes, k.stray = map[string]*lock{}, nil, 0, map[string]*change{}, map[string]isotone.Timestamp64{}
	for _, r := range open {
		if !r.answered {
			r.answered = true
			r.done(err)
		}
	}
}

// Ask takes a request, and calls done once, not within the call, with its error. If Ask returns an error, done is not called.
func (k *Keeper) Ask(r *Request, done func(error)) error {
	if err := r.Check(); err != nil {
		return err
	}
	switch {
	case k.term == 0:
		return isotone.ErrNoLeader
	case k.unanswered >= requestsMax:
		return isotone.ErrOverloaded
	}
	r.Reply = Reply{}
	q := &request{Request: r, asked: k.now, done: done}
	k.open = append(k.open, q)
	k.unanswered++
	if k.bound {
		k.confirm(q)
		return nil
	}
	if k.early = append(k.early, q); len(k.early) == 1 {
		k.bind()
	}
	return nil
}

// Told tells what the leader tells the session.
func (k *Keeper) Told(m session.Message) {
	c := k.changes[m.Name]
	switch m.Kind {
	case session.MessageGranted:
		h, _ := k.leader.Holder(m.Name)
		waits := c != nil && c.Op == session.LockTry
		if waits && h.Value == c.Value {
			k.settle(c, m.Token, nil)
			return
		}
		k.stray[m.Name] = m.Token // nobody waits for it any more
		if waits {                // the hold is that of an earlier request
			k.settle(c, 0, session.ErrLocked)
		}
	case session.MessageReleased:
		if k.stray[m.Name] == m.Token {
			delete(k.stray, m.Name)
		}
		if l := k.locks[m.Name]; l != nil && l.token == m.Token {
			k.drop(l)
		}
		switch {
		case c == nil:
		case c.Op == session.LockRelease && c.Token == m.Token:
			k.settle(c, 0, nil)
		case c.Op == session.LockTry && m.Token == 0: // it was cancelled
			k.settle(c, 0, errTooLong)
		}
	case session.MessageExpired, session.MessageSuperseded:
		k.Stop(isotone.ErrNoLeader) // and begin anew
	}
}

// ask hands a request over. then is called unless the keeper was stopped meanwhile.
func (k *Keeper) ask(q session.Request, then func(error)) {
	stops := k.stops
	k.leader.Ask(q, func(err error) {
		if k.stops == stops {
			then(err)
		}
	})
}

// bind binds the session, and learns what it holds from earlier terms.
func (k *Keeper) bind() {
	k.ask(session.Request{Bind: &session.Bind{ID: SessionID, Epoch: 1, TTL: session.TTLMax, Linger: session.TTLMax, Label: "locks of Redis libraries"}}, func(err error) {
		if err != nil || k.bound {
			return // the sweep tries again
		}
		k.bound = true
		k.adopt()
		early := k.early
		k.early = nil
		for _, r := range early {
			k.confirm(r)
		}
	})
}

// adopt begins with what the session holds. Each lock has its full time.
func (k *Keeper) adopt() {
	byToken := map[isotone.Timestamp64]*lock{}
	holds := k.leader.Holds(SessionID)
	for _, h := range holds {
		if _, amends := amendmentOf(h.Name); !amends {
			l := &lock{name: h.Name}
			k.locks[h.Name], byToken[h.Token] = l, l
			ttl, value := decode(h.Value)
			k.hold(l, h.Token, ttl, value)
		}
	}
	for _, h := range holds {
		token, amends := amendmentOf(h.Name)
		l := byToken[token]
		switch {
		case !amends:
		case l == nil || h.Token < l.amendedBy:
			k.stray[h.Name] = h.Token
		default:
			ttl, value := decode(h.Value)
			k.amend(l, h.Name, h.Token, ttl, value)
		}
	}
}

// sweep keeps the session alive, and tries again what was left undone.
func (k *Keeper) sweep() {
	if !k.bound {
		if len(k.early) > 0 || len(k.leader.Holds(SessionID)) > 0 {
			k.bind()
		}
	} else {
		k.ask(session.Request{}, func(error) {})
	}
	for _, name := range slices.Sorted(maps.Keys(k.stray)) {
		k.ask(session.Request{Lock: &session.LockRequest{Op: session.LockRelease, Name: name, Token: k.stray[name]}}, func(error) {})
	}
	for _, name := range slices.Sorted(maps.Keys(k.changes)) {
		switch c := k.changes[name]; {
		case !c.failed && k.now < c.began+requestMax:
		case c.Op == session.LockTry:
			k.ask(session.Request{Lock: &session.LockRequest{Op: session.LockCancel, Name: c.Name}}, func(error) {})
		default:
			k.ask(session.Request{Lock: &c.LockRequest}, func(error) {})
		}
	}
	for len(k.open) > 0 && k.now >= k.open[0].asked+requestMax {
		k.answer(k.open[0], errTooLong)
	}
}

// freeOver frees the locks whose time is over, and notes when the next one is.
func (k *Keeper) freeOver() {
	k.due = never
	var over []*lock
	for _, l := range k.locks { // order-free: they are sorted
		switch {
		case l.token == 0 || l.busy:
		case k.now < l.free:
			k.due = min(k.due, l.free)
		default:
			over = append(over, l)
		}
	}
	slices.SortFunc(over, func(a, b *lock) int { return strings.Compare(a.name, b.name) })
	for _, l := range over {
		k.release(l, func() { k.next(l) })
	}
}

// answer answers a request, unless it was answered.
func (k *Keeper) answer(r *request, err error) {
	if r.answered {
		return
	}
	r.answered = true
	k.unanswered--
	for len(k.open) > 0 && k.open[0].answered {
		k.open = k.open[1:]
	}
	r.done(err)
}

// confirm carries a request out after a round that began after it came. So an answer without a change is that of a leader that was not deposed.
func (k *Keeper) confirm(r *request) {
	confirmed := func(err error) {
		if err != nil {
			k.answer(r, err)
			return
		}
		l := k.locks[r.Name]
		if l == nil {
			l = &lock{name: r.Name, until: never, free: never}
			k.locks[r.Name] = l
		}
		l.queue = append(l.queue, r)
		k.next(l)
	}
	if mutant.On(mutant.RedisUnconfirmed) {
		confirmed(nil)
		return
	}
	k.ask(session.Request{}, confirmed)
}

// next carries out what waits for a lock that is not busy, and forgets one that is free.
func (k *Keeper) next(l *lock) {
	for !l.busy && len(l.queue) > 0 {
		r := l.queue[0]
		l.queue = l.queue[1:]
		if !r.answered {
			k.carryOut(l, r)
		}
	}
	switch {
	case l.busy:
	case l.token != 0:
		k.due = min(k.due, l.free)
	case k.locks[l.name] == l:
		delete(k.locks, l.name)
	}
}

// carryOut carries out a request.
func (k *Keeper) carryOut(l *lock, r *request) {
	h, held := k.leader.Holder(l.name)
	ofSession := held && session.ID(h.Session) != SessionID
	ours := l.token != 0 && k.now < l.until
	switch {
	case ofSession:
		r.Reply = Reply{Held: true, Value: h.Value, Token: h.Token, Forever: true}
	case ours:
		r.Reply = Reply{Held: true, Value: l.value, Token: l.token, Forever: l.until == never}
		if !r.Forever {
			r.Left = l.until - k.now
		}
	}
	free := !held && l.token == 0
	matches := ours && (r.Any || l.value == r.Value)
	switch {
	case r.Op == Read:
		r.Done = matches
		k.answer(r, nil)
	case r.Op == Break && l.token != 0 && l.token == r.Of:
		if l.until, k.due = k.now, k.now; l.free == never {
			l.free = k.now
		}
		r.Done, r.Left = true, l.free-k.now
		k.answer(r, nil)
	case ofSession && (r.Any || r.Op == Set):
		k.answer(r, errSession)
	case r.takes() && free:
		k.take(l, r)
	case r.Op == Set && l.token != 0:
		k.release(l, func() { k.take(l, r) })
	case r.Op == Set:
		k.answer(r, session.ErrLocked)
	case r.Op == ObtainAgain && ours && r.Prefix > 0 && len(l.value) >= r.Prefix && len(r.Value) >= r.Prefix && l.value[:r.Prefix] == r.Value[:r.Prefix]:
		k.refresh(l, r, r.TTL, r.Value)
	case !matches || r.Op == Obtain || r.Op == ObtainAgain || r.Op == Break:
		k.answer(r, nil)
	case r.Op == Delete:
		k.remove(l, r)
	case r.Op == Extend && l.until == never:
		k.answer(r, nil)
	case r.Op == Extend:
		left := session.Outlasted(l.free - k.now) // by its clock the client may have more left than by this one
		if mutant.On(mutant.RedisExtendByLeader) {
			left = (l.until - k.now).Truncate(time.Millisecond)
		}
		k.refresh(l, r, r.TTL+left, l.value)
	default: // Refresh, ObtainOrRefresh
		k.refresh(l, r, r.TTL, l.value)
	}
}

// finish answers a request for which a lock was busy.
func (k *Keeper) finish(l *lock, r *request, err error) {
	r.Done = err == nil
	k.answer(r, err)
	k.next(l)
}

// take has the client take a lock that is free.
func (k *Keeper) take(l *lock, r *request) {
	l.busy = true
	k.change(session.LockRequest{Op: session.LockTry, Name: l.name, Value: encode(r.TTL, r.Value)}, func(token isotone.Timestamp64, err error) {
		l.busy = false
		switch {
		case err == nil && !r.answered:
			k.hold(l, token, r.TTL, r.Value)
			k.finish(l, r, nil)
			return
		case err == nil: // the client was told that it does not have the lock
			k.stray[l.name] = token
		case errors.Is(err, isotone.ErrLocked) && r.Op != Set:
			k.answer(r, nil)
		default:
			k.answer(r, err)
		}
		k.next(l)
	})
}

// remove frees a lock at the request of its holder.
func (k *Keeper) remove(l *lock, r *request) { k.release(l, func() { k.finish(l, r, nil) }) }

// refresh begins the time of a lock anew, and gives it that value. What is not in the log is recorded first.
func (k *Keeper) refresh(l *lock, r *request, ttl time.Duration, value string) {
	switch {
	case ttl <= 0 && (r.Op == Refresh || r.Op == Extend):
		k.remove(l, r)
		return
	case ttl > TTLMax:
		k.answer(r, errTTL)
		return
	case value == l.value && (ttl == l.recorded || 0 < ttl && ttl < l.recorded || mutant.On(mutant.RedisTimeUnrecorded)):
		k.renew(l, ttl)
		r.Done = true
		k.answer(r, nil)
		return
	}
	l.busy = true
	k.amended++
	name := ReservedPrefix + l.token.String() + ":" + strconv.FormatUint(k.term, 10) + "." + strconv.FormatUint(k.amended, 10)
	k.change(session.LockRequest{Op: session.LockTry, Name: name, Value: encode(ttl, value)}, func(token isotone.Timestamp64, err error) {
		l.busy = false
		if err == nil {
			k.amend(l, name, token, ttl, value)
		}
		k.finish(l, r, err)
	})
}

// hold notes that a client holds a lock.
func (k *Keeper) hold(l *lock, token isotone.Timestamp64, ttl time.Duration, value string) {
	l.token, l.value, l.recorded = token, value, ttl
	k.renew(l, ttl)
}

// amend notes an amendment, in place of an earlier one.
func (k *Keeper) amend(l *lock, name string, by isotone.Timestamp64, ttl time.Duration, value string) {
	k.strayAmendment(l)
	l.amendment, l.amendedBy = name, by
	k.hold(l, l.token, ttl, value)
}

// strayAmendment has the amendment of a lock released, if there is one.
func (k *Keeper) strayAmendment(l *lock) {
	if l.amendment != "" {
		k.stray[l.amendment] = l.amendedBy
		l.amendment, l.amendedBy = "", 0
	}
}

// renew begins the time of a lock anew.
func (k *Keeper) renew(l *lock, ttl time.Duration) {
	l.until, l.free = never, never
	if ttl > 0 {
		l.until, l.free = k.now+ttl, k.now+session.Outlast(ttl)
	}
	if mutant.On(mutant.RedisFreeAtEnd) {
		l.free = l.until
	}
	k.due = min(k.due, l.free)
}

// drop notes that nobody holds a lock.
func (k *Keeper) drop(l *lock) {
	k.strayAmendment(l)
	l.token = 0
}
