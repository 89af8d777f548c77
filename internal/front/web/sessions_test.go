package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/web"
)

// sessions is the core of a leader in a test, which answers when it is told to.
type sessions struct {
	*testing.T
	*leaderOfSessions
}

type leaderOfSessions struct {
	asked   chan *front.SessionRequest
	watched chan *front.SessionWatch

	mu    sync.Mutex
	conns session.Conn
	tells map[session.Conn]func(session.Message)
}

func (s *leaderOfSessions) OpenSession(tell func(session.Message)) session.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns++
	s.tells[s.conns] = tell
	return s.conns
}

func (s *leaderOfSessions) CloseSession(conn session.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tells, conn)
}

func (s *leaderOfSessions) AskSession(r *front.SessionRequest)  { s.asked <- r }
func (s *leaderOfSessions) WatchSessions(w *front.SessionWatch) { s.watched <- w }

// hears returns the next request, but for those that only keep a session alive: these are answered.
func (s *sessions) hears(what string) *front.SessionRequest {
	s.Helper()
	for {
		r := await.Receive(s.T, what, s.asked)
		if r.Bind == nil && r.Lock == nil && r.Group == "" && !r.Show && r.End == 0 && len(r.Lows)+len(r.Doubts)+len(r.Sealed) == 0 {
			s.says(r, nil)
			continue
		}
		return r
	}
}

// says answers a request.
func (s *sessions) says(r *front.SessionRequest, err error, holds ...session.Hold) {
	r.Err, r.Reply = err, session.Reply{Outcome: session.Alive, Holds: holds}
	r.Done(r)
}

// tell sends a message to a connection.
func (s *sessions) tell(conn session.Conn, m session.Message) {
	s.mu.Lock()
	tell := s.tells[conn]
	s.mu.Unlock()
	if m.Conn = conn; tell != nil {
		tell(m)
	}
}

// open returns how many connections are open.
func (s *sessions) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tells)
}

func startSessions(t *testing.T) (*site, *sessions) {
	k := &sessions{t, &leaderOfSessions{
		asked: make(chan *front.SessionRequest, 1000), watched: make(chan *front.SessionWatch, 1000), tells: map[session.Conn]func(session.Message){},
	}}
	s := start(t, func(c *web.Config) { c.Sessions = k })
	leads := *s.backend.Status()
	leads.Leader, leads.LeaderAddr = leads.NodeID, "127.0.0.1:8082"
	s.backend.status.Store(&leads)
	return s, k
}

// sends sends a request whose answer comes later.
func (c *client) sends(ctx context.Context, method, target string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		defer close(done)
		r, err := http.NewRequestWithContext(ctx, method, c.scheme+"://"+c.addr+target, nil)
		if err != nil {
			return
		}
		if response, err := c.Do(r); err == nil {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			done <- answer{response, body}
		}
	}()
	return done
}

const (
	sessionA = "/sessions/00000000000000aa"
	lockX    = "/locks/x?session=00000000000000aa"
	tokenX   = isotone.Timestamp64(470780841959217570)
)

// binds begins session A.
func (s *sessions) binds(c *client) session.Conn {
	s.Helper()
	a := c.sends(s.Context(), "PUT", sessionA+"?ttl=1m")
	r := s.hears("BIND")
	if r.Bind == nil {
		s.Fatalf("it is asked for %+v", r.Request)
	}
	s.says(r, nil)
	wantBody(s.T, "PUT", await.Receive(s.T, "the answer", a), 200, `{"session":"00000000000000aa","validFor":60000,"holds":[]}`)
	return r.Conn
}

func wantBody(t *testing.T, what string, a answer, status int, body string) {
	t.Helper()
	if a.Response == nil || a.StatusCode != status || !strings.HasPrefix(string(a.body), body) {
		t.Errorf("%s: %v %s, want %d %s", what, a.Response, a.body, status, body)
	}
}

