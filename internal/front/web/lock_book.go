package web

import (
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
)

// lockBook decides what the client of a session is told of its locks, and what becomes of a grant of which nobody can be told. All that the core says has to come here in its order.
//
// A lock that was granted for a request whose client has gone is released, unless the client was told of it otherwise. Once a release was asked for, no answer shows the hold, as it is
// nobody's any more (R7).
type lockBook struct {
	// told are the tokens of which the client was told, by the name of the lock.
	told map[string]isotone.Timestamp64
	// waiting are the requests for a lock that are not answered, by its name.
	waiting map[string][]*lockWait
	// giving are the releases that are under way.
	giving map[isotone.Timestamp64]*giving
	// waits is the number of requests in waiting.
	waits int
}

// lockWait is a request for a lock.
type lockWait struct {
	name   string
	token  isotone.Timestamp64 // 0: it is not granted
	ticket isotone.Timestamp
	// again says that what it asked for has come to nothing, and is to be asked again: a hold was shown that is being released.
	again bool
	// alive says that the leader has answered that the session lives. locked, that somebody else has the lock.
	alive, locked bool
	err           error
	wake          chan struct{} // has a buffer of one
}

// giving is a release that is under way.
type giving struct {
	// byClient says that the client has asked for it.
	byClient bool
	done     chan error // gets how it ended; has a buffer of one
}

// lockEnd is how a request for a lock has ended. Token is 0 if the lock is refused, and ticket the place that it had in the queue then.
type lockEnd struct {
	token  isotone.Timestamp64
	ticket isotone.Timestamp
	err    error
}

func newLockBook() lockBook {
	return lockBook{told: map[string]isotone.Timestamp64{}, waiting: map[string][]*lockWait{}, giving: map[isotone.Timestamp64]*giving{}}
}

// begin adds a request.
func (b *lockBook) begin(name string) *lockWait {
	w := &lockWait{name: name, wake: make(chan struct{}, 1)}
	b.waiting[name] = append(b.waiting[name], w)
	b.waits++
	return w
}

// signal has a request looked at.
func (w *lockWait) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// granted notes that the session holds a lock. It reports true if that is to be released, as nobody waits for it and the client was not told.
func (b *lockBook) granted(name string, token isotone.Timestamp64) (unwanted bool) {
	if b.giving[token] != nil {
		return false
	}
	for _, w := range b.waiting[name] {
		w.token = token
		w.signal()
	}
	return len(b.waiting[name]) == 0 && b.told[name] != token
}

// queued notes the place of a session in a queue.
func (b *lockBook) queued(name string, ticket isotone.Timestamp) {
	for _, w := range b.waiting[name] {
		w.ticket = ticket
		w.signal()
	}
}

// answered notes the answer to a request for a lock. It reports as granted does, and the token that is not wanted.
func (b *lockBook) answered(w *lockWait, holds []session.Hold, err error) (token isotone.Timestamp64, unwanted bool) {
	defer w.signal()
	if w.err = err; err != nil {
		return 0, false
	}
	w.alive = true
	for _, h := range holds {
		if b.giving[h.Token] != nil {
			w.again = true
			continue
		}
		return h.Token, b.granted(h.Name, h.Token)
	}
	return 0, false
}

// tell ends a request whose client is told of its token. It reports false if there is no token to be told of.
func (b *lockBook) tell(w *lockWait) bool {
	if w.token == 0 || !w.alive {
		return false
	}
	b.remove(w)
	b.told[w.name] = w.token
	return true
}

// leave ends a request whose client is not told of a token. It returns what is to be asked; nil: nothing.
func (b *lockBook) leave(w *lockWait) *session.LockRequest {
	b.remove(w)
	switch {
	case len(b.waiting[w.name]) > 0 || w.locked:
		return nil
	case w.token == 0:
		return &session.LockRequest{Op: session.LockCancel, Name: w.name}
	case b.told[w.name] == w.token:
		return nil
	}
	return b.give(w.name, w.token, false)
}

func (b *lockBook) remove(w *lockWait) {
	at := slices.Index(b.waiting[w.name], w)
	if at < 0 {
		return
	}
	b.waits--
	if b.waiting[w.name] = slices.Delete(b.waiting[w.name], at, at+1); len(b.waiting[w.name]) == 0 {
		delete(b.waiting, w.name)
	}
}

// shown returns those of the holds of a session that its client is told of, which are all that it is told of.
func (b *lockBook) shown(holds []session.Hold) (list []session.Hold) {
	clear(b.told)
	for _, h := range holds {
		if b.giving[h.Token] == nil {
			list = append(list, h)
			b.told[h.Name] = h.Token
		}
	}
	return list
}

// release begins a release that the client asks for. It returns nil if the session does not hold the lock with the token.
func (b *lockBook) release(name string, token isotone.Timestamp64) *session.LockRequest {
	if token == 0 || b.told[name] != token {
		return nil
	}
	return b.give(name, token, true)
}

// give begins a release.
func (b *lockBook) give(name string, token isotone.Timestamp64, byClient bool) *session.LockRequest {
	delete(b.told, name)
	b.giving[token] = &giving{byClient: byClient, done: make(chan error, 1)}
	for _, w := range b.waiting[name] {
		if w.token == token {
			w.token, w.again = 0, true
			w.signal()
		}
	}
	return &session.LockRequest{Op: session.LockRelease, Name: name, Token: token}
}

// releaseAnswered notes the answer to a release. A later answer of the core shows the hold only if the release had no effect.
func (b *lockBook) releaseAnswered(name string, token isotone.Timestamp64, err error) {
	g := b.giving[token]
	if g == nil || err == nil {
		return
	}
	if b.told[name] == 0 && g.byClient {
		b.told[name] = token // it may ask again
	}
	b.end(token, err)
}

// released notes that the session does not hold a lock with a token.
func (b *lockBook) released(name string, token isotone.Timestamp64) {
	if token != 0 && b.told[name] == token {
		delete(b.told, name)
	}
	b.end(token, nil)
}

func (b *lockBook) end(token isotone.Timestamp64, err error) {
	if g := b.giving[token]; g != nil {
		delete(b.giving, token)
		g.done <- err
	}
}

// close ends everything: the session, or its connection, is over.
func (b *lockBook) close(err error) {
	for _, list := range b.waiting {
		for _, w := range list {
			if w.err == nil {
				w.err = err
			}
			w.signal()
		}
	}
	for token := range b.giving {
		b.end(token, err)
	}
}
