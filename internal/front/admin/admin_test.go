package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
)

// operator records what it is asked for, and answers with err.
type operator struct {
	front.Operator
	err   error
	asked []string
	left  time.Duration // until the deadline of the last change
}

func (o *operator) note(format string, args ...any) error {
	o.asked = append(o.asked, fmt.Sprintf(format, args...))
	return o.err
}

func (o *operator) Members() (front.MemberList, error) {
	return front.MemberList{ClusterID: "00000000000000c1", Leader: 1, Removed: []uint64{}, Members: []front.MemberRecord{
		{NodeID: 1, Role: "leader", PeerAddr: "a:1", Addr: "a:2", Incarnation: "0000000000000001", Start: 2, Connected: true, Level: 3},
		{NodeID: 3, Generation: 1, Role: "learner", PeerAddr: "c:1", Promote: true, Replaces: 3, Lag: 7},
	}}, o.note("members")
}

func (o *operator) ChangeMember(ctx context.Context, c front.MemberChange) error {
	deadline, _ := ctx.Deadline()
	o.left = time.Until(deadline)
	return o.note("%+v", c)
}

func (o *operator) Transfer(_ context.Context, to uint64) error { return o.note("transfer to %d", to) }

func (o *operator) RaiseFloor(_ context.Context, floor string, force bool) (front.FloorRaised, error) {
	return front.FloorRaised{Time: 5, Raised: true, Before: 4, After: 6}, o.note("floor %s %t", floor, force)
}

func (o *operator) Workers() (front.WorkerList, error) {
	return front.WorkerList{Layout: "41/5/5/12", Epoch: 7, Limit: 1024, Workers: []front.WorkerRecord{
		{Worker: 0, NodeID: 3, Generation: 1, Session: "00000000000000aa", Slot: 2, Fixed: true, Start: 1000, End: 1600, Starts: "s", Ends: "e"},
		{Worker: 300, Session: "00000000000000bb", Start: 1000, End: 1600, Starts: "s", Ends: "e", Ended: true, Revoked: true},
	}}, o.note("workers")
}

func (o *operator) RevokeWorker(_ context.Context, worker int, start uint64) error {
	return o.note("revoke %d %d", worker, start)
}

func (o *operator) Joining(node, incarnation uint64, proof string) (front.Joining, error) {
	return front.Joining{ClusterID: "00000000000000c1", MemberID: 1<<48 | 3, Peers: map[uint64]string{1: "a:1"}}, o.note("joining %d %d%s", node, incarnation, proof)
}

// send sends a request, a POST as JSON.
func send(o *operator, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	w := httptest.NewRecorder()
	admin.New(admin.Config{Operator: o}).ServeHTTP(w, r)
	return w
}