func TestSessions_AreBoundOverEachProtocol(t *testing.T) {
	s, k := startSessions(t)
	for i, p := range protocols {
		c := s.client(t, p)
		id := fmt.Sprintf("%016x", i+1)
		a := c.sends(t.Context(), "PUT", "/sessions/"+id+"?ttl=3s&linger=1500ms&group=b&group=a%20b&epoch=7")
		r := k.hears("BIND")
		b := r.Bind
		if b == nil || b.ID != session.ID(i+1) || b.TTL != 3*time.Second || b.Linger != 1500*time.Millisecond || b.Epoch != 7 || len(b.Reports) != 2 || b.Reports[1].Group != "a b" || !b.Reports[0].High.Before(b.Reports[0].Low) {
			t.Fatalf("%s: %+v", p, b)
		}
		r.Err, r.Reply = nil, session.Reply{Holds: []session.Hold{{Name: "shop/é", Token: tokenX}}, Frontiers: []session.GroupStamp{{Group: "b", Stamp: isotone.Timestamp{Time: 1, Index: 10}}}}
		r.Done(r)
		wantBody(t, p, await.Receive(t, "the answer", a), 200, `{"session":"`+id+`","validFor":3000,"holds":[{"name":"shop/é","token":"`+tokenX.Timestamp().String()+`","token64":"470780841959217570"}],`+
			`"frontiers":{"b":"0000000000000001000000000000000a"}}`)
		k.tell(r.Conn, session.Message{Kind: session.MessageSeal, Group: "b", Through: isotone.Timestamp{Time: 5}})
		k.tell(r.Conn, session.Message{Kind: session.MessageFenced, Group: "b", Low: isotone.Timestamp{Time: 6}, Through: isotone.Timestamp{Time: 7}})
		k.tell(r.Conn, session.Message{Kind: session.MessageFenced, Group: "b", Low: isotone.Timestamp{Time: 8}, Through: isotone.Timestamp{Time: 9}})
		a = c.sends(t.Context(), "PUT", "/sessions/"+id+"?ttl=3s&linger=1500ms&group=c")
		if r = k.hears("KEEP"); r.Bind != nil || !r.Show || len(r.Join) != 1 || r.Join[0] != "c" {
			t.Fatalf("%s: %+v", p, r.Request)
		}
		k.says(r, nil)
		wantBody(t, p, await.Receive(t, "the answer", a), 200, `{"session":"`+id+`","validFor":3000,"holds":[],"seals":[{"group":"b","through":"00000000000000050000000000000000"}],`+
			`"fenced":[{"group":"b","low":"00000000000000060000000000000000","through":"00000000000000090000000000000000"}]}`)
		a = c.sends(t.Context(), "POST", "/frontier/b/sealed?session="+id+"&stamp=00000000000000050000000000000000")
		if r = k.hears("SEALED"); len(r.Sealed) != 1 || r.Sealed[0] != (session.GroupStamp{Group: "b", Stamp: isotone.Timestamp{Time: 5}}) {
			t.Fatalf("%s: %+v", p, r.Request)
		}
		k.says(r, nil)
		wantBody(t, p, await.Receive(t, "the answer", a), 200, `{"fenced":[`)
		a = c.sends(t.Context(), "DELETE", "/sessions/"+id)
		if r = k.hears("the end"); r.End != session.ID(i+1) {
			t.Fatalf("%s: %+v", p, r.Request)
		}
		k.says(r, nil)
		wantBody(t, p, await.Receive(t, "the answer", a), 200, `{"session":"`+id+`"}`)
	}
}

