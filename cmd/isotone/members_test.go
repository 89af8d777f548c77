package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// testWait bounds every wait of these tests.
const testWait = 20 * time.Second

// process is one node in this process, which does what isotone serve does.
type process struct {
	t   *testing.T
	s   config.Settings
	log syncBuffer

	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // set then
	m      *member       // set when started is closed
	began  chan struct{}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newProcess sets up a node with addresses and a directory of its own.
func newProcess(t *testing.T, id uint64) *process {
	t.Helper()
	s := config.Default()
	s.NodeID, s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort = id, "127.0.0.1", 0, "127.0.0.1:0", 0
	s.DataDir = filepath.Join(t.TempDir(), "data")
	so, err := listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	s.AdvertiseAddr, s.RaftAddr = so.http.Addr().String(), so.peer.Addr().String()
	s.HTTPPort = portOf(t, s.AdvertiseAddr)
	if err := so.close(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, s: s}
	t.Cleanup(func() { p.stop() })
	return p
}

func portOf(t *testing.T, addr string) (port int) {
	t.Helper()
	if _, err := fmt.Sscanf(addr[strings.LastIndexByte(addr, ':'):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// start runs the node. It may have to wait until it is let in.
func (p *process) start() {
	p.t.Helper()
	so, err := listen(&p.s)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done, p.began, p.m = cancel, make(chan struct{}), make(chan struct{}), nil
	log := telemetry.NewLogger(&p.log, telemetry.LogOptions{})
	go func() {
		defer close(p.done)
		id, join, err := identify(ctx, &p.s, so.http, log)
		if err != nil {
			p.err = errors.Join(err, so.close())
			return
		}
		if p.m, p.err = startMember(&p.s, so, memberOptions{id: id, join: join, loops: 1}, log); p.err != nil {
			return
		}
		close(p.began)
		if p.err = p.m.wait(ctx); p.err == nil {
			p.err = p.m.stop(log)
		} else {
			_ = p.m.close()
		}
	}()
}

// stop ends the node as SIGTERM does, and returns its error.
func (p *process) stop() error {
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	return p.ended()
}

// ended waits until the node has ended, and returns its error.
func (p *process) ended() error {
	p.t.Helper()
	select {
	case <-p.done:
		p.cancel()
		return p.err
	case <-time.After(testWait):
		p.t.Fatalf("node %d goes on: %s", p.s.NodeID, p.log.String())
		return nil
	}
}

// eventually waits until done returns true.
func eventually(t *testing.T, done func() (bool, string)) {
	t.Helper()
	for deadline := time.Now().Add(testWait); ; time.Sleep(5 * time.Millisecond) {
		ok, why := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(why)
		}
	}
}

// ready waits until the node answers that it is.
func (p *process) ready() {
	p.t.Helper()
	p.says("/ready", 200, "")
}

// says waits for an answer of the node.
func (p *process) says(path string, status int, words string) {
	p.t.Helper()
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(p.t, func() (bool, string) {
		resp, err := c.Get("http://" + p.s.AdvertiseAddr + path)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == status && strings.Contains(string(body), words),
			fmt.Sprintf("node %d, %s: %d %s, want %d and %q", p.s.NodeID, path, resp.StatusCode, body, status, words)
	})
}

// processes are the nodes of a cluster.
type processes []*process

// startProcesses runs a cluster of n founders.
func startProcesses(t *testing.T, n int) (all processes) {
	t.Helper()
	peers := map[uint64]string{}
	for i := range n {
		p := newProcess(t, uint64(i+1))
		peers[p.s.NodeID] = p.s.RaftAddr
		all = append(all, p)
	}
	for _, p := range all {
		p.s.Peers = peers
		p.start()
	}
	for _, p := range all {
		p.ready()
	}
	return all
}

func (all processes) addrs() (list []string) {
	for _, p := range all {
		list = append(list, p.s.AdvertiseAddr)
	}
	return list
}

// operate runs a command at these nodes.
func (all processes) operate(args string) (code int, out, err string) {
	return command(append(strings.Fields(args), "--yes", "--endpoint", strings.Join(all.addrs(), ","))...)
}

// does runs a command, which must succeed.
func (all processes) does(t *testing.T, args, words string) {
	t.Helper()
	if code, out, err := all.operate(args); code != 0 || !strings.Contains(out, words) {
		t.Fatalf("isotone %s: exit code %d, %s%s; want %q", args, code, out, err, words)
	}
}

// refuses runs a command, which must fail with exit code 1 and some words.
func (all processes) refuses(t *testing.T, args string, words ...string) {
	t.Helper()
	code, out, err := all.operate(args)
	for _, word := range words {
		if code != 1 || out != "" || !strings.Contains(err, word) {
			t.Errorf("isotone %s: exit code %d, %s%s; want %q", args, code, out, err, word)
		}
	}
}

// list returns the members as the leader sees them.
func (all processes) list(t *testing.T) (l front.MemberList) {
	t.Helper()
	code, out, err := all.operate("member list --json")
	if e := json.Unmarshal([]byte(out), &l); code != 0 || e != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, e, out, err)
	}
	return l
}

// leader returns the leader and the others.
func (all processes) leader(t *testing.T) (leader *process, others processes) {
	t.Helper()
	id := all.list(t).Leader
	for _, p := range all {
		if p.s.NodeID == id {
			leader = p
		} else {
			others = append(others, p)
		}
	}
	return leader, others
}

// roles waits until the members have these roles, as in "1 voter, 2 leader"; any leader counts
// as a voter.
func (all processes) roles(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() (bool, string) {
		var got []string
		for _, m := range all.list(t).Members {
			got = append(got, fmt.Sprintf("%d %s", m.NodeID, strings.Replace(m.Role, "leader", "voter", 1)))
		}
		return strings.Join(got, ", ") == want, fmt.Sprintf("%q, want %q", got, want)
	})
}

