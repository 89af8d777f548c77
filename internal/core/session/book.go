package session

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Book decides for a front that speaks for a session, whose client asks by requests that come and go: what the client is told of its locks, and what becomes of a grant of which nobody can be
// told. All that the leader says over the connection of the session has to come here in its order. It is not safe for concurrent use.
//
// A lock that was granted for a request whose client has gone is released, unless the client was told of it otherwise. Once a release was asked for, no answer shows the hold, as it is
// nobody's any more (R7).
type Book struct {
	// ask has the leader asked, in the order of the calls.
	ask func(*LockAsk)
	// told are the tokens of which the client was told, by the name of the lock.
	told map[string]isotone.Timestamp64
	// waiting are the requests for a lock that are not answered, by its name, and waits is their number.
	waiting map[string][]*LockWait
	waits   int
	// releasing are the releases that are under way, each with what is told how it ended; nil: nobody, as the client has not asked for it.
	releasing map[isotone.Timestamp64]func(error)
}

// LockAsk is what a [Book] has the leader asked.
type LockAsk struct {
	LockRequest
	wait *LockWait
}

// LockWait is a request for a lock that waits in a [Book].
type LockWait struct {
	request LockRequest
	changed func()
	token   isotone.Timestamp64 // 0: it is not granted
	ticket  isotone.Timestamp
	// alive says that the leader has answered that the session lives. locked, that somebody else has the lock.
	alive, locked bool
	err           error
}

// LockEnd is how a request for a lock has ended. Token is 0 if the lock is refused, and Ticket the place that it had in the queue then.
type LockEnd struct {
	Token  isotone.Timestamp64
	Ticket isotone.Timestamp
	Err    error
}

// NewBook returns the book of a session that holds nothing. It calls ask with each request that is to be made of the leader over the connection of the session, in this order; each answer goes
// to [Book.Answered], and not within the call.
func NewBook(ask func(*LockAsk)) *Book {
	return &Book{ask: ask, told: map[string]isotone.Timestamp64{}, waiting: map[string][]*LockWait{}, releasing: map[isotone.Timestamp64]func(error){}}
}

// Waits returns the number of requests that wait.
func (b *Book) Waits() int { return b.waits }

// Acquire begins a request for a lock. changed is called, also from within, when there is something for [Book.Look] to see. The request lasts until Look says that it has ended, or
// [Book.Leave].
func (b *Book) Acquire(q LockRequest, changed func()) *LockWait {
	w := &LockWait{request: q, changed: changed}
	others := b.waiting[q.Name]
	b.waiting[q.Name] = append(others, w)
	b.waits++
	switch {
	case len(others) > 0 && q.Op == LockTry: // the session itself waits for it
		w.locked, w.alive = true, true
		w.changed()
		return w
	case len(others) > 0: // one of them may leave
		w.token = others[0].token
	}
	b.ask(&LockAsk{w.request, w})
	return w
}

// Look returns how a request for a lock has ended, and whether it has. One whose time is over has once it knows its place in the queue. The client is to be told of a token.
func (b *Book) Look(w *LockWait, isOver bool) (end LockEnd, ended bool) {
	switch {
	case w.err != nil, w.locked:
		end.Err = w.err
	case w.token != 0 && w.alive:
		b.remove(w)
		b.told[w.request.Name] = w.token
		return LockEnd{Token: w.token}, true
	case isOver && w.alive && w.ticket != (isotone.Timestamp{}):
		end.Ticket = w.ticket
	default:
		return LockEnd{}, false
	}
	b.Leave(w)
	return end, true
}

// Leave ends a request whose client is not told of a token.
func (b *Book) Leave(w *LockWait) {
	b.remove(w)
	name := w.request.Name
	switch {
	case len(b.waiting[name]) > 0 || w.locked:
	case w.token == 0:
		b.ask(&LockAsk{LockRequest: LockRequest{Op: LockCancel, Name: name}})
	case b.told[name] != w.token || mutant.On(mutant.LeaveEndsTold):
		b.giveBack(name, w.token)
	}
}

func (b *Book) remove(w *LockWait) {
	name := w.request.Name
	at := slices.Index(b.waiting[name], w)
	if at < 0 {
		return
	}
	b.waits--
	if b.waiting[name] = slices.Delete(b.waiting[name], at, at+1); len(b.waiting[name]) == 0 {
		delete(b.waiting, name)
	}
}

// Shown returns those of the holds of the session that its client is told of, which are all that it is told of.
func (b *Book) Shown(holds []Hold) (list []Hold) {
	clear(b.told)
	for _, h := range holds {
		if !b.isReleasing(h.Token, mutant.ShowReleasing) {
			list = append(list, h)
			b.told[h.Name] = h.Token
		}
	}
	return list
}

