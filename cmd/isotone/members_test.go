package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
)

func TestMembers_GrowAndShrink(t *testing.T) {
	t.Parallel()
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
	if err := leader.ended(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has stopped: removed: node %d was removed from cluster %s for good", leader.s.NodeID, first.ClusterID)) {
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
	t.Parallel()
	all := startProcesses(t, 3)
	all.refuses(t, "member add 0 a:1", "invalid_argument", "must not be 0")
	all.refuses(t, "member add 3 a:1", "invalid_argument", "node 3 is a member already", "isotone member replace 3 PEER_ADDR", "peer address "+all[2].s.RaftAddr, "client address "+all[2].s.AdvertiseAddr, "isotone member update 3 a:1")
	all.refuses(t, "member add 4 "+strings.Repeat("a", 300)+":1", "invalid_argument", "at most 256 bytes")
	all.refuses(t, "member add 281474976710656 a:1", "invalid_argument", "a node ID is at most 281474976710655")
	all.refuses(t, "member promote 4", "invalid_argument", "node 4 is no member: add it as a learner first")
	all.refuses(t, "member remove 4", "invalid_argument", "node 4 is no member")
	all.refuses(t, "member replace 4 a:1", "invalid_argument", "node 4 is no member; add it")
	all.refuses(t, "member replace 3 "+strings.Repeat("a", 300)+":1", "invalid_argument", "at most 256 bytes")
	all.refuses(t, "member update 4 a:1", "invalid_argument", "node 4 is no member")
	all.refuses(t, "member update 3 "+strings.Repeat("a", 300)+":1", "invalid_argument", "at most 256 bytes")
	all.refuses(t, "leader transfer 4", "invalid_argument", "node 4 is no voter")
	all.refuses(t, "floor raise 2079-01-01T00:00:00Z", "invalid_argument", "ahead of the clock", "use --force")
	all.does(t, "member add 4 127.0.0.1:1", "node 4 is added")
	all.refuses(t, "leader transfer 4", "node 4 is no voter")
	all.does(t, "member replace 3 127.0.0.1:2 --wait 0", "node 3 has not been started yet")
	all.refuses(t, "member replace 3 127.0.0.1:3", "node 3 is being replaced already, by a node at 127.0.0.1:2; to give that up: isotone member remove 3 --replacement")
	if _, out, _ := all.operate("member list"); !strings.Contains(out, "is being replaced") {
		t.Error(out)
	}
	all.does(t, "member remove 3 --replacement", "the replacement of node 3 is given up; the node itself remains a member")
	all.does(t, "member remove 4", "node 4 is removed")
	all.roles(t, "1 voter, 2 voter, 3 voter")

	// With a follower down the other one must stay.
	leader, others := all.leader(t)
	if err := others[0].stop(); err != nil {
		t.Fatal(err)
	}
	two := processes{leader, others[1]}
	two.refuses(t, fmt.Sprintf("member remove %d", others[1].s.NodeID), "no_quorum", "of which only 1 are connected", "it could not elect a leader",
		fmt.Sprintf("not connected: node %d (%s)", others[0].s.NodeID, others[0].s.RaftAddr))
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

// TestMembers_ARequestThatNamesItsMemberCanBeRepeated: a leader that dies before it answers may have
// done what was asked for, and then the next leader is asked again. It must not go on with the
// member that came before or after.
func TestMembers_ARequestThatNamesItsMemberCanBeRepeated(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 3)
	change := func(c front.MemberChange) error {
		t.Helper()
		for {
			leader, _ := all.leader(t)
			err := leader.m.Node.ChangeMember(t.Context(), c)
			if told := (*isotone.Error)(nil); !errors.As(err, &told) || told.Code != isotone.CodeNotLeader {
				return err
			}
		}
	}
	all.does(t, "member add 9 127.0.0.1:1", "node 9 is added")
	for _, step := range []struct {
		action     string
		generation uint64
		words      string // "" if it is done
	}{
		{front.ReplaceMember, 1, "node 9 is no member with generation 1"},
		{front.ReplaceMember, 0, ""},
		{front.ReplaceMember, 0, "being replaced already"},
		{front.RemoveMember, 1, ""},
		{front.RemoveMember, 1, "node 9 is no member with generation 1"},
		{front.RemoveMember, 0, ""},
		{front.RemoveMember, 0, "node 9 is no member with generation 0"},
		{front.PromoteMember, 0, "memberID: want none"},
	} {
		err := change(front.MemberChange{Action: step.action, NodeID: 9, MemberID: oracle.MemberID(9, step.generation), PeerAddr: "127.0.0.1:1"})
		if (err == nil) != (step.words == "") || err != nil && !strings.Contains(err.Error(), step.words) {
			t.Errorf("%s generation %d: %v, want %q", step.action, step.generation, err, step.words)
		}
	}
	err := change(front.MemberChange{Action: front.RemoveMember, NodeID: 2, MemberID: 3})
	if err == nil || !strings.Contains(err.Error(), "is of node 3, not of node 2") {
		t.Error(err)
	}
	all.roles(t, "1 voter, 2 voter, 3 voter")
}

func TestMembers_OneChangeAtATime(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 3)
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 8 {
		wg.Go(func() {
			m := all[0].m.Node
			for _, p := range all {
				if p.m.Node.Status().Role == "leader" {
					m = p.m.Node
				}
			}
			err := m.ChangeMember(t.Context(), front.MemberChange{Action: front.AddMember, NodeID: uint64(10 + i), PeerAddr: fmt.Sprintf("127.0.0.1:%d", 1+i), Learner: true})
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
	all.does(t, "member add 30 127.0.0.1:30", "node 30 is added") // the command waits its turn
}

func TestMembers_LeadershipAndFloor(t *testing.T) {
	t.Parallel()
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
	await.Until(t, "the leader is shown", func() bool { // a busy machine may elect another one
		leader, _ := all.leader(t)
		_, out, _ := all.operate("leader show")
		return leader != nil && strings.Contains(out, fmt.Sprintf("node %d leads", leader.s.NodeID))
	})

	ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	all.does(t, "floor raise "+ahead.Format(time.RFC3339Nano), "all later timestamps are larger than "+ahead.Format(time.RFC3339Nano))
	later := isotone.Timestamp{Time: uint64(ahead.Add(time.Minute).UnixNano())}
	all.does(t, "floor raise --json "+later.String(), fmt.Sprintf(`{"time":"%d","raised":true,"before":"%d","after":"%d"}`, later.Time, ahead.UnixNano()+1, later.Time+1))
	all.does(t, fmt.Sprintf("floor raise %d", later.Time), "all later timestamps are larger than "+nanoTime(later.Time)+"\nnothing was raised: the cluster was at "+nanoTime(later.Time+1)+" already\n")
	all.does(t, "floor raise --json "+later.String(), `"raised":false`)
	var answer struct {
		Timestamps []struct {
			Time uint64 `json:",string"`
		}
	}
	await.Done(t, await.Timeout, func() (bool, string) {
		leader, _ := all.leader(t)
		if leader == nil {
			return false, "there is no leader"
		}
		status, body := rig.Fetch(t, "http://"+leader.s.AdvertiseAddr+"/timestamp?format=json&mode=quorum")
		return status == http.StatusOK && json.Unmarshal([]byte(body), &answer) == nil && len(answer.Timestamps) == 1, body
	})
	if got := answer.Timestamps[0].Time; got <= later.Time {
		t.Errorf("%d is not above %d", got, later.Time)
	}
	wide := isotone.Timestamp64From(isotone.Timestamp{Time: later.Time + uint64(time.Hour)})
	all.does(t, "floor raise "+wide.String(), "all later timestamps are larger than "+nanoTime(wide.Timestamp().Time)+"\nraised from ")
	all.does(t, "floor raise --force 2079-01-01T00:00:00Z", "all later timestamps are larger than 2079")
	for text, words := range map[string]string{
		"x": "is no timestamp", "-5": `"-5" is no timestamp: want`, "9223372036854775805": "not after 2080-07-10", "2262-04-12T00:00:00Z": "is no timestamp",
		"1969-01-01T00:00:00Z": "is no timestamp", strings.Repeat("f", 32): "after the year 2262", "1000": "as a 64-bit timestamp it is 1970",
	} {
		code, _, err := command("floor", "raise", "--force", "--yes", "--endpoint", all[0].s.AdvertiseAddr, "--", text)
		if code != exitUsage || !strings.Contains(err, words) {
			t.Errorf("floor raise %s: exit code %d, %s; want %q", text, code, err, words)
		}
	}
}

// TestMembers_MoveToOtherAddresses, with PEERS left as it was.
func TestMembers_MoveToOtherAddresses(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 3)
	_, others := all.leader(t)
	p, to := others[0], newProcess(t, others[0].s.NodeID)
	all.does(t, fmt.Sprintf("member update %d - %s", p.s.NodeID, "elsewhere:1"), "are changed")
	await.Done(t, await.Timeout, func() (bool, string) {
		_, body := rig.Fetch(t, "http://"+others[1].s.AdvertiseAddr+"/members")
		return strings.Contains(body, `"addr":"elsewhere:1"`), body
	})
	all.does(t, fmt.Sprintf("member update %d %s", p.s.NodeID, to.s.RaftAddr), "are changed")
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.s.RaftAddr, p.s.AdvertiseAddr, p.s.HTTPPort = to.s.RaftAddr, to.s.AdvertiseAddr, to.s.HTTPPort
	p.start()
	p.ready()
	await.Done(t, await.Timeout, func() (bool, string) {
		m := all.list(t).Members[p.s.NodeID-1]
		return m.Connected && m.PeerAddr == p.s.RaftAddr && m.Addr == p.s.AdvertiseAddr, fmt.Sprintf("%+v", m)
	})
	if log := p.log.String(); !strings.Contains(log, "PEERS differs from the members that the cluster has by now") {
		t.Errorf("no warning: %s", log)
	}
}