// joiner sets up a node that joins a cluster.
func (all processes) joiner(t *testing.T, id uint64) *process {
	t.Helper()
	p := newProcess(t, id)
	p.s.Join = all.addrs()
	return p
}

func TestMembers_GrowAndShrink(t *testing.T) {
	all := startProcesses(t, 3)
	first := all.list(t)
	if len(first.Members) != 3 || len(first.Removed) != 0 || first.ClusterID != clusterOf(all[0].m).String() {
		t.Errorf("%+v", first)
	}
	for _, m := range first.Members {
		p := all[m.NodeID-1]
		if m.PeerAddr != p.s.RaftAddr || m.Addr != p.s.AdvertiseAddr || !m.Connected || m.Start != 1 || len(m.Incarnation) != 16 || m.Generation != 0 {
			t.Errorf("%+v", m)
		}
	}
	_, out, _ := all.operate("member list")
	for _, words := range []string{"NODE   ROLE", "3      ", all[2].s.RaftAddr, all[2].s.AdvertiseAddr, "yes", "cluster " + first.ClusterID} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is missing in %s", words, out)
		}
	}

	// Node 4 becomes a voter by itself; node 5 remains a learner until it is promoted.
	four, five := all.joiner(t, 4), all.joiner(t, 5)
	all.does(t, "member add 4 "+four.s.RaftAddr, "node 4 is added, and becomes a voter once it has caught up. Now, start it with an empty data directory: NODE_ID=4 RAFT_ADDR="+four.s.RaftAddr+" JOIN=")
	if _, out, _ := all.operate("member list"); !strings.Contains(out, "to be started with JOIN, on an empty data directory") {
		t.Error(out)
	}
	all.does(t, "member add 5 "+five.s.RaftAddr+" --learner --json", `"nodeID":5,"generation":0,"role":"learner"`)
	four.start()
	all.roles(t, "1 voter, 2 voter, 3 voter, 4 voter, 5 learner")
	all.refuses(t, "member promote 5", "node 5 has not connected yet; start it with JOIN")
	five.start()
	five.ready()
	all.does(t, "member promote 5", "node 5 is a voter")
	all.does(t, "member promote 5", "node 5 is a voter") // and is no error
	all = append(all, four, five)
	all.roles(t, "1 voter, 2 voter, 3 voter, 4 voter, 5 voter")
	five.ready()
	if strings.Contains(four.log.String()+five.log.String(), "PEERS differs") {
		t.Errorf("%s%s", four.log.String(), five.log.String())
	}

	// The leader is removed, then node 5 with the rest asked.
	leader, others := all.leader(t)
	all.does(t, fmt.Sprintf("member remove %d", leader.s.NodeID), fmt.Sprintf("node %d is removed; stop it and delete its data directory", leader.s.NodeID))
	if err := leader.ended(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("node %d has stopped: removed: node %[1]d was removed from cluster %s for good", leader.s.NodeID, first.ClusterID)) {
		t.Errorf("the removed node: %v", err)
	}
	if l := others.list(t); !slices.Equal(l.Removed, []uint64{leader.s.NodeID}) || len(l.Members) != 4 {
		t.Errorf("%+v", l)
	}
	others.refuses(t, fmt.Sprintf("member add %d a:1", leader.s.NodeID), "was a member of this cluster before; a node ID is used once")
	if _, out, _ := others.operate("member list"); !strings.Contains(out, fmt.Sprintf("; removed or replaced before: node %d", leader.s.NodeID)) {
		t.Error(out)
	}

	// It does not come back, however often it is started, with PEERS or with JOIN.
	for range 2 {
		leader.start()
		if err := leader.ended(); err == nil || !strings.Contains(err.Error(), "removed: node") {
			t.Errorf("started again: %v", err)
		}
		leader.s.Peers, leader.s.Join = nil, others.addrs()
	}
}