// Release begins a release that the client asks for, and reports false if the session does not hold the lock with the token. done is told how it ended.
func (b *Book) Release(name string, token isotone.Timestamp64, done func(error)) bool {
	if token == 0 || b.told[name] != token {
		return false
	}
	b.release(name, token, done)
	return true
}

// giveBack releases a lock of which nobody was told.
func (b *Book) giveBack(name string, token isotone.Timestamp64) {
	if !mutant.On(mutant.UntoldKept) {
		b.release(name, token, nil)
	}
}

// release begins a release. Requests that were to be told of the hold ask again.
func (b *Book) release(name string, token isotone.Timestamp64, done func(error)) {
	delete(b.told, name)
	b.releasing[token] = done
	b.ask(&LockAsk{LockRequest: LockRequest{Op: LockRelease, Name: name, Token: token}})
	for _, w := range b.waiting[name] {
		if w.token == token {
			w.token = 0
			b.ask(&LockAsk{w.request, w})
		}
	}
}

func (b *Book) isReleasing(token isotone.Timestamp64, ignored mutant.Mutant) bool {
	_, under := b.releasing[token]
	return under && !mutant.On(ignored)
}

// Answered notes the answer to what the leader was asked: what Reply.Holds has, or the error, which is [isotone.ErrLocked] for the outcome Locked.
func (b *Book) Answered(a *LockAsk, holds []Hold, err error) {
	switch w := a.wait; {
	case a.Op == LockRelease:
		b.releaseAnswered(a.Name, a.Token, err)
	case w == nil:
	case errors.Is(err, isotone.ErrLocked):
		w.locked, w.alive = true, true
		w.changed()
	case err != nil:
		w.err = err
		w.changed()
	default:
		w.alive = true
		for _, h := range holds {
			b.held(w, h)
		}
		w.changed()
	}
}

// held notes a hold that answers a request. One that is being released comes to nothing, and the request asks again.
func (b *Book) held(w *LockWait, h Hold) {
	if !b.isReleasing(h.Token, mutant.TellReleasing) {
		b.granted(h.Name, h.Token)
	} else if slices.Contains(b.waiting[h.Name], w) {
		b.ask(&LockAsk{w.request, w})
	}
}

// releaseAnswered notes the answer to a release. A later answer of the leader shows the hold only if the release had no effect.
func (b *Book) releaseAnswered(name string, token isotone.Timestamp64, err error) {
	if err == nil {
		return
	}
	if b.told[name] == 0 && b.releasing[token] != nil {
		b.told[name] = token // it may ask again
	}
	b.released(token, err)
}

// Told notes what the leader has told of a lock.
func (b *Book) Told(m Message) {
	switch m.Kind {
	case MessageQueued:
		for _, w := range b.waiting[m.Name] {
			w.ticket = m.Ticket
			w.changed()
		}
	case MessageGranted:
		b.granted(m.Name, m.Token)
	case MessageReleased:
		if m.Token != 0 && b.told[m.Name] == m.Token {
			delete(b.told, m.Name)
		}
		b.released(m.Token, nil)
	}
}

// granted notes that the session holds a lock. That is released if nobody waits for it and the client was not told.
func (b *Book) granted(name string, token isotone.Timestamp64) {
	if b.isReleasing(token, mutant.TellReleasing) {
		return
	}
	for _, w := range b.waiting[name] {
		w.token = token
		w.changed()
	}
	if len(b.waiting[name]) == 0 && b.told[name] != token {
		b.giveBack(name, token)
	}
}

// released notes that a release is over.
func (b *Book) released(token isotone.Timestamp64, err error) {
	if done := b.releasing[token]; done != nil {
		done(err)
	}
	delete(b.releasing, token)
}

// Close ends everything: the session, or its connection, is over.
func (b *Book) Close(err error) {
	for _, name := range slices.Sorted(maps.Keys(b.waiting)) {
		for _, w := range b.waiting[name] {
			if w.err == nil {
				w.err = err
			}
			w.changed()
		}
	}
	for _, token := range slices.Sorted(maps.Keys(b.releasing)) {
		b.released(token, err)
	}
}

// ValidFor returns for how long a client may believe in what it holds, from when it sent a request whose session the leader has heard alive later, as a clock of a node tells. The client's
// clock may be slow while that clock is fast; the leader waits for [Outlast] of the TTL (R4).
func ValidFor(ttl, alive time.Duration) time.Duration {
	return ttl + alive/(100+rateErrorPercent)*(100-rateErrorPercent)
}
