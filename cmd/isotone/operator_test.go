package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// scripted answers requests one after the other as it is told, and with the last answer from
// then on.
type scripted struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

// answer answers one request.
type answer func(w http.ResponseWriter)

func serveScript(t *testing.T, script ...answer) *scripted {
	t.Helper()
	s := &scripted{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		next := script[min(len(s.asked), len(script)-1)]
		s.asked = append(s.asked, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		next(w)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) addr() string { return s.Listener.Addr().String() }

func (s *scripted) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func fault(code isotone.Code, message, leader string) answer {
	return func(w http.ResponseWriter) {
		if leader != "" {
			w.Header().Set("Isotone-Leader", leader)
		}
		w.WriteHeader(503)
		_, _ = w.Write(httpapi.Body(code, message))
	}
}

func members(records ...front.MemberRecord) answer {
	return func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(front.MemberList{ClusterID: "00000000000000c1", Leader: 1, Members: records, Removed: []uint64{}})
	}
}

// lost ends the connection without an answer.
func lost(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// freeAddrs returns addresses of this machine that are free.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs, err := ports.Addrs(n)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// closedAddr is an address where nobody listens.
func closedAddr(t *testing.T) string {
	t.Helper()
	return freeAddrs(t, 1)[0]
}

// wantRun runs a command line and checks its exit code and words of its output and errors.
func wantRun(t *testing.T, code int, out, stderr string, args ...string) {
	t.Helper()
	gotCode, gotOut, gotErr := command(args...)
	if gotCode != code || !strings.Contains(gotOut, out) || !strings.Contains(gotErr, stderr) {
		t.Errorf("isotone %s: exit code %d, want %d\n%q, want %q\n%q, want %q", strings.Join(args, " "), gotCode, code, gotOut, out, gotErr, stderr)
	}
}

var one = front.MemberRecord{NodeID: 1, Role: "leader", PeerAddr: "a:1", Addr: "a:2", Connected: true, Incarnation: "01"}

func TestOperator_FollowsTheLeader(t *testing.T) {
	leader := serveScript(t, members(one))
	follower := serveScript(t, fault(isotone.CodeNotLeader, "node 1 leads", leader.addr()))
	wantRun(t, 0, "cluster 00000000000000c1", "", "member", "list", "--endpoint", follower.addr())
	wantRun(t, 0, "node 1 leads, at a:2", "", "leader", "show", "--endpoint", "http://"+follower.addr()+"/")
	wantRun(t, 0, `{"nodeID":1,"addr":"a:2"}`, "", "leader", "show", "--json", "--endpoint", follower.addr())
	if len(leader.requests()) != 3 || len(follower.requests()) != 3 {
		t.Errorf("%q, %q", leader.requests(), follower.requests())
	}
}

// TestOperator_GoesOnWithoutALeader: what a node that cannot answer says is not the last word.
func TestOperator_GoesOnWithoutALeader(t *testing.T) {
	t.Parallel()
	leader := serveScript(t, members(one))
	gone := closedAddr(t)
	for name, endpoints := range map[string][]string{
		"it is elected meanwhile":             {serveScript(t, fault(isotone.CodeNoLeader, "none", ""), fault(isotone.CodeNoLeader, "none", ""), members(one)).addr()},
		"it was killed, and nobody knows yet": {serveScript(t, fault(isotone.CodeNotLeader, "node 9 leads", gone), fault(isotone.CodeNotLeader, "node 1 leads", leader.addr())).addr()},
		"it has just been elected":            {serveScript(t, fault(isotone.CodeOverloaded, "try again", ""), members(one)).addr()},
		"the first endpoint waits to join":    {serveScript(t, fault(isotone.CodeNoLeader, "not a member yet", "")).addr(), leader.addr()},
		"the first endpoint is gone":          {gone, leader.addr()},
	} {
		if code, out, err := command("member", "list", "--endpoint", strings.Join(endpoints, ",")); code != 0 || !strings.Contains(out, "a:2") {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, err)
		}
	}
}

func TestOperator_SaysWhyItFails(t *testing.T) {
	gone := closedAddr(t)
	none := serveScript(t, fault(isotone.CodeNoLeader, "no leader is known", "")).addr()
	other := serveScript(t, func(w http.ResponseWriter) { http.Error(w, "hello", 404) }).addr()
	refusing := serveScript(t, fault(isotone.CodeInvalidArgument, "node 1 is the last voter", ""))
	// With an hour to wait: what cannot succeed fails at once.
	wantRun(t, 1, "", "connection refused", "member", "list", "--timeout", "1h", "--endpoint", gone)
	wantRun(t, 1, "", "is this a node of this version?", "member", "list", "--timeout", "1h", "--endpoint", other)
	for timeout := 300 * time.Millisecond; ; timeout *= 4 { // in which the node has to answer once
		args := []string{"member", "list", "--endpoint", none, "--timeout", timeout.String()}
		if _, _, err := command(args...); !strings.Contains(err, "no answer within") || timeout > 20*time.Second {
			wantRun(t, 1, "", "no_leader: no leader is known", args...)
			break
		}
	}
	wantRun(t, 1, "", "invalid_argument: node 1 is the last voter", "member", "update", "4", "d:1", "--timeout", "1h", "--endpoint", refusing.addr())
	proxy := serveScript(t, fault(isotone.CodeNotFound, `no such path: "/admin/members"`, "")).addr()
	wantRun(t, 1, "", "is not a node (perhaps a proxy)", "member", "list", "--timeout", "1h", "--endpoint", proxy)
	if asked := refusing.requests(); len(asked) != 2 || !strings.HasPrefix(asked[0], "POST") || !strings.HasPrefix(asked[1], "GET") {
		t.Errorf("a request that was refused is not sent again: %q", asked)
	}
	wantRun(t, 2, "", "--endpoint", "member", "list", "--endpoint", "ftp://a")
	wantRun(t, 2, "", "no address to change", "member", "update", "2", "-", "--endpoint", gone)
	wantRun(t, 2, "", "--learner", "member", "add", "4", "d:1", "--learner", "--voter")
	for _, args := range []string{"member add", "member add x d:1", "member add -1 d:1", "member promote", "member remove x", "member replace 3", "member update 3", "floor raise", "worker revoke", "worker revoke x", "leader transfer x"} {
		wantRun(t, 2, "", "--help", strings.Fields(args)...)
	}
}

// stdin replaces the standard input until the test ends.
func stdin(t *testing.T, f *os.File) {
	was := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = was; _ = f.Close() })
}

