package bench

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

// fakeNode is a server that behaves like a node, with optional faults, over HTTP and RESP.
type fakeNode struct {
	*httptest.Server
	cluster *fakeCluster
}

// fakeCluster issues timestamps at the node that leads.
type fakeCluster struct {
	mu      sync.Mutex
	next    uint64
	leader  string // its address; "" while there is none
	nodes   []*fakeNode
	asked   map[string]int
	issue   func(first, count uint64) uint64 // changes what is issued
	onIssue func(n uint64)
	refused func()      // there was no leader
	short   func() bool // answers with less than a timestamp
}

func newFakeCluster(t *testing.T, count int) *fakeCluster {
	t.Helper()
	c := &fakeCluster{asked: map[string]int{}}
	for range count {
		n := &fakeNode{cluster: c}
		n.Server = httptest.NewUnstartedServer(n)
		n.Listener = respListener{n.Listener, n}
		n.Start()
		t.Cleanup(n.Close)
		c.nodes = append(c.nodes, n)
	}
	c.leader = c.nodes[0].addr()
	return c
}

func (n *fakeNode) addr() string { return n.Listener.Addr().String() }

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[n.addr()]++
	switch {
	case r.URL.Path == "/members":
		members := []map[string]any{}
		for i, n := range c.nodes {
			members = append(members, map[string]any{"nodeID": i + 1, "addr": n.addr()})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"members": members, "nodeID": 1})
	case r.URL.Path != "/timestamp":
		http.NotFound(w, r)
	default:
		c.answer(w, r, n)
	}
}

// ask issues timestamps at node n, if it leads. The caller holds c.mu.
func (c *fakeCluster) ask(n *fakeNode, count uint64) (isotone.Range, isotone.Code) {
	switch c.leader {
	case "":
		if c.refused != nil {
			c.refused()
		}
		return isotone.Range{}, isotone.CodeNoLeader
	case n.addr():
	default:
		return isotone.Range{}, isotone.CodeNotLeader
	}
	issued := isotone.Range{First: isotone.Timestamp{Time: 7, Index: c.next + 1}, Count: count}
	if c.issue != nil {
		issued.First.Index = c.issue(issued.First.Index, count)
	}
	c.next += count
	return issued, ""
}

// issued is called when an answer is ready to leave. The caller holds c.mu.
func (c *fakeCluster) issued() {
	if c.onIssue != nil {
		c.onIssue(c.next)
	}
}

func (c *fakeCluster) answer(w http.ResponseWriter, r *http.Request, n *fakeNode) {
	if c.short != nil && c.short() {
		fmt.Fprint(w, "short")
		return
	}
	count, _ := strconv.ParseUint(r.URL.Query().Get("n"), 10, 64)
	issued, code := c.ask(n, max(1, count))
	switch code {
	case isotone.CodeNoLeader:
		fault(w, 503, code)
		return
	case isotone.CodeNotLeader:
		w.Header().Set("Isotone-Leader", c.leader)
		fault(w, 409, code)
		return
	}
	body, _ := issued.First.MarshalBinary()
	if r.URL.Query().Get("format") == "range" {
		body, _ = issued.AppendBinary(nil)
	}
	_, _ = w.Write(body)
	c.issued()
}

