package admin_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
)

// timelines records what it is asked for, and answers with err.
type timelines struct {
	err    error
	above  uint64
	asked  []string
	raised []string
}

func (t *timelines) Timelines(prefix, after string, limit int) (front.TimelineList, error) {
	t.asked = append(t.asked, fmt.Sprintf("list %q %q %d", prefix, after, limit))
	return front.TimelineList{Total: 3, After: "b", Timelines: []front.TimelineRecord{
		{Name: "a", ID: 1 << 60, Group: "h001", NodeID: 2, Addr: "b:1"}, {Name: "b", ID: 7, Group: "eu", Sealed: true, Bound: 9},
	}}, t.err
}

func (t *timelines) Groups() (front.GroupList, error) {
	t.asked = append(t.asked, "groups")
	return front.GroupList{Groups: []front.GroupRecord{{Name: "eu", NodeID: 2, Addr: "b:1", Grant: 1 << 60, Timelines: 1}}}, t.err
}

func (t *timelines) BusyTimelines(limit int) (front.BusyTimelines, error) {
	t.asked = append(t.asked, fmt.Sprint("top ", limit))
	load := front.TimelineLoad{Requests: 1.5, Timestamps: 30}
	return front.BusyTimelines{NodeID: 2, TimelineLoad: load, Timelines: []front.BusyTimeline{{Name: "a", ID: 1 << 60, Group: "eu", TimelineLoad: load}}}, t.err
}

func (t *timelines) ChangeTimelines(_ context.Context, c front.TimelineChange) (front.TimelineChanged, error) {
	asked, err := json.Marshal(c)
	if err != nil {
		return front.TimelineChanged{}, err
	}
	t.asked = append(t.asked, string(asked))
	return front.TimelineChanged{Above: t.above}, t.err
}

func (t *timelines) send(method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	admin.New(admin.Config{Operator: &operator{}, Timelines: t, RaisedTimelines: func(_ context.Context, names []string, to uint64) {
		t.raised = append(t.raised, fmt.Sprint(names, to))
	}}).ServeHTTP(w, r)
	return w
}

func TestTimelines_RequestsArePassedOn(t *testing.T) {
	const list = `{"total":3,"timelines":[{"name":"a","id":"1152921504606846976","group":"h001","nodeID":2,"addr":"b:1"},` +
		`{"name":"b","id":"7","group":"eu","nodeID":0,"sealed":true,"bound":"9"}],"after":"b"}`
	const load = `"requestsPerSecond":1.5,"timestampsPerSecond":30,"refusedPerSecond":0`
	const top = `{"nodeID":2,` + load + `,"timelines":[{"name":"a","id":"1152921504606846976","group":"eu",` + load + `}]}`
	for _, tt := range []struct{ method, target, body, asked, answer string }{
		{"GET", "/admin/timelines/top", "", "top 20", top},
		{"GET", "/admin/timelines/top?limit=1024", "", "top 1024", top},
		{"GET", "/admin/timelines", "", `list "" "" 1000`, list},
		{"GET", "/admin/timelines?prefix=a%2Fb&after=a/c&limit=1", "", `list "a/b" "a/c" 1`, list},
		{"GET", "/admin/timelines?limit=1000", "", `list "" "" 1000`, list},
		{"GET", "/admin/groups", "", "groups", `{"groups":[{"name":"eu","nodeID":2,"addr":"b:1","grant":"1152921504606846976","timelines":1}]}`},
		{"POST", "/admin/timelines", `{"action":"create","names":["a","b"],"group":"eu","time":"5","force":true}`, "", "{}"},
		{"POST", "/admin/timelines", `{"action":"delete","names":["a"],"id":"1152921504606846976"}`, "", "{}"},
		{"POST", "/admin/timelines", `{"action":"prefer","group":"eu","prefer":[3,1]}`, "", "{}"},
		{"POST", "/admin/timelines", `{"action":"quota","names":["a"],"quota":{"requests":5,"timestamps":7}}`, "", "{}"},
	} {
		o := &timelines{}
		if w := o.send(tt.method, tt.target, tt.body); w.Code != 200 || w.Body.String() != tt.answer || strings.Join(o.asked, "; ") != cmp.Or(tt.asked, tt.body) {
			t.Errorf("%s %s %s: %d %s, asked %q", tt.method, tt.target, tt.body, w.Code, w.Body, o.asked)
		}
	}
}

func TestTimelines_BadRequestsAreRefused(t *testing.T) {
	for _, query := range []string{"limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1.5"} {
		o := &timelines{}
		wantFault(t, o.send("GET", "/admin/timelines?"+query, ""), 400, "invalid_argument", "limit: want a number from 1 to 1000")
		if o.asked != nil {
			t.Errorf("%s: asked %q", query, o.asked)
		}
	}
	wantFault(t, (&timelines{}).send("GET", "/admin/timelines/top?limit=1025", ""), 400, "invalid_argument", "limit: want a number from 1 to 1024")
	wantFault(t, (&timelines{}).send("POST", "/admin/timelines/top", "{}"), 405, "invalid_argument", "use GET")
	for _, body := range []string{"x", "[]", `{"action":"create"}{}`, `{"action":"create","name":"a"}`, `{"action":"delete","names":["a"],"id":5}`, `{"action":"delete","names":["a"],"id":"-1"}`, `{"action":"floor","names":["a"],"time":5}`} {
		o := &timelines{}
		wantFault(t, o.send("POST", "/admin/timelines", body), 400, "invalid_argument", "")
		if o.asked != nil {
			t.Errorf("%s: asked %q", body, o.asked)
		}
	}
	wantFault(t, (&timelines{}).send("POST", "/admin/groups", "{}"), 405, "invalid_argument", "use GET")
	wantFault(t, (&timelines{}).send("PUT", "/admin/timelines", "{}"), 405, "invalid_argument", "use GET, POST")
	wantFault(t, (&timelines{}).send("GET", "/admin/timelines/a", ""), 404, "not_found", "no such path")
	led := isotone.Errorf(isotone.CodeNotLeader, "node 2 leads")
	led.Leader = "b:1"
	wantFault(t, (&timelines{err: led}).send("GET", "/admin/groups", ""), 409, "not_leader", "")
	wantFault(t, send(&operator{}, http.MethodGet, "/admin/timelines", ""), 404, "not_found", "no such path") // of a node without timelines
}

// TestTimelines_WhoMovesTimeAheadIsTold, if it is ahead and was done.
func TestTimelines_WhoMovesTimeAheadIsTold(t *testing.T) {
	const body = `{"action":"floor","names":["a"],"time":"1"}`
	ahead := uint64(time.Now().Add(time.Hour).UnixNano())
	for _, tt := range []struct {
		o    timelines
		want string
	}{
		{timelines{above: ahead}, fmt.Sprintf("[[a] %d]", ahead)},
		{timelines{above: uint64(time.Now().UnixNano())}, "[]"},
		{timelines{}, "[]"},
		{timelines{above: ahead, err: isotone.ErrNotFound}, "[]"},
	} {
		if tt.o.send("POST", "/admin/timelines", body); fmt.Sprint(tt.o.raised) != tt.want {
			t.Errorf("%+v: told %q, want %s", tt.o, tt.o.raised, tt.want)
		}
	}
}
