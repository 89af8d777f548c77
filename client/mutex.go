package client

import (
	"context"
	"time"

	"github.com/isotone/isotone"
)

// lock is a lock of a session, for all [Mutex] values of its name. All but turn is guarded by Session.mu.
type lock struct {
	session *Session
	name    string
	turn    chan struct{} // holds one while somebody wants the lock or holds it
	// by wants the lock, or holds it if held is set; nil: nobody. Who sets it to nil gives the turn back.
	by   *acquisition
	held bool
	// isGranted is set when the leader has granted the lock with token, until by is told.
	isGranted bool
	token     isotone.Timestamp64
	released  chan error // has the outcome of the latest release; nil: nobody waits
}

// acquisition is a call of Lock or TryLock.
type acquisition struct {
	value   string
	try     bool
	token   isotone.Timestamp64 // of the grant
	outcome chan error          // holds one
	ended   context.CancelCauseFunc
}

// lock returns the lock of that name. The caller holds mu.
func (s *Session) lock(name string) *lock {
	l := s.locks[name]
	if l == nil {
		l = &lock{session: s, name: name, turn: make(chan struct{}, 1)}
		s.locks[name] = l
	}
	return l
}

// granted notes a grant. The acquisition ends when the session believes in it.
func (l *lock) granted(token isotone.Timestamp64) {
	if l.token, l.isGranted = token, true; l.by != nil {
		l.session.granted = append(l.session.granted, l)
	}
}

// settle ends the acquisition of a lock that is granted if the session believes in it: it may be that it has not heard from the leader for long.
func (l *lock) settle(now time.Duration) {
	if !l.isGranted || l.by == nil || l.held {
		return
	}
	if _, ok := l.session.core.Token(l.name, now); ok {
		l.isGranted, l.held, l.by.token = false, true, l.token
		l.by.outcome <- nil
	}
}

// refused ends the acquisition that waits.
func (l *lock) refused(err error) {
	if l.by != nil && !l.held {
		l.by.outcome <- err
		l.leave(err)
	}
}

// leave ends what by has to do with the lock.
func (l *lock) leave(why error) {
	l.by.ended(why)
	l.by, l.held, l.isGranted = nil, false, false
	<-l.turn
}

// lose notes that the session does not hold the lock any more.
func (l *lock) lose(err error) {
	switch {
	case l.held:
		l.leave(err)
	case l.session.err != nil:
		l.refused(err)
		l.wasReleased(nil)
	case l.by != nil: // it was lost before it was told
		l.isGranted = false
		l.session.core.Acquire(l.name, l.by.value, l.by.try)
	}
}

// wasReleased ends the call of Unlock that waits.
func (l *lock) wasReleased(err error) {
	if l.released != nil {
		l.released <- err
		l.released = nil
	}
}

// Mutex is a lock by name, for all processes that use the cluster. Those who wait get it in the order in which they came. All Mutex values of one name and session are the same lock: goroutines exclude each other, too.
// A value is for one holder at a time, which [Mutex.Check], [Mutex.Token] and [Mutex.Unlock] speak of: give each goroutine its own. It is safe for concurrent use.
//
// A lock says that its holder is most likely the only one. A process that is paused may go on after it has lost the lock. So give [Mutex.Token] to the stores that the lock protects,
// and have them refuse smaller ones; package github.com/isotone/isotone/fence does.
type Mutex struct {
	lock  *lock
	value string
	by    *acquisition // the latest that was granted, guarded by Session.mu; nil: none
}

// Mutex returns the lock of that name: 1 to 128 bytes.
func (s *Session) Mutex(name string) *Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Mutex{lock: s.lock(name)}
}

// WithValue returns the same lock, of whose holder others are told value, at most 128 bytes; see [Client.Holder].
func (m *Mutex) WithValue(value string) *Mutex { return &Mutex{lock: m.lock, value: value} }