// TestOperator_AsksBeforeWhatCannotBeUndone, and does nothing if nobody can answer.
func TestOperator_AsksBeforeWhatCannotBeUndone(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	pipe, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(end, "yes") // of a script that means something else
	_ = end.Close()
	wide := isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), 5)
	for _, in := range []*os.File{null, pipe} {
		stdin(t, in)
		for args, question := range map[string]string{
			"member remove 3":              "Node 3 is removed for good",
			"member replace 3 c:1":         "Node 3 gets a new data directory",
			"floor raise " + wide.String(): "All later timestamps will be larger than " + nanoTime(wide.Timestamp().Time) + `, as which "` + wide.String() + `" is read (a 64-bit timestamp).`,
		} {
			s := serveScript(t, members(one, front.MemberRecord{NodeID: 3, Role: "voter", PeerAddr: "c:0"}))
			wantRun(t, 2, "", question, append(strings.Fields(args), "--endpoint", s.addr())...)
			wantRun(t, 2, "", "Confirm with --yes.", append(strings.Fields(args), "--endpoint", s.addr())...)
			for _, r := range s.requests() {
				if strings.HasPrefix(r, "POST") {
					t.Errorf("%s without a confirmation: %s", args, r)
				}
			}
		}
	}
	given := serveScript(t, members(one, front.MemberRecord{NodeID: 3, Role: "voter"}, front.MemberRecord{NodeID: 3, Generation: 1, Role: "learner", Replaces: 3}))
	wantRun(t, 2, "", "The replacement of node 3 is given up.", "member", "remove", "3", "--endpoint", given.addr())
}

