package k8slease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/adapters/k8slease"
	"github.com/isotone/isotone/client"
)

func leading(identity string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 60}
}

func TestLock_TellsWhoHoldsIt(t *testing.T) {
	c := dial(t)
	l := newLock(t, c, "tells", "a")
	ctx := soon(t)
	if r, raw, err := l.Get(ctx); err != nil || *r != (resourcelock.LeaderElectionRecord{}) {
		t.Errorf("nobody holds it: %s, %v", raw, err)
	}
	began := time.Now()
	if err := l.Create(ctx, leading("a")); err != nil {
		t.Fatal(err)
	}
	r, raw, err := l.Get(ctx)
	if err != nil || r.HolderIdentity != "a" || r.RenewTime.Time.Before(began) || r.AcquireTime.Time.Sub(began).Abs() > time.Minute || !strings.Contains(string(raw), `"token":"`+l.Token64().String()+`"`) {
		t.Errorf("a holds it: %s, %v", raw, err)
	}
	if other, _, err := newLock(t, dial(t), "tells", "b").Get(ctx); err != nil || other.HolderIdentity != "a" || other.LeaseDurationSeconds < 1 {
		t.Errorf("another candidate sees %+v, %v", other, err)
	}
	if err := l.Update(ctx, resourcelock.LeaderElectionRecord{}); err != nil {
		t.Error(err)
	}
	if r, _, err := l.Get(ctx); err != nil || r.HolderIdentity != "" {
		t.Errorf("it is released: %+v, %v", r, err)
	}
	if err := l.Update(ctx, resourcelock.LeaderElectionRecord{}); err != nil {
		t.Errorf("released once more: %v", err)
	}
	s, err := c.NewSession(ctx, client.SessionOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(ctx) }()
	m := s.Mutex("default/tells")
	if _, err := m.Lock(ctx); err != nil { // by a program that says nothing of itself
		t.Fatal(err)
	}
	if r, _, err := l.Get(ctx); err != nil || r.HolderIdentity != " (token "+m.Token64().String()+")" {
		t.Errorf("somebody else holds it: %+v, %v", r, err)
	}
	if err := l.Update(ctx, leading("a")); !errors.Is(err, isotone.ErrLocked) {
		t.Errorf("somebody else holds it: %v", err)
	}
}

// TestLock_IsNotThatOfAnEarlierProcess with the same identity.
func TestLock_IsNotThatOfAnEarlierProcess(t *testing.T) {
	a, b := newLock(t, dial(t), "restarts", "x"), newLock(t, dial(t), "restarts", "x")
	ctx := soon(t)
	if err := a.Create(ctx, leading("x")); err != nil {
		t.Fatal(err)
	}
	if r, _, err := b.Get(ctx); err != nil || r.HolderIdentity == "" || r.HolderIdentity == "x" {
		t.Errorf("an elector takes %+v for its own, %v", r, err)
	}
	if err := b.Update(ctx, leading("x")); !errors.Is(err, isotone.ErrLocked) {
		t.Errorf("two hold it: %v", err)
	}
	if err := b.Update(ctx, resourcelock.LeaderElectionRecord{}); err != nil {
		t.Error(err)
	}
	if err := a.Update(ctx, leading("x")); err != nil {
		t.Errorf("somebody else has released it: %v", err)
	}
	if err := errors.Join(a.Update(ctx, resourcelock.LeaderElectionRecord{}), b.Update(ctx, leading("x"))); err != nil || b.Token64() <= a.Token64() {
		t.Errorf("token %v after %v, %v", b.Token64(), a.Token64(), err)
	}
}

// TestLock_IsNotAcquiredAgain before its elector has noticed that it was lost.
func TestLock_IsNotAcquiredAgain(t *testing.T) {
	l := newLock(t, dial(t), "lost", "a")
	ctx := soon(t)
	if err := l.Create(ctx, leading("a")); err != nil {
		t.Fatal(err)
	}
	token := l.Token64()
	l.EndSession(ctx)
	for range 2 {
		if err := l.Update(ctx, leading("a")); !errors.Is(err, isotone.ErrNotHeld) || l.Token64() != token {
			t.Errorf("%v, token %v after %v", err, l.Token64(), token)
		}
	}
	if err := errors.Join(l.Update(ctx, resourcelock.LeaderElectionRecord{}), l.Update(ctx, leading("a"))); err != nil || l.Token64() <= token {
		t.Errorf("after a release: %v, token %v after %v", err, l.Token64(), token)
	}
}

// TestLock_IsNotRenewedLate: the time of a renewal counts from when the cluster was asked.
func TestLock_IsNotRenewedLate(t *testing.T) {
	l := newLock(t, dial(t), "late", "a")
	ctx := soon(t)
	if err := l.Create(ctx, leading("a")); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	if err := l.Update(ctx, leading("a")); err != nil || l.ValidFor() < time.Minute-time.Since(asked) {
		t.Errorf("%v; it is valid for %v, %v later", err, l.ValidFor(), time.Since(asked))
	}
	l.LengthenLease()
	if err := l.Update(ctx, leading("a")); !errors.Is(err, isotone.ErrDeadlineExceeded) {
		t.Errorf("renewed for half of the time: %v", err)
	}
}

func TestLock_RefusesBadInput(t *testing.T) {
	c := dial(t)
	for _, x := range []struct{ namespace, name, identity string }{
		{"default", "", "a"}, {"default", "x", ""}, {"default", "x", strings.Repeat("a", k8slease.IdentityMax+1)}, {"default", strings.Repeat("x", k8slease.NameMax-7), "a"},
	} {
		if _, err := k8slease.New(c, x.namespace, x.name, resourcelock.ResourceLockConfig{Identity: x.identity}); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	longest := newLock(t, c, strings.Repeat("x", k8slease.NameMax-8), strings.Repeat("a", k8slease.IdentityMax))
	if err := longest.Create(soon(t), leading(longest.Identity())); err != nil {
		t.Error(err)
	}
	l := newLock(t, c, "refuses", "a")
	for _, r := range []resourcelock.LeaderElectionRecord{{HolderIdentity: "a"}, {HolderIdentity: "a", LeaseDurationSeconds: 61}, leading("b")} {
		if err := l.Create(soon(t), r); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestLock_RecordsEvents(t *testing.T) {
	events := record.NewFakeRecorder(1)
	l, err := k8slease.New(dial(t), "default", "x", resourcelock.ResourceLockConfig{Identity: "a", EventRecorder: events})
	if err != nil {
		t.Fatal(err)
	}
	if l.RecordEvent("became leader"); <-events.Events != "Normal LeaderElection a became leader" {
		t.Error("it records something else")
	}
	newLock(t, dial(t), "x", "a").RecordEvent("became leader")
}