func TestSessions_RefuseWhatIsWrong(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "http1")
	k.binds(c)
	const a = "?session=00000000000000aa"
	for _, tt := range []struct {
		method, target string
		status         int
		code           isotone.Code
	}{
		{"PUT", "/sessions/1?ttl=3s", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/0000000000000000?ttl=3s", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab?ttl=3", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab?ttl=99ms", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab?ttl=3s&linger=61s", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab?ttl=3s&ttl=4s", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab?ttl=3s&epoch=0", 400, isotone.CodeInvalidArgument},
		{"PUT", "/sessions/00000000000000ab?ttl=3s&group=", 400, isotone.CodeInvalidArgument},
		{"PUT", sessionA + "?ttl=3s", 400, isotone.CodeInvalidArgument}, // its TTL is a minute
		{"POST", sessionA, 405, isotone.CodeInvalidArgument},
		{"PUT", "/locks/x", 400, isotone.CodeInvalidArgument},
		{"PUT", "/locks/x?session=x", 400, isotone.CodeInvalidArgument},
		{"PUT", "/locks/" + a, 400, isotone.CodeInvalidArgument},
		{"PUT", "/locks/%ff" + a, 400, isotone.CodeInvalidArgument},
		{"PUT", "/locks/x" + a + "&wait=-1s", 400, isotone.CodeInvalidArgument},
		{"PUT", "/locks/x" + a + "&value=%ff", 400, isotone.CodeInvalidArgument},
		{"PUT", "/locks/x?session=00000000000000ab", 409, isotone.CodeNotBound},
		{"DELETE", "/locks/x" + a, 400, isotone.CodeInvalidArgument},
		{"DELETE", "/locks/x" + a + "&token=7", 400, isotone.CodeInvalidArgument},
		{"DELETE", "/locks/x" + a + "&token=470780841959217570", 409, isotone.CodeNotHeld},
		{"POST", "/locks/x", 405, isotone.CodeInvalidArgument},
		{"PUT", "/locks?prefix=x", 405, isotone.CodeInvalidArgument},
		{"POST", "/frontier/orders", 404, isotone.CodeNotFound},
		{"POST", "/frontier//take" + a, 404, isotone.CodeNotFound},
		{"POST", "/frontier/orders/take", 400, isotone.CodeInvalidArgument},
		{"POST", "/frontier/orders/take" + a + "&n=0", 400, isotone.CodeInvalidArgument},
		{"POST", "/frontier/orders/take" + a + "&n=4294967296&u64=1", 400, isotone.CodeInvalidArgument},
		{"POST", "/frontier/orders/low" + a, 400, isotone.CodeInvalidArgument},
		{"POST", "/frontier/orders/low" + a + "&stamp=1", 400, isotone.CodeInvalidArgument},
		{"GET", "/frontier/orders?min=1", 400, isotone.CodeInvalidArgument},
	} {
		got := c.do(t, tt.method, tt.target, nil)
		if !strings.Contains(string(got.body), `{"error":{"code":"`+string(tt.code)+`","message":"`) || got.StatusCode != tt.status {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.target, got.StatusCode, got.body, tt.status, tt.code)
		}
	}
	if got := c.do(t, "PUT", sessionA+"?ttl=60s", strings.NewReader("x")); got.StatusCode != 400 {
		t.Errorf("a body: %d", got.StatusCode)
	}
	if len(k.asked) > 0 {
		t.Errorf("the leader was asked for %+v", (<-k.asked).Request)
	}
	follows := *s.backend.Status()
	follows.Leader, follows.LeaderAddr = 1, "127.0.0.1:8081"
	s.backend.status.Store(&follows)
	if got := c.do(t, "PUT", "/locks/x?session=00000000000000ab", nil); got.StatusCode != 409 || got.Header.Get("Isotone-Leader") != "127.0.0.1:8081" || !strings.Contains(string(got.body), `"not_leader"`) {
		t.Errorf("where another node leads: %d %v %s", got.StatusCode, got.Header, got.body)
	}
	wantFault(t, start(t).client(t, "http1").do(t, "PUT", sessionA+"?ttl=3s", nil), 404, isotone.CodeNotFound)
}

// granted is told to whoever waits for the lock "x".
func granted(token isotone.Timestamp64) session.Message {
	return session.Message{Kind: session.MessageGranted, Name: "x", Token: token}
}