// wantFault checks an error answer.
func wantFault(t *testing.T, w *httptest.ResponseRecorder, status int, code, words string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != status || body.Error.Code != code || !strings.Contains(body.Error.Message, words) {
		t.Errorf("%d %s, %v; want %d %s with %q", w.Code, w.Body, err, status, code, words)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestAdmin_PassesRequestsOn(t *testing.T) {
	const list = `{"clusterID":"00000000000000c1","leader":1,"members":[` +
		`{"nodeID":1,"generation":0,"role":"leader","peerAddr":"a:1","addr":"a:2","incarnation":"0000000000000001","start":2,"connected":true,"lag":0,"level":3},` +
		`{"nodeID":3,"generation":1,"role":"learner","peerAddr":"c:1","addr":"","start":0,"connected":false,"lag":7,"level":0,"promote":true,"replaces":3}],"removed":[]}`
	const workers = `{"layout":"41/5/5/12","epoch":"7","limit":1024,"workers":[` +
		`{"worker":0,"nodeID":3,"generation":1,"session":"00000000000000aa","slot":2,"fixed":true,"start":"1000","end":"1600","starts":"s","ends":"e"},` +
		`{"worker":300,"nodeID":0,"session":"00000000000000bb","slot":0,"start":"1000","end":"1600","starts":"s","ends":"e","ended":true,"revoked":true}]}`
	for _, tt := range []struct{ method, target, body, asked, answer string }{
		{"GET", "/admin/workers", "", "workers", workers},
		{"POST", "/admin/workers", `{"action":"revoke","worker":0}`, "revoke 0 0; workers", workers},
		{"POST", "/admin/workers", `{"action":"revoke","worker":300,"start":"1000"}`, "revoke 300 1000; workers", workers},
		{"GET", "/admin/members", "", "members", list},
		{"POST", "/admin/members", `{"action":"add","nodeID":4,"peerAddr":"d:1","learner":true}`,
			"{Action:add NodeID:4 MemberID:0 PeerAddr:d:1 ClientAddr: Learner:true}; members", list},
		{"POST", "/admin/members", `{"action":"update","nodeID":4,"addr":"d:2"}`,
			"{Action:update NodeID:4 MemberID:0 PeerAddr: ClientAddr:d:2 Learner:false}; members", list},
		{"POST", "/admin/members", `{"action":"remove","nodeID":3,"memberID":"281474976710659"}`,
			"{Action:remove NodeID:3 MemberID:281474976710659 PeerAddr: ClientAddr: Learner:false}; members", list},
		{"GET", "/admin/join?node=3", "", "joining 3 0", `{"clusterID":"00000000000000c1","memberID":"281474976710659","peers":{"1":"a:1"}}`},
		{"GET", "/admin/join?node=3&incarnation=18446744073709551615", "", "joining 3 18446744073709551615",
			`{"clusterID":"00000000000000c1","memberID":"281474976710659","peers":{"1":"a:1"}}`},
		{"POST", "/admin/leader", "", "transfer to 0", "{}"},
		{"POST", "/admin/leader", `{"to":2}`, "transfer to 2", "{}"},
		{"POST", "/admin/floor", `{"time":"2026-11-22T15:04:05Z","force":true}`, "floor 2026-11-22T15:04:05Z true", `{"time":"5","raised":true,"before":"4","after":"6"}`},
		{"POST", "/admin/floor", `{"time":"5"}`, "floor 5 false", `{"time":"5","raised":true,"before":"4","after":"6"}`},
	} {
		o := &operator{}
		w := send(o, tt.method, tt.target, tt.body)
		if w.Code != 200 || w.Body.String() != tt.answer || strings.Join(o.asked, "; ") != tt.asked {
			t.Errorf("%s %s %s: %d %s, asked %q", tt.method, tt.target, tt.body, w.Code, w.Body, o.asked)
		}
		if got, size := w.Header().Get("Content-Type"), w.Header().Get("Content-Length"); got != "application/json" || size != fmt.Sprint(len(tt.answer)) {
			t.Errorf("%s %s: Content-Type %q, Content-Length %s", tt.method, tt.target, got, size)
		}
	}
	o := &operator{}
	send(o, "POST", "/admin/members", `{"action":"remove","nodeID":4}`)
	if o.left <= 0 || o.left > 8*time.Second {
		t.Errorf("a change may take %v, want up to 8 s", o.left)
	}
}

func TestAdmin_MethodsAndPaths(t *testing.T) {
	for path, allow := range map[string]string{"members": "GET, POST", "workers": "GET, POST", "join": "GET", "leader": "POST", "floor": "POST"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			if strings.Contains(allow, method) {
				continue
			}
			o := &operator{}
			w := send(o, method, "/admin/"+path, "")
			wantFault(t, w, 405, "invalid_argument", "use "+allow)
			if got := w.Header().Get("Allow"); got != allow || o.asked != nil {
				t.Errorf("%s %s: Allow %q, want %q; asked %q", method, path, got, allow, o.asked)
			}
		}
	}
	for _, path := range []string{"/admin/", "/admin/nothing", "/admin/members/1", "/adm", "/admin/" + strings.Repeat("x", 1000)} {
		w := send(&operator{}, "GET", path, "")
		wantFault(t, w, 404, "not_found", "no such path")
		if w.Body.Len() > 300 {
			t.Errorf("the answer repeats %d bytes", w.Body.Len())
		}
	}
}

func TestAdmin_RefusesWhatItCannotRead(t *testing.T) {
	for _, tt := range []struct{ target, body, words string }{
		{"/admin/members", `{"action":"add",`, "not the JSON object"},
		{"/admin/members", `[]`, "not the JSON object"},
		{"/admin/members", `{"action":"add"} {"action":"remove"}`, "something follows"},
		{"/admin/members", `{"action":"add","nodeID":-1}`, "not the JSON object"},
		{"/admin/members", `{"action":"add","nodeID":"4"}`, "not the JSON object"},
		{"/admin/members", `{"action":"add","nodeID":4,"voter":true}`, "voter"},
		{"/admin/members", `{"action":"add","nodeID":4,"peerAddr":"foo"}`, `"foo": want host:port`},
		{"/admin/members", `{"action":"add","nodeID":4,"peerAddr":"http://a:1"}`, "want host:port"},
		{"/admin/members", `{"action":"replace","nodeID":4,"peerAddr":"0.0.0.0:60001"}`, "want host:port"},
		{"/admin/members", `{"action":"update","nodeID":4,"addr":":8080"}`, "want host:port"},
		{"/admin/members", strings.Repeat(" ", 64<<10) + "{}", "more than 65536 bytes"},
		{"/admin/leader", `{"to":"2"}`, "not the JSON object"},
		{"/admin/leader", `{"node":2}`, "node"},
		{"/admin/workers", ``, "action: want revoke"},
		{"/admin/workers", `{"action":"free","worker":1}`, "action: want revoke"},
		{"/admin/workers", `{"action":"revoke"}`, "worker: want"},
		{"/admin/workers", `{"action":"revoke","worker":-1}`, "worker: want"},
		{"/admin/workers", `{"action":"revoke","worker":"1"}`, "not the JSON object"},
		{"/admin/workers", `{"action":"revoke","worker":1,"start":1}`, "not the JSON object"},
		{"/admin/floor", `{"time":5}`, "not the JSON object"},
		{"/admin/floor", `{"time":"5","forced":true}`, "forced"},
	} {
		o := &operator{}
		wantFault(t, send(o, "POST", tt.target, tt.body), 400, "invalid_argument", tt.words)
		if o.asked != nil {
			t.Errorf("%s %.50s: asked %q", tt.target, tt.body, o.asked)
		}
	}
	for _, query := range []string{"", "?node=", "?node=0", "?node=-1", "?node=x", "?node=1&incarnation=x", "?node=1&incarnation=-1"} {
		o := &operator{}
		w := send(o, "GET", "/admin/join"+query, "")
		wantFault(t, w, 400, "invalid_argument", ": want ")
		if o.asked != nil {
			t.Errorf("%s: asked %q", query, o.asked)
		}
	}
}

// TestAdmin_APostNeedsItsContentType, which a page of another site cannot set without asking.
func TestAdmin_APostNeedsItsContentType(t *testing.T) {
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ";"} {
		for _, path := range []string{"members", "workers", "leader", "floor"} {
			o := &operator{}
			r := httptest.NewRequest("POST", "/admin/"+path, strings.NewReader(`{}`))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			admin.New(admin.Config{Operator: o}).ServeHTTP(w, r)
			wantFault(t, w, 400, "invalid_argument", "Content-Type: want application/json")
			if o.asked != nil {
				t.Errorf("%s as %q: asked %q", path, kind, o.asked)
			}
		}
	}
}

