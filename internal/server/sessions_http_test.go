package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// sessionUser asks about sessions over HTTP, each time over a connection of its own, as curl does.
type sessionUser struct {
	*testing.T
	addr, id string
}

// told is an answer about sessions.
type told struct {
	status         int
	Name           string
	Token, Token64 string
	Value          string
	ValidFor       int64
	Holds          []struct{ Name, Token, Token64 string }
	Frontiers      map[string]string
	Frontier       string
	First, Last    string
	Seals          []struct{ Group, Through string }
	Holder         struct{ Value, Token64 string }
	Ticket         string
	Locks          []struct{ Name, Token64 string }
	Error          struct{ Code, Message string }
}

// sends sends a request, and returns its answer when it comes.
func (a *sessionUser) sends(ctx context.Context, method, target string) <-chan told {
	done := make(chan told, 1)
	go func() {
		defer close(done)
		r, err := http.NewRequestWithContext(ctx, method, "http://"+a.addr+strings.ReplaceAll(target, "ID", a.id), nil)
		if err != nil {
			a.Error(err)
			return
		}
		r.Close = true
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			if ctx.Err() == nil {
				a.Error(err)
			}
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		t := told{status: answer.StatusCode}
		if err := json.Unmarshal(body, &t); err != nil {
			a.Errorf("%s %s: %q, %v", method, target, body, err)
		}
		done <- t
	}()
	return done
}

// asks returns the answer to a request, once the node leads.
func (a *sessionUser) asks(method, target string) (t told) {
	a.Helper()
	await.Until(a.T, method+" "+target+" is answered", func() bool {
		t = await.Receive(a.T, method+" "+target, a.sends(a.Context(), method, target))
		return t.status != http.StatusServiceUnavailable
	})
	return t
}

func (a *sessionUser) wants(what string, t told, code string) told {
	a.Helper()
	if t.Error.Code != code || (t.status == http.StatusOK) != (code == "") {
		a.Fatalf("%s: %+v, want %q", what, t, code)
	}
	return t
}

// waitsFor returns once a request of the session waits for a lock: then all further ones have its place.
func (a *sessionUser) waitsFor(lock string) {
	a.Helper()
	ticket := ""
	await.Until(a.T, "the lock is waited for", func() bool {
		before := ticket
		ticket = a.asks("PUT", "/locks/"+lock+"?session=ID&wait=1ms").Ticket
		return ticket != "" && ticket == before
	})
}