func TestLocks_AreToldOnceTheyAreGranted(t *testing.T) {
	s, k := startSessions(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		k := &sessions{t, k.leaderOfSessions}
		conn := k.binds(c)
		a := c.sends(t.Context(), "PUT", lockX+"&wait=30s&value=me&ticket=0000000000000001000000000000000a")
		r := k.hears("LOCK")
		if want := (session.LockRequest{Op: session.LockAcquire, Name: "x", Value: "me", Ticket: isotone.Timestamp{Time: 1, Index: 10}}); *r.Lock != want {
			t.Fatalf("%+v, want %+v", *r.Lock, want)
		}
		k.says(r, nil)
		k.tell(conn, granted(tokenX))
		wantBody(t, "the lock", await.Receive(t, "the answer", a), 200, `{"name":"x","token":"`+tokenX.Timestamp().String()+`","token64":"470780841959217570","validFor":60000}`)
		a = c.sends(t.Context(), "DELETE", lockX+"&token="+tokenX.Timestamp().String())
		if r = k.hears("RELEASE"); r.Lock.Op != session.LockRelease || r.Lock.Token != tokenX {
			t.Fatalf("%+v", *r.Lock)
		}
		k.says(r, nil)
		k.tell(conn, session.Message{Kind: session.MessageReleased, Name: "x", Token: tokenX})
		wantBody(t, "the release", await.Receive(t, "the answer", a), 200, `{"name":"x"}`)

		a = c.sends(t.Context(), "PUT", lockX)
		if r = k.hears("LOCK"); r.Lock.Op != session.LockTry {
			t.Fatalf("%+v", *r.Lock)
		}
		k.says(r, isotone.ErrLocked)
		w := await.Receive(t, "who holds it", k.watched)
		w.Holders = []front.Holder{{Name: "x", Token: tokenX + 1, Value: "you", Session: 12}}
		w.Done(w)
		wantBody(t, "a lock that is held", await.Receive(t, "the answer", a), 409, `{"error":{"code":"locked","message":"somebody else holds the lock, or waits for it"},`+
			`"holder":{"name":"x","token":"`+(tokenX+1).Timestamp().String()+`","token64":"470780841959217571","value":"you","session":"000000000000000c"}}`)
		k.tell(conn, session.Message{Kind: session.MessageSuperseded})
	})
}

// TestLocks_AClientThatGoesIsNotGrantedOne: its place is given up, and a grant that crosses that is released.
func TestLocks_AClientThatGoesIsNotGrantedOne(t *testing.T) {
	s, k := startSessions(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		k := &sessions{t, k.leaderOfSessions}
		conn := k.binds(c)
		ctx, cancel := context.WithCancel(t.Context())
		a := c.sends(ctx, "PUT", lockX+"&wait=30s")
		k.says(k.hears("LOCK"), nil)
		cancel()
		<-a
		if r := k.hears("CANCEL"); r.Lock == nil || r.Lock.Op != session.LockCancel || r.Lock.Name != "x" {
			t.Fatalf("%+v", r.Request)
		}
		k.tell(conn, granted(tokenX))
		if r := k.hears("RELEASE"); r.Lock == nil || r.Lock.Op != session.LockRelease || r.Lock.Token != tokenX {
			t.Fatalf("%+v", r.Request)
		}
		k.tell(conn, session.Message{Kind: session.MessageSuperseded})
	})
}

// TestSessions_AreBoundAgain by PUT when the leader does not know their connection any more, and by no other request.
func TestSessions_AreBoundAgain(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "http1")
	first := k.binds(c)
	a := c.sends(t.Context(), "PUT", sessionA+"?ttl=1m")
	k.says(k.hears("KEEP"), isotone.ErrNotBound)
	r := k.hears("BIND")
	if r.Bind == nil || r.Conn == first {
		t.Fatalf("%+v", r.Request)
	}
	k.says(r, nil, session.Hold{Name: "x", Token: tokenX})
	wantBody(t, "PUT", await.Receive(t, "the answer", a), 200, `{"session":"00000000000000aa","validFor":60000,"holds":[{"name":"x"`)
	if n := k.open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
	a = c.sends(t.Context(), "PUT", lockX+"&wait=30s")
	k.says(k.hears("LOCK"), isotone.ErrNotBound)
	wantFault(t, await.Receive(t, "the answer", a), 409, isotone.CodeNotBound)
	k.binds(c)

	k.tell(3, session.Message{Kind: session.MessageExpired})
	for target, method := range map[string]string{sessionA + "?ttl=1m": "PUT", lockX: "PUT", lockX + "&token=470780841959217570": "DELETE", sessionA: "GET"} {
		wantFault(t, c.do(t, method, target, nil), 409, isotone.CodeSessionExpired)
	}
	if n := k.open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// TestSessions_WhoWaitsIsToldWhy it does no longer.