func fault(w http.ResponseWriter, status int, code isotone.Code) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"injected by the test"}}`, code)
}

func runAt(t *testing.T, addr string, change func(*Options)) (*Result, error) {
	t.Helper()
	o := testOptions(change)
	o.Targets = []string{addr}
	return Run(t.Context(), *o)
}

// fakeLoads are the loads for fake clusters: closed and open loops of each hand-written protocol.
var fakeLoads = []struct {
	protocol string
	pipeline int
	rate     float64
}{{"http1", 1, 0}, {"http1", 1, 2000}, {"resp", 1, 2000}, {"resp", 4, 0}, {"resp", 4, 2000}}

func TestRun_FollowsTheLeader(t *testing.T) {
	for _, load := range fakeLoads {
		rate := load.rate
		c := newFakeCluster(t, 3)
		c.onIssue = func(n uint64) {
			if n == 100 {
				c.leader = c.nodes[2].addr()
			}
		}
		// The target is a follower, at first and in the end.
		r, err := runAt(t, c.nodes[1].addr(), func(o *Options) {
			o.Protocol, o.Pipeline, o.Rate = load.protocol, load.pipeline, rate
		})
		if err != nil {
			t.Fatal(err)
		}
		leaders := []string{}
		for _, turn := range r.Result.Leaders {
			leaders = append(leaders, turn.Addr)
		}
		if want := []string{c.nodes[0].addr(), c.nodes[2].addr()}; fmt.Sprint(leaders) != fmt.Sprint(want) {
			t.Errorf("%+v: leaders %v, want %v", load, leaders, want)
		}
		if n := r.Result.Errors["not_leader"]; n < 1 || n > 12*uint64(load.pipeline) || r.Result.ErrorsTotal != n {
			t.Errorf("%+v: errors %v, want a few not_leader", load, r.Result.Errors)
		}
		if rate > 0 && r.Result.Answers != 200 {
			t.Errorf("open loop: %d of 200 arrivals were answered", r.Result.Answers)
		}
		if !r.Verdict.OK || r.Verdict.Checked != r.Result.Answers {
			t.Errorf("verdict %+v of %d answers", r.Verdict, r.Result.Answers)
		}
	}
}

func TestRun_GoesOnWhenALeaderIsGone(t *testing.T) {
	for _, protocol := range []string{"http1", "resp"} {
		c := newFakeCluster(t, 3)
		c.onIssue = func(n uint64) {
			if n == 100 && c.leader == c.nodes[0].addr() {
				c.leader = ""
				go c.nodes[0].CloseClientConnections()
			}
		}
		// The only caller asks again once it has read its latest answer, or lost it. So what follows is a part of the gap.
		c.refused = sync.OnceFunc(func() {
			time.AfterFunc(100*time.Millisecond, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.leader = c.nodes[1].addr()
			})
		})
		r, err := runAt(t, c.nodes[0].addr(), func(o *Options) { o.Protocol, o.Rate, o.Connections = protocol, 1000, 1 })
		if err != nil {
			t.Fatal(err)
		}
		if r.Result.Answers != 200 || !r.Verdict.OK || r.Result.Errors["no_leader"] == 0 {
			t.Errorf("%s: %d answers, errors %v, %+v", protocol, r.Result.Answers, r.Result.Errors, r.Verdict)
		}
		within(t, "longest gap", float64(r.Result.LongestGap.Length), 0.1, 30)
	}
}

func TestRun_CatchesAnOracleThatLies(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		count      uint64
		issue      func(first, count uint64) uint64
	}{
		{"a repeated timestamp", "duplicate", 1, func(first, _ uint64) uint64 {
			if first == 120 {
				return 119
			}
			return first
		}},
		{"ranges that overlap", "duplicate", 8, func(first, _ uint64) uint64 {
			if first == 801 {
				return 797
			}
			return first
		}},
		{"a step back", "inversion", 1, func(first, _ uint64) uint64 { return map[bool]uint64{false: 100 + first, true: 50}[first == 150] }},
		{"the zero timestamp of an index that overflows", "malformed", 3, func(first, _ uint64) uint64 {
			if first == 301 {
				return 1<<64 - 2
			}
			return first
		}},
	} {
		for _, load := range fakeLoads {
			t.Run(fmt.Sprintf("%s, %v", tt.name, load), func(t *testing.T) {
				c := newFakeCluster(t, 1)
				c.issue = tt.issue
				file := filepath.Join(t.TempDir(), "violations.jsonl")
				r, err := runAt(t, c.nodes[0].addr(), func(o *Options) {
					o.Violations, o.Count = file, tt.count
					o.Protocol, o.Pipeline, o.Rate = load.protocol, load.pipeline, load.rate
				})
				if err != nil {
					t.Fatal(err)
				}
				if r.Verdict.OK || r.Verdict.Violations == 0 || r.Verdict.File != file || r.Verdict.First == "" {
					t.Fatalf("verdict %+v", r.Verdict)
				}
				wantViolation(t, file, tt.kind, c.nodes[0].addr())
			})
		}
	}
}

// wantViolation fails unless the first line of a file describes a violation of that kind.
func wantViolation(t *testing.T, file, kind, node string) {
	t.Helper()
	var later, earlier OffendingOperation
	v := Violation{Later: &later, Earlier: &earlier}
	readViolation(t, file, &v)
	if v.Kind != kind || later.Caller == nil || later.Node != node || later.Answered < later.Sent {
		t.Errorf("%+v: %+v", v, later)
	}
	if kind != "malformed" && (earlier.Caller == nil || earlier.Answered == 0) {
		t.Errorf("the earlier operation is not named: %+v", earlier)
	}
}

func readViolation(t *testing.T, name string, v *Violation) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := json.NewDecoder(bufio.NewReader(f)).Decode(v); err != nil {
		t.Fatal(err)
	}
}

func TestRun_SaysWhenTheViolationsCannotBeWritten(t *testing.T) {
	c := newFakeCluster(t, 1)
	c.issue = func(uint64, uint64) uint64 { return 1 }
	r, err := runAt(t, c.nodes[0].addr(), func(o *Options) { o.Violations = filepath.Join(t.TempDir(), "no", "such", "directory") })
	if err == nil || !strings.Contains(err.Error(), "duplicate") || r == nil || r.Verdict.OK {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestRun_RefusesWhatIsNoOracle(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer page.Close()
	object := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer object.Close()
	ssh, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var greeting sync.WaitGroup
	greeting.Go(func() {
		for {
			c, err := ssh.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2p1\r\n")
			c.Close()
		}
	})
	defer greeting.Wait()
	defer ssh.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for addr, want := range map[string]string{
		page.Listener.Addr().String():   "is not an oracle",
		object.Listener.Addr().String(): "is not an oracle",
		ssh.Addr().String():             "cannot reach",
		closed.Addr().String():          "cannot reach",
	} {
		_, err := runAt(t, addr, nil)
		var target TargetError
		if !errors.As(err, &target) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", addr, err, want)
		}
	}
}

func TestRun_SaysWhyNothingWasAnswered(t *testing.T) {
	for _, protocol := range []string{"http1", "resp"} {
		short := func(o *Options) { o.Protocol, o.Requests, o.Duration = protocol, 0, 200*time.Millisecond }
		c := newFakeCluster(t, 1)
		c.leader = ""
		_, err := runAt(t, c.nodes[0].addr(), short)
		if !errors.As(err, new(TargetError)) || !strings.Contains(err.Error(), "no_leader") {
			t.Error(err)
		}
		// The named leader cannot be reached.
		c.leader = "127.0.0.1:1"
		_, err = runAt(t, c.nodes[0].addr(), short)
		if !errors.As(err, new(TargetError)) || !strings.Contains(err.Error(), "127.0.0.1:1") && !strings.Contains(err.Error(), "not_leader") {
			t.Error(err)
		}
	}
}

func TestRun_CountsAnswersThatMakeNoSense(t *testing.T) {
	for _, protocol := range []string{"http1", "resp"} {
		c := newFakeCluster(t, 1)
		n := 0
		c.short = func() bool { n++; return n%10 == 0 }
		r, err := runAt(t, c.nodes[0].addr(), func(o *Options) { o.Protocol = protocol })
		if err != nil || r.Result.Errors[codeMalformed] != 20 || r.Result.Answers != 180 {
			t.Fatalf("%s: %v, %+v", protocol, err, r)
		}
	}
}

func TestRun_SpeaksEveryProtocolOverTLS(t *testing.T) {
	for _, protocol := range []string{"http1", "h2", "h2c"} {
		c := newFakeCluster(t, 1)
		old := c.nodes[0]
		node := &fakeNode{cluster: c}
		node.Server = httptest.NewUnstartedServer(node)
		node.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		node.Config.Protocols = new(http.Protocols)
		for _, set := range []func(bool){node.Config.Protocols.SetHTTP1, node.Config.Protocols.SetHTTP2, node.Config.Protocols.SetUnencryptedHTTP2} {
			set(true)
		}
		node.EnableHTTP2 = true
		scheme := "https://"
		if protocol == "h2c" {
			scheme = "http://"
			node.Start()
		} else {
			node.StartTLS()
		}
		t.Cleanup(node.Close)
		c.nodes = []*fakeNode{node}
		c.leader = node.addr()
		old.Close()
		got := make(map[string]int)
		node.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			got[r.Proto]++
			c.mu.Unlock()
			if r.URL.Path != "/up" {
				node.ServeHTTP(w, r)
			}
		})
		r, err := runAt(t, scheme+node.addr(), func(o *Options) {
			o.Protocol, o.Pipeline, o.TLS, o.Count = protocol, 4, &tls.Config{InsecureSkipVerify: true}, 9
		})
		if err != nil || r.Result.Answers != 200 || r.Result.Timestamps != 1800 || r.Result.ErrorsTotal != 0 || !r.Verdict.OK {
			t.Fatalf("%s: %v, %+v", protocol, err, r)
		}
		want := map[string]string{"http1": "HTTP/1.1", "h2": "HTTP/2.0", "h2c": "HTTP/2.0"}[protocol]
		if got[want] < 200 {
			t.Errorf("%s: %v", protocol, got)
		}
		if protocol == "h2c" {
			continue
		}
		if _, err := runAt(t, scheme+node.addr(), func(o *Options) { o.Protocol = protocol }); !errors.As(err, new(TargetError)) ||
			!strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), "--insecure") || !strings.Contains(err.Error(), "--ca FILE") {
			t.Errorf("%s: unknown certificate: %v", protocol, err)
		}
	}
}

func TestRun_StaticFileGetsMadeUpTimestamps(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "xxxxxxxxxxxxxxxx") }))
	defer server.Close()
	r, err := runAt(t, server.Listener.Addr().String(), func(o *Options) { o.Static = "/any" })
	if err != nil || r.Result.Answers != 200 || r.Verdict.Checked != 200 || !r.Verdict.Made || !strings.Contains(r.Verdict.String(), "no oracle") {
		t.Errorf("%v, %+v", err, r)
	}
}
