package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/front"
)

// lockClients are two clients of a node that has started alone.
func lockClients(t *testing.T) (addr string, list [2]*client.Client) {
	m, _ := startAlone(t, "0")
	addr = loopback(t, m)
	for i := range list {
		c, err := client.New(rig.Soon(t), addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		list[i] = c
	}
	return addr, list
}

func TestLocks_AreListedAndBroken(t *testing.T) {
	t.Parallel()
	addr, clients := lockClients(t)
	s, err := clients[0].NewSession(rig.Soon(t), client.SessionOptions{TTL: time.Second, Label: "batch-7"})
	if err != nil {
		t.Fatal(err)
	}
	m := s.Mutex("shop/nightly")
	held, err := m.Lock(rig.Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	code, out, text := command("locks", "list", "shop/", "--json", "--endpoint", addr)
	var l front.LockList
	if err := json.Unmarshal([]byte(out), &l); code != 0 || err != nil || len(l.Locks) != 1 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, text)
	}
	if r := l.Locks[0]; r.Name != "shop/nightly" || r.Token != m.Token().String() || r.Token64 != m.Token64() || r.Label != "batch-7" || len(r.Session) != 16 || !strings.HasPrefix(r.Since, "20") {
		t.Errorf("%+v", r)
	}
	token := m.Token64().String()
	wantRun(t, 0, "batch-7", "", "locks", "list", "--endpoint", addr)
	wantRun(t, 0, "NAME", "", "locks", "list", "other/", "--endpoint", addr)
	wantRun(t, 2, "", "want 32 hexadecimal digits", "locks", "break", "shop/nightly", "x", "--yes", "--endpoint", addr)
	wantRun(t, 1, "", "nobody holds the lock", "locks", "break", "shop", token, "--yes", "--endpoint", addr)
	wantRun(t, 1, "", "is held with token "+token, "locks", "break", "shop/nightly", "5", "--yes", "--endpoint", addr)
	wantRun(t, 0, "loses the lock, which is free in", "", "locks", "break", "shop/nightly", m.Token().String(), "--yes", "--endpoint", addr)
	<-held.Done()
	<-s.Done()
	if !errors.Is(s.Err(), isotone.ErrSessionExpired) {
		t.Errorf("the session has ended because of %v", s.Err())
	}
	other, err := clients[1].NewSession(rig.Soon(t), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next := other.Mutex("shop/nightly").WithValue("10.0.0.7")
	if _, err := next.Lock(rig.Soon(t)); err != nil || next.Token64() <= m.Token64() {
		t.Fatalf("token %v after %v, %v", next.Token64(), token, err)
	}
	wantRun(t, 0, "10.0.0.7", "", "locks", "list", "shop", "--endpoint", addr)
	wantRun(t, 1, "", "is held with token", "locks", "break", "shop/nightly", token, "--yes", "--endpoint", addr)
}

func TestFrontier_Commands(t *testing.T) {
	t.Parallel()
	addr, clients := lockClients(t)
	w, err := clients[0].NewFrontier(rig.Soon(t), "orders", client.FrontierOptions{Fence: openFence{}, TTL: time.Minute, Linger: time.Minute, Label: "importer"})
	if err != nil {
		t.Fatal(err)
	}
	code, out, text := command("frontier", "wait", "orders", "--endpoint", addr)
	if _, err := isotone.ParseTimestamp(strings.TrimSuffix(out, "\n")); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, text)
	}
	op, err := w.Begin(rig.Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, "importer", "", "frontier", "blockers", "orders", "--endpoint", addr)
	code, out, text = command("frontier", "blockers", "orders", "--json", "--endpoint", addr)
	var l front.BlockerList
	if err := json.Unmarshal([]byte(out), &l); code != 0 || err != nil || len(l.Blockers) != 1 || l.Blockers[0].Low != op.Stamp().String() || !l.Blockers[0].Connected {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, text)
	}
	// Until it has a connection within the time, it has no answer at all.
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		code, out, text := command("frontier", "wait", "orders", op.Stamp().String(), "--timeout", wait.String(), "--endpoint", addr)
		if code != 1 || out != "" {
			t.Fatalf("exit code %d, %s%s", code, out, text)
		}
		if strings.Contains(text, "see: isotone frontier blockers orders") {
			break
		}
		if !strings.Contains(text, "no answer") || wait > time.Minute {
			t.Fatal(text)
		}
	}
	op.Done()
	wantRun(t, 0, `{"group":"orders","frontier":"`, "", "frontier", "wait", "orders", op.Stamp().String(), "--json", "--endpoint", addr)
	wantRun(t, 0, "", "", "frontier", "watch", "orders", "-n", "2", "--endpoint", addr)
	wantRun(t, 2, "", "want a timestamp", "frontier", "wait", "orders", "x", "--endpoint", addr)
	wantRun(t, 0, "it waits for nothing", "", "frontier", "blockers", "nobody", "--endpoint", addr)
}

// openFence is that of a store that nobody writes to.
type openFence struct{}

func (openFence) Seal(_ context.Context, _ isotone.Timestamp) error { return nil }