func TestSessions_WhoWaitsIsToldWhy(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "h2c")
	conn := k.binds(c)
	first, second := c.sends(t.Context(), "PUT", lockX+"&wait=30s"), c.sends(t.Context(), "PUT", lockX+"&wait=30s")
	k.says(k.hears("LOCK"), nil)
	k.says(k.hears("LOCK"), nil)
	k.tell(conn, session.Message{Kind: session.MessageExpired})
	wantFault(t, await.Receive(t, "the answer", first), 409, isotone.CodeSessionExpired)
	wantFault(t, await.Receive(t, "the answer", second), 409, isotone.CodeSessionExpired)

	a := c.sends(t.Context(), "PUT", "/sessions/00000000000000ab?ttl=1m")
	k.says(k.hears("BIND"), nil)
	<-a
	lock, watch := c.sends(t.Context(), "PUT", "/locks/x?session=00000000000000ab&wait=30s"), c.sends(t.Context(), "GET", "/frontier/g?min=ffffffffffffffff0000000000000000&wait=30s")
	k.hears("LOCK")
	w := await.Receive(t, "WAIT", k.watched)
	s.EndWaits()
	wantFault(t, await.Receive(t, "the answer", lock), 503, isotone.CodeNoLeader)
	w.Done(w)
	wantFault(t, await.Receive(t, "the answer", watch), 503, isotone.CodeNoLeader)
}

// TestSessions_HaveBoundedWaits.
func TestSessions_HaveBoundedWaits(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "h2c")
	k.binds(c)
	for i := range 64 {
		c.sends(t.Context(), "PUT", fmt.Sprintf("/locks/%d?session=00000000000000aa&wait=30s", i))
		k.says(k.hears("LOCK"), nil)
	}
	wantFault(t, c.do(t, "PUT", lockX+"&wait=30s", nil), 503, isotone.CodeOverloaded)
}

// TestLocks_WhoWaitsIsSentToTheNextLeader, as the request keeps its session alive.
func TestLocks_WhoWaitsIsSentToTheNextLeader(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "http1")
	k.binds(c)
	a := c.sends(t.Context(), "PUT", lockX+"&wait=30s")
	k.says(k.hears("LOCK"), nil)
	follows := *s.backend.Status()
	follows.Leader, follows.LeaderAddr = 1, "127.0.0.1:8081"
	s.backend.status.Store(&follows)
	k.says(await.Receive(t, "KEEP", k.asked), isotone.ErrNotLeader)
	got := await.Receive(t, "the answer", a)
	wantFault(t, got, 409, isotone.CodeNotLeader)
	if at := got.Header.Get("Isotone-Leader"); at != "127.0.0.1:8081" {
		t.Errorf("it is sent to %q", at)
	}
}

// TestSessions_OverAQuotaAreNotBound, and keep nothing of the node.
func TestSessions_OverAQuotaAreNotBound(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "http1")
	for range 2 {
		a := c.sends(t.Context(), "PUT", sessionA+"?ttl=1m")
		r := k.hears("BIND")
		if r.Bind == nil {
			t.Fatalf("it is asked for %+v", r.Request)
		}
		k.says(r, &isotone.Error{Code: isotone.CodeQuotaExceeded, Message: "so many", RetryAfter: time.Second})
		wantBody(t, "PUT", await.Receive(t, "the answer", a), 429, `{"error":{"code":"quota_exceeded"`)
		if n := k.open(); n != 0 {
			t.Errorf("%d connections", n)
		}
	}
	k.binds(c)
}