// TestOperator_LooksWhetherALostRequestHadItsEffect: the leader dies before it can answer, and
// its successor refuses what has happened already.
func TestOperator_LooksWhetherALostRequestHadItsEffect(t *testing.T) {
	t.Parallel()
	three := front.MemberRecord{NodeID: 3, Role: "voter", PeerAddr: "c:1", Addr: "c:2"}
	four := front.MemberRecord{NodeID: 4, Role: "learner", PeerAddr: "d:1", Promote: true}
	voter := front.MemberRecord{NodeID: 4, Role: "voter", PeerAddr: "d:1"}
	next := front.MemberRecord{NodeID: 3, Generation: 1, Role: "learner", PeerAddr: "c:9", Replaces: 3}
	for _, tt := range []struct {
		args           string
		before         answer // of GET, nil if the command does not look first
		after          answer
		refusal, words string
	}{
		{"member add 4 d:1", members(one, three), members(one, three, four), "node 4 is a member already", "node 4 is added"},
		{"member promote 4", members(one, three, four), members(one, three, voter), "node 4 is a voter already", "node 4 is a voter"},
		{"member remove 3", members(one, three), members(one), "node 3 is no member", "node 3 is removed"},
		{"member remove 3", members(one, three, next), members(one, three), "node 3 is no member", "the replacement of node 3 is given up"},
		{"member replace 3 c:9 --wait 0", members(one, three), members(one, three, next), "node 3 is being replaced already", "node 3 has not been started yet"},
		{"member update 3 c:1 c:2", nil, members(one, three), "node 3 is being moved", "the addresses of node 3 are changed"},
	} {
		for name, first := range map[string]answer{"connection": lost, "leadership": fault(isotone.CodeNoLeader, "it may or may not have happened", "")} {
			before := []answer{}
			unchanged := members(one)
			if tt.before != nil {
				before, unchanged = append(before, tt.before), tt.before
			}
			run := func(script ...answer) (code int, out, err string) {
				a := serveScript(t, append(before[:len(before):len(before)], script...)...).addr()
				return command(append(strings.Fields(tt.args), "--yes", "--endpoint", a+","+a)...)
			}
			refused := fault(isotone.CodeInvalidArgument, tt.refusal, "")
			if code, out, err := run(first, refused, tt.after); code != 0 || !strings.Contains(out, tt.words) {
				t.Errorf("%s, the %s was lost after it happened: exit code %d, %s%s", tt.args, name, code, out, err)
			}
			if code, _, err := run(first, refused, unchanged); code != 1 || !strings.Contains(err, tt.refusal) {
				t.Errorf("%s, the %s was lost and it did not happen: exit code %d, %s", tt.args, name, code, err)
			}
			if code, out, err := run(refused, tt.after); code != 0 || !strings.Contains(out, tt.words) {
				t.Errorf("%s, refused as an earlier command had its effect meanwhile: exit code %d, %s%s", tt.args, code, out, err)
			}
			if code, _, err := run(refused, unchanged); code != 1 || !strings.Contains(err, tt.refusal) {
				t.Errorf("%s, refused: exit code %d, %s", tt.args, code, err)
			}
		}
	}
	s := serveScript(t, lost)
	wantRun(t, 1, "", "it may have had its effect", "member", "update", "4", "d:1", "--endpoint", s.addr())
	wantRun(t, 1, "", "it may have had its effect", "leader", "resign", "--endpoint", s.addr())
}

