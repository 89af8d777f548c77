package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
)

// sessionClient returns a client of a node of its own.
func sessionClient(t *testing.T) (c *client.Client, addr string) {
	t.Helper()
	_, so, _ := testnode.RunSockets(t, nil)
	addr = so.HTTP.Addr().String()
	return dialSessions(t, addr), addr
}

func dialSessions(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.New(soon(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newSession begins a session, which a busy machine does not end unless o has a TTL.
func newSession(t *testing.T, c *client.Client, o client.SessionOptions) *client.Session {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = time.Minute
	}
	s, err := c.NewSession(soon(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMutex_IsHeldByOne(t *testing.T) {
	c, addr := sessionClient(t)
	ctx := soon(t)
	a, b := newSession(t, c, client.SessionOptions{}), newSession(t, dialSessions(t, addr), client.SessionOptions{})
	m, o := a.Mutex("shop/nightly"), b.Mutex("shop/nightly")
	held, err := m.Lock(ctx)
	if err != nil || m.Check() != nil || held.Err() != nil {
		t.Fatal(err, m.Check(), held.Err())
	}
	if _, err := o.TryLock(ctx); !errors.Is(err, isotone.ErrLocked) {
		t.Errorf("a lock that somebody holds is tried: %v", err)
	}
	if h, err := c.Holder(ctx, "shop/nightly"); err != nil || h.Token != m.Token64() {
		t.Errorf("its holder is %v, %v", h, err)
	}
	if err := o.Unlock(ctx); !errors.Is(err, isotone.ErrNotHeld) {
		t.Errorf("somebody else unlocks it: %v", err)
	}
	first := m.Token64()
	got := make(chan error, 1)
	go func() { _, err := o.Lock(ctx); got <- err }()
	if err := m.Unlock(ctx); err != nil || m.Check() == nil || held.Err() == nil {
		t.Errorf("unlock: %v; then %v, %v", err, m.Check(), held.Err())
	}
	if err := <-got; err != nil || o.Token64() <= first || o.Check() != nil {
		t.Errorf("the next holder has %v after %v: %v", o.Token64(), first, err)
	}
	if err := b.Close(ctx); err != nil || b.Err() != client.ErrClosed {
		t.Errorf("close: %v, %v", err, b.Err())
	}
	if _, err := m.Lock(ctx); err != nil { // which the end of the session has freed
		t.Error(err)
	}
	if _, err := o.Lock(ctx); err == nil {
		t.Error("a session that has ended locks")
	}
}

// TestMutex_CountsForAllGoroutines: those of one session exclude each other, in any number.
func TestMutex_CountsForAllGoroutines(t *testing.T) {
	c, addr := sessionClient(t)
	ctx := soon(t)
	var inside, sum int
	var guard sync.Mutex
	var all sync.WaitGroup
	for _, s := range []*client.Session{newSession(t, c, client.SessionOptions{}), newSession(t, dialSessions(t, addr), client.SessionOptions{})} {
		for range 8 {
			all.Go(func() {
				for range 5 {
					m := s.Mutex("x")
					if _, err := m.Lock(ctx); err != nil {
						t.Error(err)
						return
					}
					guard.Lock()
					if inside++; inside > 1 {
						t.Errorf("%d hold the lock", inside)
					}
					sum++
					guard.Unlock()
					guard.Lock()
					inside--
					guard.Unlock()
					if err := m.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	if all.Wait(); sum != 80 {
		t.Errorf("%d of 80", sum)
	}
}

func TestMutex_IsNotWaitedForAnyMore(t *testing.T) {
	c, addr := sessionClient(t)
	ctx := soon(t)
	a, b := newSession(t, c, client.SessionOptions{}), newSession(t, dialSessions(t, addr), client.SessionOptions{})
	m, o := a.Mutex("x"), b.Mutex("x")
	if _, err := m.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := o.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lock is waited for beyond the deadline: %v", err)
	}
	if err := m.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Lock(ctx); err != nil { // it is not the other's
		t.Error(err)
	}
}

// TestSession_IsLostInTime: the context of a holder is done although nobody tells it anything.
func TestSession_IsLostInTime(t *testing.T) {
	stop, so, _ := testnode.RunSockets(t, nil)
	c := dialSessions(t, so.HTTP.Addr().String())
	s := newSession(t, c, client.SessionOptions{TTL: 2 * time.Second})
	m := s.Mutex("x")
	held, err := m.Lock(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	<-held.Done()
	if m.Check() == nil || !errors.Is(context.Cause(held), isotone.ErrSessionExpired) || s.ValidFor() > 0 {
		t.Errorf("%v, %v, %v", m.Check(), context.Cause(held), s.ValidFor())
	}
	if err := m.Unlock(soon(t)); !errors.Is(err, isotone.ErrNotHeld) {
		t.Errorf("unlock: %v", err)
	}
}

func TestSession_IsConfirmed(t *testing.T) {
	stop, so, _ := testnode.RunSockets(t, nil)
	s := newSession(t, dialSessions(t, so.HTTP.Addr().String()), client.SessionOptions{})
	for range 3 {
		asked := time.Now()
		if err := s.Keep(soon(t)); err != nil || s.ValidFor() < time.Minute-time.Since(asked) {
			t.Errorf("%v; then it is valid for %v, %v later", err, s.ValidFor(), time.Since(asked))
		}
	}
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Keep(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an answer: %v", err)
	}
	_ = s.Close(ctx)
	if err := s.Keep(soon(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestSession_EndsWithItsClient(t *testing.T) {
	c, _ := sessionClient(t)
	s := newSession(t, c, client.SessionOptions{})
	m := s.Mutex("x")
	held, err := m.Lock(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	<-s.Done()
	<-held.Done()
	if !errors.Is(s.Err(), client.ErrClosed) {
		t.Error(s.Err())
	}
	if _, err := c.NewSession(soon(t), client.SessionOptions{}); !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

// TestMutex_SpeaksOfItsOwnHolder: not of another one of the same session.
func TestMutex_SpeaksOfItsOwnHolder(t *testing.T) {
	c, _ := sessionClient(t)
	s, ctx := newSession(t, c, client.SessionOptions{}), soon(t)
	a, b := s.Mutex("x"), s.Mutex("x")
	if a.Token64() != 0 {
		t.Error("it has a token before it is held")
	}
	for _, m := range []*client.Mutex{a, b} {
		if _, err := m.Lock(ctx); err != nil {
			t.Fatal(err)
		}
		if m == a {
			if err := a.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.Check(); !errors.Is(err, isotone.ErrNotHeld) {
		t.Errorf("check: %v", err)
	}
	if err := a.Unlock(ctx); !errors.Is(err, isotone.ErrNotHeld) {
		t.Errorf("unlock: %v", err)
	}
	if b.Check() != nil || a.Token64() == 0 || a.Token64() >= b.Token64() {
		t.Errorf("then the holder has %v; tokens %v, %v", b.Check(), a.Token64(), b.Token64())
	}
}

// TestSession_GivesUpItsLocksBeforeItCloses: the leader may grant them to others before it answers. Here it never does.
func TestSession_GivesUpItsLocksBeforeItCloses(t *testing.T) {
	stop, so, _ := testnode.RunSockets(t, nil)
	s := newSession(t, dialSessions(t, so.HTTP.Addr().String()), client.SessionOptions{})
	m := s.Mutex("x")
	held, err := m.Lock(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	<-held.Done()
	select {
	case <-s.Done():
		t.Error("the session has ended without an answer")
	default:
	}
	if m.Check() == nil || !errors.Is(context.Cause(held), client.ErrClosed) {
		t.Errorf("the holder has %v, and %v", m.Check(), context.Cause(held))
	}
	cancel()
	if err := <-closed; err == nil || !errors.Is(s.Err(), client.ErrClosed) {
		t.Errorf("%v, %v", err, s.Err())
	}
}

func TestSession_RefusesBadOptions(t *testing.T) {
	c, _ := sessionClient(t)
	for _, o := range []client.SessionOptions{{TTL: time.Millisecond}, {TTL: time.Hour}, {Linger: time.Hour}, {Linger: -1}, {TTL: time.Second + 1}} {
		if _, err := c.NewSession(soon(t), o); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s := newSession(t, c, client.SessionOptions{})
	if _, err := s.Mutex("").Lock(soon(t)); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("a lock without a name: %v", err)
	}
	if _, err := s.Mutex("x").Lock(soon(t)); err != nil {
		t.Error(err)
	}
}

// TestSession_IsRefused at once, by nodes that do not know the client or give it no right to sessions.
func TestSession_IsRefused(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {"a": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`, nil)
	for secret, want := range map[string]error{rig.Secret: isotone.ErrForbidden, "another": isotone.ErrUnauthorized} {
		c, err := client.NewWith(soon(t), client.Options{Addrs: []string{n.Client}, Credentials: client.StaticCredentials("a", secret), Lazy: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.NewSession(soon(t), client.SessionOptions{}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", secret, err, want)
		}
		_ = c.Close()
	}
}

func TestElection_TellsOthers(t *testing.T) {
	c, addr := sessionClient(t)
	ctx := soon(t)
	a, b := newSession(t, c, client.SessionOptions{}).Election("leader"), newSession(t, dialSessions(t, addr), client.SessionOptions{}).Election("leader")
	watching, stopWatching := context.WithCancel(ctx)
	seen := make(chan client.Holder, 10)
	go func() {
		defer close(seen)
		for h, err := range a.Observe(watching) {
			if err != nil {
				return
			}
			seen <- h
		}
	}()
	if h := <-seen; h != (client.Holder{}) {
		t.Errorf("%v leads before anybody was elected", h)
	}
	if _, err := a.Campaign(ctx, "10.0.0.7:80"); err != nil {
		t.Fatal(err)
	}
	if h := <-seen; h.Value != "10.0.0.7:80" || h.Token.Timestamp() != a.Token() {
		t.Errorf("%v leads", h)
	}
	elected := make(chan error, 1)
	go func() { _, err := b.Campaign(ctx, "10.0.0.8:80"); elected <- err }()
	if err := a.Resign(ctx); err != nil {
		t.Error(err)
	}
	if err := <-elected; err != nil {
		t.Error(err)
	}
	for h := range seen {
		if h.Value == "10.0.0.8:80" {
			break
		}
	}
	stopWatching()
	for range seen { // until it has ended
	}
}