func TestMembers_RefusesWhatMustNotHappen(t *testing.T) {
	all := startProcesses(t, 3)
	all.refuses(t, "member add 0 a:1", "invalid_argument", "must not be 0")
	all.refuses(t, "member add 3 a:1", "invalid_argument", "node 3 is a member already", "isotone member replace 3 PEER_ADDR")
	all.refuses(t, "member add 4 "+strings.Repeat("a", 300)+":1", "invalid_argument", "want host:port, at most 256 bytes")
	all.refuses(t, "member add 281474976710656 a:1", "invalid_argument", "a node ID is at most 281474976710655")
	all.refuses(t, "member promote 4", "invalid_argument", "node 4 is no member: add it as a learner first")
	all.refuses(t, "member remove 4", "invalid_argument", "node 4 is no member")
	all.refuses(t, "member replace 4 a:1", "invalid_argument", "node 4 is no member; add it")
	all.refuses(t, "member replace 3 "+strings.Repeat("a", 300)+":1", "invalid_argument", "at most 256 bytes")
	all.refuses(t, "member update 4 a:1", "invalid_argument", "node 4 is no member")
	all.refuses(t, "member update 3 "+strings.Repeat("a", 300)+":1", "invalid_argument", "at most 256 bytes")
	all.refuses(t, "leader transfer 4", "invalid_argument", "node 4 is no voter")
	all.refuses(t, "floor raise 2200-01-01T00:00:00Z", "invalid_argument", "ahead of the clock", "use force")
	all.does(t, "member add 4 127.0.0.1:1", "node 4 is added")
	all.refuses(t, "leader transfer 4", "node 4 is no voter")
	all.does(t, "member replace 3 127.0.0.1:2 --wait 0", "node 3 has not been started yet")
	all.refuses(t, "member replace 3 127.0.0.1:3", "node 3 is being replaced already, by a node at 127.0.0.1:2; to give that up: isotone member remove 3")
	if _, out, _ := all.operate("member list"); !strings.Contains(out, "is being replaced") {
		t.Error(out)
	}
	all.does(t, "member remove 3", "the replacement of node 3 is given up; the node itself remains a member")
	all.does(t, "member remove 4", "node 4 is removed")
	all.roles(t, "1 voter, 2 voter, 3 voter")

	// With a follower down the other one must stay.
	leader, others := all.leader(t)
	if err := others[0].stop(); err != nil {
		t.Fatal(err)
	}
	two := processes{leader, others[1]}
	two.refuses(t, fmt.Sprintf("member remove %d", others[1].s.NodeID), "overloaded", "of which only 1 are connected", "it could not elect a leader")
	two.refuses(t, fmt.Sprintf("leader transfer %d", others[0].s.NodeID), "invalid_argument", "is not connected")
	two.does(t, fmt.Sprintf("member remove %d", others[0].s.NodeID), "is removed")
	two.does(t, fmt.Sprintf("member remove %d", others[1].s.NodeID), "is removed")
	alone := processes{leader}
	alone.refuses(t, fmt.Sprintf("member remove %d", leader.s.NodeID), "invalid_argument", "is the last voter and cannot be removed")
	alone.refuses(t, "leader resign", "invalid_argument", "there is no other voter")
	if err := others[1].ended(); err == nil || !strings.Contains(err.Error(), "removed: node") {
		t.Errorf("the removed node: %v", err)
	}
}