// Lock waits until the session holds the lock, or ctx is done. The context that it returns derives from ctx, and is also done when the session cannot be
// sure of the lock any more, before anybody else may have it. Use it for what the lock protects, and end it with [Mutex.Unlock]. A deadline of ctx holds for both: to bound the wait alone, cancel ctx yourself.
// The error matches isotone.ErrSessionExpired if the session has ended.
func (m *Mutex) Lock(ctx context.Context) (context.Context, error) { return m.acquire(ctx, false) }

// TryLock is Lock that does not wait for others: the error matches isotone.ErrLocked if somebody else holds the lock or waits for it.
func (m *Mutex) TryLock(ctx context.Context) (context.Context, error) { return m.acquire(ctx, true) }

func (m *Mutex) acquire(ctx context.Context, try bool) (context.Context, error) {
	l := m.lock
	s := l.session
	if err := l.takeTurn(ctx, try); err != nil {
		return nil, err
	}
	held, ended := context.WithCancelCause(ctx)
	a := &acquisition{value: m.value, try: try, outcome: make(chan error, 1), ended: ended}
	s.mu.Lock()
	if l.by = a; s.err != nil {
		l.leave(s.err)
		s.mu.Unlock()
		return nil, s.err
	}
	s.core.Acquire(l.name, m.value, try)
	s.mu.Unlock()
	s.wake()
	select {
	case err := <-a.outcome:
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		m.by = a
		s.mu.Unlock()
		return held, nil
	case <-ctx.Done():
		err := s.overdue(ctx)
		l.giveUp(a)
		return nil, err
	}
}

// takeTurn waits until no other goroutine wants the lock or holds it.
func (l *lock) takeTurn(ctx context.Context, try bool) error {
	if try {
		select {
		case l.turn <- struct{}{}:
			return nil
		default:
			return isotone.ErrLocked
		}
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-l.session.done:
		return l.session.Err()
	case <-ctx.Done():
		return l.session.client.timeoutError(ctx)
	}
}

// giveUp ends an acquisition whose context is done.
func (l *lock) giveUp(a *acquisition) {
	s := l.session
	s.mu.Lock()
	if l.by == a { // else it was lost meanwhile, or refused
		l.leave(context.Canceled)
		s.core.Release(l.name)
	}
	s.mu.Unlock()
	s.wake()
}

// Unlock releases the lock, and waits until the leader has confirmed that, or ctx is done; the release goes on then. The context of the holder is done when it returns. The error matches isotone.ErrNotHeld if the
// latest holder of this value did not hold the lock any more, and is another one if the cluster refuses the release: then the session holds the lock until it ends.
func (m *Mutex) Unlock(ctx context.Context) error {
	l := m.lock
	s := l.session
	s.mu.Lock()
	if !l.held || l.by != m.by {
		s.mu.Unlock()
		return isotone.ErrNotHeld
	}
	released := make(chan error, 1)
	l.wasReleased(nil) // of an earlier release, if that is not confirmed: this one says more
	l.released = released
	l.leave(context.Canceled)
	s.core.Release(l.name)
	s.mu.Unlock()
	s.wake()
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
		return s.client.timeoutError(ctx)
	}
}

// Check returns nil if the latest holder of this value holds the lock at this moment, as far as it can know, and an error that matches isotone.ErrNotHeld otherwise. After a pause of the process it
// tells at once; the context is ended by a timer, which may fire a moment later.
func (m *Mutex) Check() error {
	s := m.lock.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.core.Token(m.lock.name, sessionNow()); !ok || !m.lock.held || m.lock.by != m.by {
		return isotone.ErrNotHeld
	}
	return nil
}

// Token64 returns the token of the latest grant to this value, 0 if there was none. It is larger than that of each grant of the lock before, to whomever, and fits a signed 64-bit integer.
func (m *Mutex) Token64() isotone.Timestamp64 {
	s := m.lock.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.by == nil {
		return 0
	}
	return m.by.token
}

// Token is [Mutex.Token64] as a timestamp: both have one order.
func (m *Mutex) Token() isotone.Timestamp { return m.Token64().Timestamp() }