// TestOperator_ACommandCanBeRepeated: whoever got no answer runs it again, and nothing more happens
// than was asked for.
func TestOperator_ACommandCanBeRepeated(t *testing.T) {
	three := front.MemberRecord{NodeID: 3, Generation: 1, Role: "voter", PeerAddr: "c:9", Incarnation: "03", Connected: true}
	next := front.MemberRecord{NodeID: 3, Generation: 2, Role: "learner", PeerAddr: "c:9", Replaces: 3, Promote: true}
	gone := func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(front.MemberList{Leader: 1, Members: []front.MemberRecord{one, three}, Removed: []uint64{4}})
	}
	for _, tt := range []struct {
		args, words string
		list        answer
	}{
		{"member add 3 c:9", "node 3 is a voter", members(one, three)},
		{"member add 3 c:9 --voter", "node 3 is a voter", members(one, three)},
		{"member add 4 d:1 --learner", "node 4 is added as a learner", members(one, front.MemberRecord{NodeID: 4, Role: "learner", PeerAddr: "d:1"})},
		{"member add 4 d:1", "node 4 is added, and becomes a voter", members(one, front.MemberRecord{NodeID: 4, Role: "learner", PeerAddr: "d:1", Promote: true})},
		{"member remove 4", "node 4 is removed", gone},
		{"member remove 3 --replacement", "node 3 is not being replaced", members(one, three)},
		{"member replace 3 c:9", "node 3 is replaced", members(one, three)},
		{"member replace 3 c:9 --wait 0", "node 3 has not been started yet", members(one, three, next)},
	} {
		s := serveScript(t, tt.list)
		wantRun(t, 0, tt.words, "", append(strings.Fields(tt.args), "--yes", "--endpoint", s.addr())...)
		for _, r := range s.requests() {
			if strings.HasPrefix(r, "POST") {
				t.Errorf("%s, which was done: %s", tt.args, r)
			}
		}
	}
	refused := fault(isotone.CodeInvalidArgument, "node 3 is a member already", "")
	wantRun(t, 1, "", "node 3 is a member already; on record: voter, peer address c:9, client address -; to change the address: isotone member update 3 c:8\n",
		"member", "add", "3", "c:8", "--endpoint", serveScript(t, members(one, three), refused, members(one, three)).addr())
	wantRun(t, 1, "", "node 3 is a member already; on record: voter, peer address c:9, client address -\n",
		"member", "add", "3", "c:9", "--learner", "--endpoint", serveScript(t, members(one, three), refused, members(one, three)).addr())
	for args, list := range map[string]answer{
		"add 3 c:8":              members(one, three),
		"add 3 c:9 --learner":    members(one, three),
		"remove 5":               members(one, three),
		"remove 5 --replacement": members(one, three),
	} {
		wantRun(t, 1, "", "member", append(strings.Fields("member "+args), "--yes", "--endpoint", serveScript(t, list, refused).addr())...)
	}
}

func TestOperator_WaitsUntilTheSuccessorIsAVoter(t *testing.T) {
	t.Parallel()
	was := front.MemberRecord{NodeID: 3, Role: "voter", PeerAddr: "c:1", Incarnation: "03"}
	next := func(role, incarnation string, connected bool) front.MemberRecord {
		return front.MemberRecord{NodeID: 3, Generation: 1, Role: role, PeerAddr: "c:9", Incarnation: incarnation, Connected: connected, Replaces: 3, Promote: true}
	}
	done := next("voter", "04", true)
	done.Replaces, done.Promote = 0, false
	replace := func(script ...answer) (int, string, string) {
		return command("member", "replace", "3", "c:9", "--yes", "--wait", "1m", "--endpoint", serveScript(t, script...).addr())
	}
	fresh := members(one, was, next("learner", "", false))
	code, out, err := replace(members(one, was), fresh, fresh, fresh, lost, members(one, was, next("learner", "04", false)),
		members(one, was, next("learner", "04", true)), members(one, was, next("voter", "04", true)), members(one, done))
	if code != 0 || out != "node 3 is replaced\n" {
		t.Errorf("exit code %d, %s", code, out)
	}
	want := []string{
		"node 3 has not been started yet: start it with an empty data directory: NODE_ID=3 RAFT_ADDR=c:9 JOIN=", "EOF",
		"node 3 is not connected", "node 3 is connected and catches up", "node 3 is a voter, and its former data directory is being removed",
	}
	lines := strings.Split(strings.TrimSpace(err), "\n")
	for i, line := range lines {
		if len(lines) != len(want) || !strings.Contains(line, want[i]) {
			t.Errorf("line %d of %d: %q, want %d lines %q", i, len(lines), line, len(want), want)
		}
	}
	if code, _, err := replace(members(one, was), fresh, fresh, members(one, was)); code != 1 || !strings.Contains(err, "somebody else has given that up") {
		t.Errorf("given up meanwhile: exit code %d, %s", code, err)
	}
	// It was begun before, perhaps by this operator.
	s := serveScript(t, fresh, members(one, done))
	wantRun(t, 0, "node 3 is replaced", "", "member", "replace", "3", "c:9", "--endpoint", s.addr())
	if strings.Contains(fmt.Sprint(s.requests()), "POST") {
		t.Errorf("a replacement that is under way was ordered again: %q", s.requests())
	}
	wantRun(t, 1, "", "node 3 is not a voter after 300ms; the cluster goes on by itself", "member", "replace", "3", "c:9", "--wait", "300ms", "--endpoint", serveScript(t, fresh).addr())
	wantRun(t, 0, "node 3 has not been started yet", "", "member", "replace", "3", "c:9", "--wait", "0", "--endpoint", serveScript(t, fresh).addr())
}