func TestMembers_OneChangeAtATime(t *testing.T) {
	all := startProcesses(t, 3)
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 8 {
		wg.Go(func() {
			m := all[0].m.node
			for _, p := range all {
				if p.m.node.Status().Role == "leader" {
					m = p.m.node
				}
			}
			err := m.ChangeMember(t.Context(), front.MemberChange{Action: front.AddMember, NodeID: uint64(10 + i), PeerAddr: "127.0.0.1:1", Learner: true})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				outcomes["done"]++
			case errors.Is(err, isotone.ErrOverloaded) && strings.Contains(err.Error(), "another change of membership is under way"):
				outcomes["refused"]++
			default:
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if outcomes["done"] == 0 || len(all.list(t).Members) != 3+outcomes["done"] {
		t.Errorf("%v, %+v", outcomes, all.list(t))
	}
	t.Logf("%v", outcomes)
	all.does(t, "member add 30 127.0.0.1:1", "node 30 is added") // the command waits its turn
}

func TestMembers_LeadershipAndFloor(t *testing.T) {
	all := startProcesses(t, 3)
	leader, others := all.leader(t)
	to := others[0]
	all.does(t, fmt.Sprintf("leader transfer %d", to.s.NodeID), fmt.Sprintf("node %d leads, at %s", to.s.NodeID, to.s.AdvertiseAddr))
	all.does(t, fmt.Sprintf("leader transfer %d --json", leader.s.NodeID), fmt.Sprintf(`{"nodeID":%d,"addr":%q}`, leader.s.NodeID, leader.s.AdvertiseAddr))
	all.does(t, fmt.Sprintf("leader transfer %d", leader.s.NodeID), "leads") // and is no error
	code, out, _ := all.operate("leader resign --json")
	var now leaderReport
	if err := json.Unmarshal([]byte(out), &now); code != 0 || err != nil || now.NodeID == leader.s.NodeID || now.Addr == leader.s.AdvertiseAddr {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	all.does(t, "leader show", fmt.Sprintf("node %d leads", now.NodeID))

	ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	all.does(t, "floor raise "+ahead.Format(time.RFC3339Nano), "all later timestamps are larger than "+ahead.Format(time.RFC3339Nano))
	later := isotone.Timestamp{Time: uint64(ahead.Add(time.Minute).UnixNano())}
	all.does(t, "floor raise --json "+later.String(), fmt.Sprintf(`{"time":"%d"}`, later.Time))
	all.does(t, fmt.Sprintf("floor raise %d", later.Time), "all later timestamps are larger") // it is already
	_, body := fetch(t, "http://"+now.Addr+"/timestamp?format=json&mode=quorum")
	var answer struct {
		Timestamps []struct {
			Time uint64 `json:",string"`
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Timestamps) != 1 || answer.Timestamps[0].Time <= later.Time {
		t.Errorf("%v: %s is not above %d", err, body, later.Time)
	}
	all.does(t, "floor raise --force 2200-01-01T00:00:00Z", "all later timestamps are larger than 2200")
	for _, text := range []string{"x", "-1", "9223372036854775808", "2262-04-12T00:00:00Z", "1969-01-01T00:00:00Z", strings.Repeat("f", 32), strings.Repeat("x", 32)} {
		if code, _, err := all.operate("floor raise -- " + text); code != exitUsage {
			t.Errorf("floor raise %s: exit code %d, %s", text, code, err)
		}
	}
}

// TestMembers_MoveToOtherAddresses, with PEERS left as it was.
func TestMembers_MoveToOtherAddresses(t *testing.T) {
	all := startProcesses(t, 3)
	_, others := all.leader(t)
	p, to := others[0], newProcess(t, others[0].s.NodeID)
	all.does(t, fmt.Sprintf("member update %d - %s", p.s.NodeID, "elsewhere:1"), "are changed")
	eventually(t, func() (bool, string) {
		_, body := fetch(t, "http://"+others[1].s.AdvertiseAddr+"/members")
		return strings.Contains(body, `"addr":"elsewhere:1"`), body
	})
	all.does(t, fmt.Sprintf("member update %d %s", p.s.NodeID, to.s.RaftAddr), "are changed")
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.s.RaftAddr, p.s.AdvertiseAddr, p.s.HTTPPort = to.s.RaftAddr, to.s.AdvertiseAddr, to.s.HTTPPort
	p.start()
	p.ready()
	eventually(t, func() (bool, string) {
		m := all.list(t).Members[p.s.NodeID-1]
		return m.Connected && m.PeerAddr == p.s.RaftAddr && m.Addr == p.s.AdvertiseAddr, fmt.Sprintf("%+v", m)
	})
	if log := p.log.String(); !strings.Contains(log, "PEERS differs from the members that the cluster has by now, and is ignored") {
		t.Errorf("no warning: %s", log)
	}
}

func TestJoin_RefusesPeersBeside(t *testing.T) {
	wantRun(t, exitUsage, "", "want JOIN or PEERS, not both", "serve", "--join", "a:1", "--peers", "1=a:2", "--data-dir", t.TempDir())
	wantRun(t, exitUsage, "", "JOIN (--join)", "serve", "--join", "a", "--data-dir", t.TempDir())
}

// TestJoin_BeforeItIsAdded: the node waits, says for what, and joins as soon as it may.
func TestJoin_BeforeItIsAdded(t *testing.T) {
	all := startProcesses(t, 1)
	p := all.joiner(t, 2)
	p.start()
	p.says("/up", 200, "ok")
	const reason = "not_found: node 2 is not a member of cluster"
	for _, path := range []string{"/ready", "/timestamp", "/members"} {
		p.says(path, 503, reason)
	}
	if err := p.stop(); !errors.Is(err, errStoppedJoining) {
		t.Errorf("stopped: %v", err)
	}
	if id, _ := os.ReadDir(p.s.DataDir); len(id) != 0 {
		t.Errorf("it has written %v", id)
	}
	p.start()
	p.says("/ready", 503, reason)
	all.does(t, "member add 2 "+p.s.RaftAddr+" --voter", "node 2 is a voter")
	p.ready()
	all = append(all, p)
	// With its directory it needs neither JOIN nor PEERS, and both may be out of date.
	for _, join := range [][]string{{closedAddr(t)}, nil} {
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
		p.s.Join = join
		p.start()
		p.ready()
	}
	if m := all.list(t).Members[1]; m.Start != 3 || m.Role == "learner" {
		t.Errorf("%+v", m)
	}
}

// TestJoin_ResumesWithItsDirectory: the cluster knows the node, but nobody can let it in yet,
// when it is stopped and started again.
func TestJoin_ResumesWithItsDirectory(t *testing.T) {
	all := startProcesses(t, 1)
	p := all.joiner(t, 2)
	all.does(t, "member add 2 "+p.s.RaftAddr, "is added")
	listed := all.list(t).Members[0].PeerAddr
	all.does(t, "member update 1 "+closedAddr(t), "are changed") // where the joiner dials in vain
	p.start()
	<-p.began
	incarnation := func() string {
		for line := range strings.Lines(p.log.String()) {
			if _, rest, ok := strings.Cut(line, `"incarnation":"`); ok {
				return rest[:16]
			}
		}
		return ""
	}
	was := incarnation()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}

	p.s.Join = nil
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "was made to join cluster") || !strings.Contains(err.Error(), "start with JOIN again") {
		t.Errorf("without JOIN: %v", err)
	}
	foreign := startProcesses(t, 1)
	p.s.Join = foreign.addrs()
	if code, out, err := foreign.operate("member add 2 " + p.s.RaftAddr); code != 0 {
		t.Fatal(out, err)
	}
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "JOIN names nodes of cluster "+clusterOf(foreign[0].m).String()) ||
		!strings.Contains(err.Error(), "was made to join cluster "+clusterOf(all[0].m).String()) {
		t.Errorf("with JOIN of another cluster: %v", err)
	}

	all.does(t, "member update 1 "+listed, "are changed")
	p.s.Join = all.addrs()
	p.start()
	p.ready()
	all = append(all, p)
	all.roles(t, "1 voter, 2 voter")
	if m := all.list(t).Members[1]; m.Incarnation != was || m.Start < 2 {
		t.Errorf("it joined as %+v, and was %s", m, was)
	}
	other := all.joiner(t, 2)
	other.start()
	other.says("/ready", 503, "node 2 is a member of cluster "+clusterOf(all[0].m).String()+" with another data directory; if that is lost, run: isotone member replace 2 PEER_ADDR")
}

// TestJoin_AReplacementJoinsOnTheOldAddress, started before the command; the old directory is
// refused for good, and so is one that was made for a replacement that was given up.
func TestJoin_AReplacementJoinsOnTheOldAddress(t *testing.T) {
	all := startProcesses(t, 3)
	_, others := all.leader(t)
	p := others[0]
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	old := p.s
	rest := processes{}
	for _, o := range all {
		if o != p {
			rest = append(rest, o)
		}
	}
	p.s.Peers, p.s.Join, p.s.DataDir = nil, rest.addrs(), filepath.Join(t.TempDir(), "new")
	p.start()
	p.says("/ready", 503, "another data directory")
	rest.does(t, fmt.Sprintf("member replace %d %s", p.s.NodeID, p.s.RaftAddr), fmt.Sprintf("node %d is replaced", p.s.NodeID))
	p.ready()
	all.roles(t, "1 voter, 2 voter, 3 voter")
	m := all.list(t).Members[p.s.NodeID-1]
	if m.Generation != 1 || m.Replaces != 0 || m.Promote || !m.Connected {
		t.Errorf("%+v", m)
	}
	for _, o := range all { // people see nodes, not generations
		if text := o.log.String(); strings.Contains(text, "2814749767") {
			t.Errorf("the log of node %d has the ID of a member: %s", o.s.NodeID, text)
		}
		eventually(t, func() (bool, string) {
			_, body := fetch(t, "http://"+o.s.AdvertiseAddr+"/state")
			return strings.Count(body, `"nodeID":`) > 0 && !strings.Contains(body, "2814749767"), body
		})
		if _, body := fetch(t, "http://"+o.s.AdvertiseAddr+"/metrics"); strings.Contains(body, `peer="2814749767`) {
			t.Errorf("the metrics of node %d have the ID of a member", o.s.NodeID)
		}
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	renewed := p.s
	p.s = old
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "removed: node "+fmt.Sprint(old.NodeID)+" was replaced by a node with a new data directory") {
		t.Errorf("the old directory: %v", err)
	}
	p.s = renewed
	p.s.NodeID = 9
	p.start()
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("belongs to node %d, but this is node 9", old.NodeID)) {
		t.Errorf("as another node: %v", err)
	}
	p.s.NodeID = old.NodeID
	p.start()
	p.ready()
}