// TestSessions_OverHTTPTwoExcludeEachOther: tokens grow, a session that stops asking loses its lock, and so does one whose client deletes it.
func TestSessions_OverHTTPTwoExcludeEachOther(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {}}`, func(s *config.Settings) { s.Loops, s.ACLFile = 2, "" })
	first, second := &sessionUser{t, n.Client, "00000000000000c1"}, &sessionUser{t, n.Client, "00000000000000c2"}
	first.wants("a lock without a session", first.asks("PUT", "/locks/shop/nightly?session=ID"), "not_bound")
	if a := first.wants("PUT", first.asks("PUT", "/sessions/ID?ttl=60s"), ""); a.ValidFor != 60_000 || len(a.Holds) != 0 {
		t.Errorf("PUT /sessions: %+v", a)
	}
	second.wants("PUT", second.asks("PUT", "/sessions/ID?ttl=60s"), "")
	one := first.wants("a lock", first.asks("PUT", "/locks/shop/nightly?session=ID&value=me"), "")
	if again := first.wants("the lock again", first.asks("PUT", "/locks/shop%2Fnightly?session=ID&wait=9s"), ""); again.Token != one.Token || again.Name != "shop/nightly" || again.ValidFor < 60_000 {
		t.Errorf("the lock again: %+v, after %+v", again, one)
	}
	if a := first.asks("PUT", "/sessions/ID?ttl=60s"); len(a.Holds) != 1 || a.Holds[0].Token != one.Token || a.Holds[0].Name != "shop/nightly" {
		t.Errorf("it holds %+v", a)
	}
	if a := second.wants("a lock that is held", second.asks("PUT", "/locks/shop/nightly?session=ID"), "locked"); a.Holder.Value != "me" || a.Holder.Token64 != one.Token64 || a.Ticket != "" {
		t.Errorf("a lock that is held: %+v", a)
	}
	second.wants("the first one's token", second.asks("DELETE", "/locks/shop/nightly?session=ID&token="+one.Token), "not_held")
	queued := second.wants("a lock that is held", second.asks("PUT", "/locks/shop/nightly?session=ID&wait=20ms"), "locked")
	if again := second.asks("PUT", "/locks/shop/nightly?session=ID&wait=20ms&ticket="+queued.Ticket); len(queued.Ticket) != 32 || again.Ticket != queued.Ticket {
		t.Errorf("a lock that is held for longer: %+v, then %+v", queued, again)
	}
	if a := first.asks("GET", "/locks/shop/nightly"); a.Token64 != one.Token64 || a.Value != "me" {
		t.Errorf("GET: %+v", a)
	}
	seen := second.sends(t.Context(), "GET", "/locks/shop/nightly?wait=30s&after="+one.Token)
	next := second.sends(t.Context(), "PUT", "/locks/shop/nightly?session=ID&wait=30s")
	second.waitsFor("shop/nightly")
	first.wants("DELETE", first.asks("DELETE", "/locks/shop/nightly?session=ID&token="+one.Token), "")
	two := second.wants("the lock", await.Receive(t, "the lock", next), "")
	if two.Token <= one.Token || two.ValidFor < 60_000 {
		t.Errorf("token %s after %s, valid for %d ms", two.Token, one.Token, two.ValidFor)
	}
	if a := await.Receive(t, "the next holder", seen); a.Token64 == one.Token64 {
		t.Errorf("who has it next: %+v", a)
	}
	if a := first.asks("GET", "/locks?prefix=shop/"); len(a.Locks) != 1 || a.Locks[0].Token64 != two.Token64 {
		t.Errorf("the list: %+v", a)
	}
	first.wants("its token again", first.asks("DELETE", "/locks/shop/nightly?session=ID&token="+one.Token64), "not_held")
	second.wants("the end", second.asks("DELETE", "/sessions/ID"), "")
	second.wants("the end again", second.asks("DELETE", "/sessions/ID"), "")
	second.wants("a lock of a session that has ended", second.asks("PUT", "/locks/shop/nightly?session=ID"), "session_expired")
	second.wants("a session that has ended", second.asks("PUT", "/sessions/ID?ttl=60s"), "session_expired")

	brief := &sessionUser{t, n.Client, "00000000000000c3"}
	brief.asks("PUT", "/sessions/ID?ttl=300ms")
	three := brief.wants("the lock", brief.asks("PUT", "/locks/shop/nightly?session=ID&wait=300ms"), "")
	four := first.wants("the lock of a session that stops asking", first.asks("PUT", "/locks/shop/nightly?session=ID&wait=30s"), "")
	if three.Token <= two.Token || four.Token <= three.Token {
		t.Errorf("tokens %s, %s, %s", two.Token, three.Token, four.Token)
	}
	brief.wants("its release", brief.asks("DELETE", "/locks/shop/nightly?session=ID&token="+three.Token), "session_expired")
}

// TestSessions_OverHTTPAClientThatGoesWaitsNoLonger, and one that waits keeps its session.
func TestSessions_OverHTTPAClientThatGoesWaitsNoLonger(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {}}`, func(s *config.Settings) { s.Loops, s.ACLFile = 2, "" })
	holder, gone, patient := &sessionUser{t, n.Client, "00000000000000d1"}, &sessionUser{t, n.Client, "00000000000000d2"}, &sessionUser{t, n.Client, "00000000000000d3"}
	holder.asks("PUT", "/sessions/ID?ttl=60s")
	gone.asks("PUT", "/sessions/ID?ttl=60s")
	patient.asks("PUT", "/sessions/ID?ttl=200ms")
	waits := patient.sends(t.Context(), "PUT", "/locks/other?session=ID&wait=30s")
	patient.wants("a free lock", await.Receive(t, "a free lock", waits), "")
	one := holder.wants("the lock", holder.asks("PUT", "/locks/x?session=ID"), "")
	ctx, cancel := context.WithCancel(t.Context())
	left := gone.sends(ctx, "PUT", "/locks/x?session=ID&wait=30s")
	gone.waitsFor("x")
	cancel()
	<-left
	waits = patient.sends(t.Context(), "PUT", "/locks/x?session=ID&wait=30s")
	time.Sleep(time.Second) // five TTLs: without its request the session would have ended
	holder.wants("the release", holder.asks("DELETE", "/locks/x?session=ID&token="+one.Token), "")
	two := patient.wants("the lock", await.Receive(t, "the lock", waits), "")
	if two.Token <= one.Token || two.ValidFor < 200+500 || two.ValidFor > 200+30_000 {
		t.Errorf("token %s after %s, valid for %d ms from when it was asked for", two.Token, one.Token, two.ValidFor)
	}
	if a := gone.asks("PUT", "/sessions/ID?ttl=60s"); len(a.Holds) != 0 {
		t.Errorf("a session whose client does not wait holds %+v", a)
	}
}

