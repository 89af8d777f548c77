package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// Users with sessions over HTTP, who hold locks and write under them. Each of their requests is by itself: it may be lost in either direction, arrive late, and be
// given up by the user while the node still waits. They believe what docs/http.md allows. They have a source of randomness of their own.

// httpRuns is one in how many runs with sessions has users over HTTP.
const httpRuns = 2

// httpState is the part of the world that has to do with HTTP.
type httpState struct {
	rng      *rand.Rand
	used     bool
	users    []*httpUser
	virtuals map[virtualKey]*virtual
	conns    map[session.Conn]*virtual
}

// httpUser is a process of a client.
type httpUser struct {
	number int
	id     session.ID
	ttl    time.Duration
	linger time.Duration
	rate   float64
	target *node
	groups []string
	// bound is set while the target has answered for the session. doubts is set if the session may hold what the user does not know of.
	bound, doubts bool
	// polls is set if it keeps its session alive by PUT /sessions, and not only by what it asks for locks. put is when it did so last.
	polls bool
	put   time.Duration
	epoch uint32
	calls int
	idle  time.Duration // until when it does nothing
	locks map[string]*httpLock
	// released are tokens of which it takes no notice any more, answered is set if it had an answer since the last fault.
	released map[isotone.Timestamp64]bool
	answered bool
}

// httpLock is a lock of a user, who believes in the token until valid. release is a token that it is to release.
type httpLock struct {
	token, release isotone.Timestamp64
	valid          time.Duration
	ticket         isotone.Timestamp
	asks           int // how many of its requests for the lock are under way
}

func newHTTPState(seed uint64) httpState {
	s := httpState{rng: rand.New(rand.NewPCG(seed, 0x4774)), virtuals: map[virtualKey]*virtual{}, conns: map[session.Conn]*virtual{}}
	s.used = s.rng.IntN(httpRuns) == 0
	return s
}

func (s *httpState) forget() {
	for _, u := range s.users {
		u.answered = false
	}
}

// runHTTPUsers starts the users.
func (w *world) runHTTPUsers() {
	s := &w.sessions.http
	if !s.used {
		return
	}
	for i := range 1 + s.rng.IntN(2) {
		u := &httpUser{number: i, rate: 1 + clockDriftMax*(2*s.rng.Float64()-1), polls: s.rng.IntN(2) == 0}
		u.ttl = (time.Duration(10+s.rng.IntN(30))*w.cfg.tick + session.TTLMin).Truncate(time.Millisecond)
		if u.linger = u.ttl; !w.sessions.exclusive {
			u.linger = time.Duration(s.rng.IntN(4)) * w.cfg.tick
		}
		for _, group := range w.sessions.groups {
			if s.rng.IntN(3) == 0 {
				u.groups = append(u.groups, group)
			}
		}
		s.users = append(s.users, u)
		w.renewHTTP(u)
		w.runHTTP(u)
	}
}

func (u *httpUser) String() string { return fmt.Sprintf("HTTP user %d", u.number) }

// time is the steady clock of a user.
func (u *httpUser) time(w *world) time.Duration {
	return time.Duration(float64(w.now)*u.rate) + time.Second
}

func (u *httpUser) believes(w *world, name string) (isotone.Timestamp64, bool) {
	l := u.locks[name]
	if l == nil || u.time(w) >= l.valid {
		return 0, false
	}
	return l.token, l.token != 0
}

// renewHTTP gives a user another session.
func (w *world) renewHTTP(u *httpUser) {
	u.id, u.bound, u.doubts, u.epoch = session.ID(w.sessions.http.rng.Uint64()|1), false, false, 0
	u.locks, u.released = map[string]*httpLock{}, map[isotone.Timestamp64]bool{}
	for _, name := range w.sessions.names {
		u.locks[name] = &httpLock{}
	}
}

// runHTTP has a user do something now and then.
func (w *world) runHTTP(u *httpUser) {
	rng := w.sessions.http.rng
	w.after(time.Duration(1+rng.Int64N(int64(3*w.cfg.tick))), func() {
		if w.closing {
			return
		}
		if w.now >= u.idle && u.calls < 4 {
			w.actHTTP(u)
		}
		w.runHTTP(u)
	})
}

func (w *world) actHTTP(u *httpUser) {
	rng, now := w.sessions.http.rng, u.time(w)
	if rng.IntN(100) == 0 {
		u.bound, u.target = false, nil
	}
	name := w.sessions.names[rng.IntN(len(w.sessions.names))]
	switch l := u.locks[name]; {
	case !u.bound, u.doubts, u.polls && now-u.put > u.ttl/4:
		w.putSession(u)
	case rng.IntN(200) == 0:
		id := u.id
		w.renewHTTP(u)
		w.callHTTP(u, 0, func(n *node, _ *httpCall, answer func(httpAnswer)) { w.endHTTP(n, id, answer) }, func(*httpCall, httpAnswer) {})
	case !w.quiet && rng.IntN(60) == 0:
		u.idle = w.now + time.Duration(rng.Int64N(int64(60*w.cfg.tick)))
	case l.release != 0:
		w.deleteLock(u, name, l.release)
	default:
		w.useHTTPLock(u, name)
	}
}

