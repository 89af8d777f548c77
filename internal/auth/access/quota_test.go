package access_test

import (
	"errors"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

// TestQuota_Rates: a second's worth at once, then as much as comes with time; a request beyond
// that is served, and waited for afterwards.
func TestQuota_Rates(t *testing.T) {
	now := new(atomic.Int64)
	c := open(t, access.Config{
		File:      users(t, "", `{"users": {}, "addressLimits": {"requests": 10, "timestamps": 1000}}`),
		Anonymous: new(access.All), Now: func() time.Duration { return time.Duration(now.Load()) },
	})
	s, other := session(t, c, elsewhere), session(t, c, netip.MustParseAddr("192.0.2.8"))
	second := session(t, c, elsewhere)
	now.Store(int64(time.Hour))
	for i := range 10 {
		if err := []*access.Session{s, second}[i%2].Take(1, 1); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	err := s.Take(1, 1)
	var e *isotone.Error
	if !errors.As(err, &e) || e.Code != isotone.CodeQuotaExceeded || e.RetryAfter != 100*time.Millisecond {
		t.Errorf("%v, retry after %v", err, e.RetryAfter)
	}
	if err := other.Take(1, 1); err != nil {
		t.Errorf("another address: %v", err)
	}
	now.Add(int64(100 * time.Millisecond))
	if err := s.Take(1, 1); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	if err := s.Take(1, 1); err == nil {
		t.Error("twice after the wait")
	}
	now.Add(int64(10 * time.Second))
	if err := s.Take(1, 3000); err != nil {
		t.Errorf("beyond the rate: %v", err)
	}
	if err := s.Take(1, 1); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("after it: %v", err)
	}
	now.Add(int64(3 * time.Second))
	if err := s.Take(1, 1); err != nil {
		t.Errorf("3 s after it: %v", err)
	}
	now.Add(int64(time.Second))
	if err := s.Take(1, 1<<40); err != nil {
		t.Errorf("many: %v", err)
	}
	now.Add(int64(time.Hour))
	if err := s.Take(1, 1); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("after many: %v", err)
	}
}

// TestQuota_ConnectionsAndStreams of an address and of a user.
func TestQuota_ConnectionsAndStreams(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {"alice": {"roles": ["live"], "secrets": ["HASH"], "limits": {"connections": 1, "streams": 1}}}, "addressLimits": {"connections": 3}}`)})
	var all []access.Session
	for range 3 {
		s, err := c.Open(elsewhere, nil, access.ClientPool)
		if err != nil {
			t.Fatal(err)
		}
		s.BeginHandshake()
		s.HandshakeDone()
		all = append(all, s)
	}
	if _, err := c.Open(elsewhere, nil, access.ClientPool); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("a fourth connection: %v", err)
	}
	if err := prove(t, &all[0], "alice", secret); err != nil {
		t.Fatal(err)
	}
	if err := prove(t, &all[1], "alice", secret); !errors.Is(err, isotone.ErrQuotaExceeded) || all[1].Name() != "" {
		t.Errorf("a second connection of alice: %v", err)
	}
	done, err := all[0].TakeStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].TakeStream(); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("a second stream: %v", err)
	}
	done()
	if done, err = all[0].TakeStream(); err != nil {
		t.Error(err)
	} else {
		done()
	}
	all[0].Close()
	all[0].Close()
	if err := prove(t, &all[1], "alice", secret); err != nil {
		t.Errorf("the first connection is closed: %v", err)
	}
	next, err := c.Open(elsewhere, nil, access.ClientPool)
	if err != nil {
		t.Errorf("the first connection is closed: %v", err)
	}
	for _, s := range []*access.Session{&all[1], &all[2], &next} {
		s.Close()
	}
}

// TestQuota_Workers counts leases that run; extending one takes no other.
func TestQuota_Workers(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {}, "addressLimits": {"workers": 2}}`), Anonymous: new(access.All)})
	s := session(t, c, elsewhere)
	later := time.Now().Add(time.Hour).UnixMilli()
	lease := func(id uint64, fixed, got int, end int64) error {
		settle, err := s.TakeWorker(id, fixed)
		if err == nil {
			settle(got, 1, end)
		}
		return err
	}
	if err := errors.Join(lease(1, -1, 500, later), lease(1, -1, 0, 0), lease(2, -1, 501, later), lease(1, 500, 500, later)); err != nil {
		t.Fatal(err)
	}
	if err := lease(3, -1, 502, later); !errors.Is(err, isotone.ErrQuotaExceeded) {
		t.Errorf("a third: %v", err)
	}
	// A lease that is given back with another beginning is kept, and one that is given back until its end, or beyond, is as long
	// as before: its worker is not free. The session that has given it back has none to extend.
	s.GiveBackWorker(1, 500, 2, 0)
	s.GiveBackWorker(1, 501, 1, 0)
	s.GiveBackWorker(1, 500, 1, later)
	s.GiveBackWorker(1, 500, 1, math.MaxInt64)
	for _, id := range []uint64{1, 3} {
		if err := lease(id, -1, 502, later); !errors.Is(err, isotone.ErrQuotaExceeded) {
			t.Errorf("session %d after none was given back: %v", id, err)
		}
	}
	s.GiveBackWorker(1, 500, 1, 0)
	if err := lease(3, -1, 502, time.Now().UnixMilli()-1); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	if err := lease(4, -1, 503, later); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	held, err := s.TakeWorker(2, 501) // extends, and is not answered yet
	if err != nil {
		t.Fatal(err)
	}
	held(501, 1, later)
}

// TestQuota_WorkersOfThisMachineAreOfOne: a program has as many loopback addresses as it likes.
func TestQuota_WorkersOfThisMachineAreOfOne(t *testing.T) {
	c := open(t, access.Config{File: users(t, "", `{"users": {}, "addressLimits": {"workers": 2}}`), Anonymous: new(access.All)})
	for i, addr := range []string{"127.0.0.1", "127.255.3.4", "::1", "::ffff:127.0.0.2"} {
		s := session(t, c, netip.MustParseAddr(addr))
		settle, err := s.TakeWorker(uint64(i+1), -1)
		if (err == nil) != (i < 2) {
			t.Errorf("%s asks for worker %d: %v", addr, i+1, err)
		}
		if err == nil {
			settle(i, 1, time.Now().Add(time.Hour).UnixMilli())
		}
	}
}

// TestQuota_DefaultForWorkers: one address cannot take all.
func TestQuota_DefaultForWorkers(t *testing.T) {
	s := session(t, open(t, access.Config{}), here)
	later := time.Now().Add(time.Hour).UnixMilli()
	for i := range 1016 {
		settle, err := s.TakeWorker(uint64(i+1), -1)
		if err != nil {
			if i != 256 || !errors.Is(err, isotone.ErrQuotaExceeded) {
				t.Errorf("lease %d: %v", i, err)
			}
			return
		}
		settle(i, 1, later)
	}
	t.Error("one address got all workers")
}