func TestAdmin_EveryErrorOfTheOperator(t *testing.T) {
	notLeader := isotone.Errorf(isotone.CodeNotLeader, "node 2 leads")
	notLeader.Leader = "b:2"
	requests := []struct{ method, target, body string }{
		{"GET", "/admin/members?x=1", ""},
		{"POST", "/admin/members?x=1", `{"action":"add"}`},
		{"GET", "/admin/workers?x=1", ""},
		{"POST", "/admin/workers?x=1", `{"action":"revoke","worker":1}`},
		{"GET", "/admin/join?node=3", ""},
		{"POST", "/admin/leader?x=1", ""},
		{"POST", "/admin/floor?x=1", `{"time":"5"}`},
	}
	for _, tt := range []struct {
		err     error
		status  int
		code    string
		headers map[string]string
	}{
		{notLeader, 409, "not_leader", map[string]string{"Isotone-Leader": "b:2"}},
		{isotone.ErrNoLeader, 503, "no_leader", nil},
		{isotone.ErrOverloaded, 503, "overloaded", map[string]string{"Retry-After": "1"}},
		{isotone.Errorf(isotone.CodeInvalidArgument, "no"), 400, "invalid_argument", nil},
		{isotone.Errorf(isotone.CodeNotFound, "no"), 404, "not_found", nil},
		{isotone.ErrDeadlineExceeded, 504, "deadline_exceeded", nil},
		{errors.New("unknown"), 500, "internal", nil},
	} {
		for _, r := range requests {
			w := send(&operator{err: tt.err}, r.method, r.target, r.body)
			wantFault(t, w, tt.status, tt.code, "")
			for name, want := range tt.headers {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s %s, %v: %s: %q, want %q", r.method, r.target, tt.err, name, got, want)
				}
			}
			if location := w.Header().Get("Location"); tt.code == "not_leader" && location != "http://b:2"+r.target {
				t.Errorf("%s %s: Location %q", r.method, r.target, location)
			}
		}
	}
}