// useHTTPLock has a user acquire a lock, write under it, or release it.
func (w *world) useHTTPLock(u *httpUser, name string) {
	rng, l := w.sessions.http.rng, u.locks[name]
	token, believes := u.believes(w, name)
	switch draw := rng.IntN(10); {
	case l.asks == 0 && (token == 0 || !believes || draw < 2), l.asks == 1 && draw == 2:
		w.putLock(u, name)
	case token == 0:
	case draw < 6 && believes:
		w.writeUnderLock(u, u.ttl, name, token)
	case draw < 8:
		w.deleteLock(u, name, token)
	}
}

// putSession begins a session or keeps it alive, and shows what it holds.
func (w *world) putSession(u *httpUser) {
	u.put = u.time(w)
	u.epoch++
	b, groups := session.Bind{ID: u.id, Epoch: u.epoch, TTL: u.ttl, Linger: u.linger, Quota: w.httpQuota()}, u.groups
	w.callHTTP(u, 0, func(n *node, _ *httpCall, answer func(httpAnswer)) { w.putHTTP(n, b, groups, false, answer) }, func(k *httpCall, a httpAnswer) {
		if a.err != nil || k.session != u.id {
			return
		}
		u.bound, u.doubts = k.target == u.target, false
		shown := map[string]isotone.Timestamp64{}
		for _, h := range a.holds {
			shown[h.Name] = h.Token
			w.holdHTTP(u, h.Name, h.Token, k.sent+a.valid)
		}
		for _, name := range w.sessions.names {
			if l := u.locks[name]; shown[name] != l.token {
				l.token = 0
			}
		}
		for _, seal := range a.seals {
			w.sealHTTP(u, seal)
		}
	})
}

// holdHTTP notes that an answer shows a lock.
func (w *world) holdHTTP(u *httpUser, name string, token isotone.Timestamp64, valid time.Duration) {
	l := u.locks[name]
	switch {
	case u.released[token]:
		l.release = token
	case token > l.token:
		l.token, l.valid = token, valid
		w.granted(u, name, token)
	case token == l.token:
		l.valid = max(l.valid, valid)
	}
}

// putLock acquires a lock.
func (w *world) putLock(u *httpUser, name string) {
	rng, l, id := w.sessions.http.rng, u.locks[name], u.id
	q := session.LockRequest{Op: session.LockTry, Name: name, Ticket: l.ticket}
	wait := time.Duration(0)
	if rng.IntN(4) > 0 {
		q.Op, wait = session.LockAcquire, time.Duration(1+rng.Int64N(int64(40*w.cfg.tick)))
	}
	l.asks++
	l.ticket = isotone.Timestamp{}
	w.callHTTP(u, wait, func(n *node, k *httpCall, answer func(httpAnswer)) {
		v, err := w.findVirtual(n, id)
		if err != nil {
			answer(w.answerHTTP(n, err))
			return
		}
		k.left = v.acquire(q, wait, 10*w.cfg.tick, answer)
	}, func(k *httpCall, a httpAnswer) {
		if l.asks--; a.token != 0 && k.session == u.id {
			w.holdHTTP(u, name, a.token, k.sent+a.valid)
		}
		l.ticket = a.ticket
	})
}

// deleteLock releases a lock, in which the user does not believe any more.
func (w *world) deleteLock(u *httpUser, name string, token isotone.Timestamp64) {
	l, id := u.locks[name], u.id
	u.released[token] = true
	l.release = token
	if l.token == token {
		l.token = 0
	}
	w.callHTTP(u, 0, func(n *node, _ *httpCall, answer func(httpAnswer)) { w.releaseHTTP(n, id, name, token, answer) }, func(_ *httpCall, a httpAnswer) {
		if a.err == nil || a.err.Code == isotone.CodeNotHeld {
			w.sessions.freed[name] = true
			if l.release == token {
				l.release = 0
			}
		}
	})
}

// sealHTTP has a user raise the fences of all stores, and tell that later.
func (w *world) sealHTTP(u *httpUser, seal session.GroupStamp) {
	w.stats.Seals++
	for store := range w.sessions.stores.fences[seal.Group] {
		w.sessions.stores.raise(seal.Group, store, seal.Stamp)
	}
	id := u.id
	w.callHTTP(u, 0, func(n *node, _ *httpCall, answer func(httpAnswer)) { w.sealedHTTP(n, id, seal, answer) }, func(*httpCall, httpAnswer) {})
}