// TestSessions_OverHTTPAFrontierFollowsItsWriters, who seal what nobody answers for.
func TestSessions_OverHTTPAFrontierFollowsItsWriters(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {}}`, func(s *config.Settings) { s.Loops, s.ACLFile = 2, "" })
	w := &sessionUser{t, n.Client, "00000000000000e1"}
	w.wants("a session", w.asks("PUT", "/sessions/ID?ttl=60s"), "")
	w.wants("a group that is not named", w.asks("POST", "/frontier/shop/orders/take?session=ID"), "invalid_argument")
	if a := w.wants("a group", w.asks("PUT", "/sessions/ID?ttl=60s&group=shop/orders"), ""); len(a.Frontiers["shop/orders"]) != 32 {
		t.Errorf("a group: %+v", a)
	}
	var seal told
	await.Until(t, "a seal is asked for", func() bool {
		seal = w.asks("PUT", "/sessions/ID?ttl=60s")
		return len(seal.Seals) == 1
	})
	w.wants("SEALED", w.asks("POST", "/frontier/shop/orders/sealed?session=ID&stamp="+seal.Seals[0].Through), "")
	taken := w.wants("TAKE", w.asks("POST", "/frontier/shop/orders/take?session=ID&n=3"), "")
	if len(taken.First) != 32 || taken.First[:31] != taken.Last[:31] {
		t.Fatalf("stamps: %+v", taken)
	}
	if a := w.asks("GET", "/frontier/shop/orders"); a.Frontier >= taken.First || a.Frontier < seal.Seals[0].Through {
		t.Errorf("the frontier is %s, with writes from %s on outstanding", a.Frontier, taken.First)
	}
	events := follows(t, "http://"+n.Client+"/frontier/shop/orders")
	before := await.Receive(t, "the frontier", events)
	reached := w.sends(t.Context(), "GET", "/frontier/shop/orders?wait=30s&min="+taken.Last)
	above, err := isotone.ParseTimestamp(taken.Last)
	if err != nil {
		t.Fatal(err)
	}
	above.Index++
	w.wants("LOW", w.asks("POST", fmt.Sprintf("/frontier/shop/orders/low?session=ID&stamp=%v", above)), "")
	if a := await.Receive(t, "the frontier", reached); a.Frontier < taken.Last {
		t.Errorf("the frontier is %s, when all up to %s are decided", a.Frontier, taken.Last)
	}
	if after := await.Receive(t, "the frontier", events); !strings.HasPrefix(before, "frontier ") || after <= before || !strings.Contains(after, `"group":"shop/orders"`) {
		t.Errorf("events: %q, %q", before, after)
	}
}

// TestSessions_OverHTTPAreTold who holds a lock, and that they have ended.
func TestSessions_OverHTTPAreTold(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {}}`, func(s *config.Settings) { s.Loops, s.ACLFile = 2, "" })
	a := &sessionUser{t, n.Client, "00000000000000f1"}
	a.asks("PUT", "/sessions/ID?ttl=60s")
	lock, session := follows(t, "http://"+n.Client+"/locks/x"), follows(t, "http://"+n.Client+"/sessions/"+a.id)
	if got := await.Receive(t, "an event", lock); got != `free {"name":"x"}` {
		t.Errorf("nobody has it: %q", got)
	}
	held := a.wants("the lock", a.asks("PUT", "/locks/x?session=ID&value=me"), "")
	if got := await.Receive(t, "an event", lock); !strings.HasPrefix(got, `held {"name":"x","token":"`+held.Token+`"`) {
		t.Errorf("it is held: %q", got)
	}
	a.asks("DELETE", "/sessions/ID")
	if got := await.Receive(t, "an event", lock); got != `free {"name":"x"}` {
		t.Errorf("nobody has it: %q", got)
	}
	if got := await.Receive(t, "an event", session); !strings.HasPrefix(got, `error {"error":{"code":"session_expired"`) {
		t.Errorf("the end: %q", got)
	}
}

// follows returns the events of a stream, each as its name and its data.
func follows(t *testing.T, url string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", answer, err)
	}
	events := make(chan string, 1000)
	go func() {
		defer close(events)
		defer answer.Body.Close()
		name := ""
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = event
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- name + " " + data
			}
		}
	}()
	return events
}