// TestAdmin_ServeReturnsTheCode that observers count.
func TestAdmin_ServeReturnsTheCode(t *testing.T) {
	var got []string
	for _, o := range []*operator{{}, {err: isotone.ErrNoLeader}} {
		h := admin.New(admin.Config{Operator: o})
		got = append(got, h.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/admin/members", nil)),
			h.Serve(httptest.NewRecorder(), httptest.NewRequest("PUT", "/admin/members", nil)))
	}
	if want := []string{"ok", "invalid_argument", "no_leader", "invalid_argument"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func (o *operator) Locks(_ context.Context, prefix string) (front.LockList, error) {
	return front.LockList{Locks: []front.LockRecord{{Name: "shop/x", Token: "0a", Token64: 7, Since: "s", Session: "00000000000000ff"}}}, o.note("locks %s", prefix)
}

func (o *operator) BreakLock(_ context.Context, name string, token isotone.Timestamp64) (front.LockBroken, error) {
	return front.LockBroken{Name: name, Token: "0a", Token64: token, FreeAfter: 1.5}, o.note("break %s %d", name, token)
}

func (o *operator) Blockers(_ context.Context, group string) (front.BlockerList, error) {
	return front.BlockerList{Group: group, Frontier: "0b", Blockers: []front.BlockerRecord{{Low: "1", High: "2"}}}, o.note("blockers %s", group)
}

func TestAdmin_Locks(t *testing.T) {
	for _, tt := range []struct{ method, target, body, asked, answer string }{
		{"GET", "/admin/locks?prefix=shop%2F", "", "locks shop/", `{"locks":[{"name":"shop/x","token":"0a","token64":"7","since":"s","session":"00000000000000ff"}]}`},
		{"POST", "/admin/locks", `{"action":"break","name":"shop/x","token64":"7"}`, "break shop/x 7", `{"name":"shop/x","token":"0a","token64":"7","freeAfter":1.5}`},
		{"GET", "/admin/frontier?group=orders", "", "blockers orders", `{"group":"orders","frontier":"0b","blockers":[{"low":"1","high":"2"}]}`},
	} {
		o := &operator{}
		w := send(o, tt.method, tt.target, tt.body)
		if got := strings.Join(o.asked, "; "); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != tt.answer || got != tt.asked {
			t.Errorf("%s %s %s: %d %s, asked %q", tt.method, tt.target, tt.body, w.Code, w.Body, got)
		}
	}
	for _, body := range []string{`{"action":"open","name":"x","token64":"7"}`, `{"action":"break","token64":"7"}`, `{"action":"break","name":"x"}`, `{"action":"break","name":"x","token64":"-7"}`} {
		o := &operator{}
		wantFault(t, send(o, "POST", "/admin/locks", body), 400, "invalid_argument", "")
		if len(o.asked) > 0 {
			t.Errorf("%s: %q", body, o.asked)
		}
	}
	wantFault(t, send(&operator{}, "GET", "/admin/frontier", ""), 400, "invalid_argument", "group")
	wantFault(t, send(&operator{err: isotone.ErrNotHeld}, "POST", "/admin/locks", `{"action":"break","name":"x","token64":"7"}`), 409, "not_held", "")
}
