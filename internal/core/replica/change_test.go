package replica_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// change asks a node for a change of membership, and returns why it does not propose it.
func (c *cluster) change(n *node, kind replica.MemberChangeKind, id uint64, addr string) *isotone.Error {
	c.t.Helper()
	return c.changeMember(n, kind, oracle.Member{ID: id, PeerAddr: addr})
}

func (c *cluster) changeMember(n *node, kind replica.MemberChangeKind, m oracle.Member) *isotone.Error {
	c.t.Helper()
	e := n.Step(&replica.Input{Mono: c.mono, Now: uint64(c.mono + n.skew), Change: &replica.MemberChange{Kind: kind, Member: m}})
	if e.Fatal != nil {
		c.t.Fatal(e.Fatal)
	}
	refused := e.ChangeRefused
	c.deliver(n, e)
	return refused
}

// deliver carries out the effects of a step that the test ran itself.
func (c *cluster) deliver(n *node, e *replica.Effects) {
	for _, m := range e.Send {
		if to := c.nodes[m.GetTo()]; to != nil && !to.down && (c.drop == nil || !c.drop(m)) {
			to.inbox = append(to.inbox, m)
		}
	}
	if e.Write != nil {
		n.flying = e.Write
	}
}

// newChangeCluster starts voters and one learner.
func newChangeCluster(t *testing.T, voters int) *cluster {
	c := newCluster(t, voters, nil)
	c.leader()
	c.addLearner(uint64(voters) + 1)
	return c
}

// addLearner adds a learner and lets it catch up.
func (c *cluster) addLearner(id uint64) {
	c.t.Helper()
	if err := c.change(c.leader(), replica.AddLearner, id, fmt.Sprintf("peer%d:1", id)); err != nil {
		c.t.Fatal(err)
	}
	c.settle()
	c.add(id, nil, nil)
	c.greet()
	c.tick(50)
}

// changes is how many changes of membership a node has on disk.
func (n *node) changes() (count int) {
	for _, e := range n.disk.entries {
		if e.GetType() == raftpb.EntryConfChangeV2 && len(e.GetData()) > 0 {
			count++
		}
	}
	return count
}

// conf is a node's members, for comparison.
func (n *node) conf() (list []replica.Member) {
	for _, m := range n.Members() {
		list = append(list, replica.Member{Member: oracle.Member{ID: m.ID, PeerAddr: m.PeerAddr}, Learner: m.Learner})
	}
	return list
}

// TestChange_BadOnesAreRefused: nothing is proposed, and nobody panics, now or at the next
// start.
func TestChange_BadOnesAreRefused(t *testing.T) {
	const peer = "peer9:1"
	for name, tc := range map[string]struct {
		voters int
		kind   replica.MemberChangeKind
		id     uint64
		addr   string
		code   isotone.Code
		words  string
	}{
		"no ID":                   {1, replica.AddLearner, 0, peer, isotone.CodeInvalidArgument, "must not be 0"},
		"no ID for a voter":       {1, replica.AddVoter, 0, "", isotone.CodeInvalidArgument, "must not be 0"},
		"remove nobody":           {3, replica.Remove, 0, "", isotone.CodeInvalidArgument, "must not be 0"},
		"a member already":        {3, replica.AddLearner, 2, peer, isotone.CodeInvalidArgument, "node 2 is a member already"},
		"a learner already":       {3, replica.AddLearner, 4, peer, isotone.CodeInvalidArgument, "node 4 is a member already"},
		"the last voter to learn": {1, replica.AddLearner, 1, peer, isotone.CodeInvalidArgument, "node 1 is a member already"},
		"no address":              {1, replica.AddLearner, 9, "", isotone.CodeInvalidArgument, "host:port"},
		"an address with spaces":  {1, replica.AddLearner, 9, "peer9 :1", isotone.CodeInvalidArgument, "host:port"},
		"an address of two lines": {1, replica.AddLearner, 9, "peer9:1\n", isotone.CodeInvalidArgument, "host:port"},
		"an address of 300 bytes": {1, replica.AddLearner, 9, strings.Repeat("a", 300), isotone.CodeInvalidArgument, "at most 256 bytes"},
		"a voter already":         {3, replica.AddVoter, 2, "", isotone.CodeInvalidArgument, "node 2 is a voter already"},
		"a voter out of nowhere":  {3, replica.AddVoter, 9, peer, isotone.CodeInvalidArgument, "node 9 is no member: add it as a learner first"},
		"remove a stranger":       {3, replica.Remove, 9, "", isotone.CodeInvalidArgument, "node 9 is no member"},
		"remove the last voter":   {1, replica.Remove, 1, "", isotone.CodeInvalidArgument, "the last voter"},
		"no kind":                 {3, 0, 9, peer, isotone.CodeInvalidArgument, "unknown kind 0"},
		"a kind to come":          {3, 99, 9, peer, isotone.CodeInvalidArgument, "unknown kind 99"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChangeCluster(t, tc.voters)
			l := c.leader()
			before, written := l.conf(), l.changes()
			err := c.change(l, tc.kind, tc.id, tc.addr)
			if err == nil || err.Code != tc.code || !strings.Contains(err.Message, tc.words) {
				t.Fatalf("%v, want %s with %q", err, tc.code, tc.words)
			}
			c.tick(20)
			for _, n := range c.running() {
				c.start(n)
			}
			c.greet()
			c.must(c.leader())
			for _, n := range c.running() {
				if !slices.Equal(n.conf(), before) || n.changes() != written {
					t.Errorf("node %d: %+v, %d changes written; before %+v, %d", n.id, n.conf(), n.changes(), before, written)
				}
			}
		})
	}
}

// TestChange_OnlyTheLeaderTakesOne that serves.
func TestChange_OnlyTheLeaderTakesOne(t *testing.T) {
	c := newCluster(t, 3, nil)
	if err := c.change(c.nodes[1], replica.AddLearner, 4, "peer4:1"); err == nil || err.Code != isotone.CodeNoLeader {
		t.Errorf("without a leader: %v", err)
	}
	l := c.leader()
	c.tick(20)
	for _, f := range c.followers(l) {
		if err := c.change(f, replica.AddLearner, 4, "peer4:1"); err == nil || err.Code != isotone.CodeNotLeader || err.Leader != l.cfg.Self.ClientAddr {
			t.Errorf("a follower: %v", err)
		}
	}
	c.tick(20)
	if got := len(l.Members()); got != 3 {
		t.Errorf("%d members", got)
	}
}

func TestChange_OneAtATime(t *testing.T) {
	c := newChangeCluster(t, 3)
	l := c.leader()
	for _, f := range c.followers(l) {
		f.stalled = true
	}
	if err := c.change(l, replica.AddLearner, 5, "peer5:1"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []replica.MemberChangeKind{replica.AddLearner, replica.AddVoter, replica.Remove} {
		for _, id := range []uint64{2, 4, 6} {
			if err := c.change(l, kind, id, "peer6:1"); err == nil || err.Code != isotone.CodeOverloaded || !strings.Contains(err.Message, "under way") {
				t.Errorf("kind %d of node %d meanwhile: %v", kind, id, err)
			}
		}
	}
	for _, f := range c.followers(l) {
		f.stalled = false
	}
	c.tick(20)
	if err := c.change(l, replica.AddLearner, 6, "peer6:1"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	c.tick(20)
	if m := l.Members(); len(m) != 6 || !m[5].Learner {
		t.Errorf("members %+v", m)
	}
}

// TestChange_ANewLeaderMayTakeOne although its predecessor's is lost.
func TestChange_ANewLeaderMayTakeOne(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	c.isolate(l.id)
	if err := c.change(l, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	next := c.leader(l)
	c.isolate()
	c.tick(50)
	if err := c.change(next, replica.AddLearner, 5, "peer5:1"); err != nil {
		t.Fatal(err)
	}
	c.tick(20)
	for _, n := range c.running() {
		if m := n.Members(); len(m) != 4 || m[3].ID != 5 {
			t.Errorf("node %d: members %+v", n.id, m)
		}
	}
}

// TestChange_ALearnerBecomesAVoterWhenItIsThere: its directory is on record, it is connected,
// and it knows the members.
func TestChange_ALearnerBecomesAVoterWhenItIsThere(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	if err := c.change(l, replica.AddLearner, 4, "peer4:1"); err != nil {
		t.Fatal(err)
	}
	c.tick(20)
	wantNotYet := func(words string) {
		t.Helper()
		if err := c.change(l, replica.AddVoter, 4, ""); err == nil || err.Code != isotone.CodeOverloaded || !strings.Contains(err.Message, words) {
			t.Fatalf("%v, want overloaded with %q", err, words)
		}
	}
	wantNotYet("node 4 has not connected yet")
	four := c.add(4, nil, nil)
	c.greet()
	c.tick(50)
	four.down = true
	c.tick(100)
	wantNotYet("node 4 is not connected")
	c.start(four)
	c.greet()
	c.tick(50)
	if err := c.change(l, replica.AddVoter, 4, ""); err != nil {
		t.Fatal(err)
	}
	c.tick(20)
	for _, n := range c.running() {
		if n.Voters() != 4 || n.Members()[3].Learner || n.Members()[3].PeerAddr != "peer4:1" {
			t.Errorf("node %d: %+v", n.id, n.Members())
		}
	}
}

// TestChange_AQuorumIsLeftAfterIt: of the voters after the change enough are connected.
func TestChange_AQuorumIsLeftAfterIt(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	up, gone := c.followers(l)[0], c.followers(l)[1]
	gone.down = true
	c.tick(100)
	if err := c.change(l, replica.Remove, up.id, ""); err == nil || err.Code != isotone.CodeOverloaded ||
		!strings.Contains(err.Message, "2 voters, of which only 1 are connected") {
		t.Fatalf("%v", err)
	}
	if err := c.change(l, replica.Remove, l.id, ""); err == nil {
		t.Fatal("the leader may go, and one of two that stay is down")
	}
	if err := c.change(l, replica.Remove, gone.id, ""); err != nil {
		t.Fatal(err)
	}
	c.tick(50)
	c.must(l)
	// The other one may go now: the rest is the leader.
	if err := c.change(l, replica.Remove, up.id, ""); err != nil {
		t.Fatal(err)
	}
	c.tick(50)
	up.down = true
	c.must(l)
	if err := c.change(l, replica.Remove, l.id, ""); err == nil || !strings.Contains(err.Message, "last voter") {
		t.Errorf("the last one: %v", err)
	}
}

// TestChange_ClustersGrowAndShrink from one to four voters and back, with answers all the way.
func TestChange_ClustersGrowAndShrink(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.must(c.leader())
	for id := uint64(2); id <= 4; id++ {
		c.addLearner(id)
		c.must(c.leader())
		if err := c.change(c.leader(), replica.AddVoter, id, ""); err != nil {
			t.Fatal(err)
		}
		c.tick(50)
		c.must(c.leader())
		if got := c.leader().Voters(); got != int(id) {
			t.Fatalf("%d voters, want %d", got, id)
		}
	}
	for id := uint64(1); id <= 3; id++ {
		err := c.change(c.leader(), replica.Remove, id, "")
		if err != nil && strings.Contains(err.Message, "transfers its leadership") {
			c.tick(50)
			err = c.change(c.leader(c.nodes[id]), replica.Remove, id, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		c.tick(5)
		c.nodes[id].down = true
		c.must(c.leader())
	}
	if l := c.leader(); l.id != 4 || l.Voters() != 1 || len(l.Members()) != 1 {
		t.Errorf("left is node %d with %+v", l.id, l.Members())
	}
}

// TestChange_TwoNodesSwapAddresses by way of a third one. A node, and the one that replaces it, may have the same.
func TestChange_TwoNodesSwapAddresses(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	for _, m := range []oracle.Member{
		{ID: 2, PeerAddr: "spare:1", ClientAddr: "spare:2"}, {ID: 3, PeerAddr: "peer2:1", ClientAddr: "client2:1"}, {ID: 2, PeerAddr: "peer3:1", ClientAddr: "client3:1"},
		{ID: 2, PeerAddr: "peer3:1", ClientAddr: "client3:1"}, // once more
	} {
		if err := c.changeMember(l, replica.UpdateMember, m); err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		c.settle()
	}
	if got := l.Members(); got[1].PeerAddr != "peer3:1" || got[2].PeerAddr != "peer2:1" || got[1].ClientAddr != "client3:1" || got[2].ClientAddr != "client2:1" {
		t.Errorf("%+v", got)
	}
	if err := c.change(l, replica.ReplaceMember, 2, "peer3:1"); err != nil {
		t.Errorf("replaced at the same address: %v", err)
	}
}

func TestChange_MembersAreNotMoreThanARecordHolds(t *testing.T) {
	c := newCluster(t, 1, func(cfg *replica.Config) { cfg.SnapshotEvery = 100_000 })
	l := c.leader()
	for id := uint64(2); id <= oracle.MembersMax; id++ {
		if err := c.change(l, replica.AddLearner, id, fmt.Sprintf("peer%d:1", id)); err != nil {
			t.Fatal(err)
		}
		c.settle()
	}
	if err := c.change(l, replica.AddLearner, 1000, "peer:1"); err == nil || err.Code != isotone.CodeInvalidArgument || !strings.Contains(err.Message, "at most 256 members") {
		t.Errorf("one more: %v", err)
	}
	c.must(l)
}

// TestChange_ARefusalCountsUntilThePeerSpeaks: a peer that sends something has admitted this
// node since it refused it, even if the refusal came late.
func TestChange_ARefusalCountsUntilThePeerSpeaks(t *testing.T) {
	for name, word := range map[string]func(from uint64) *replica.Input{
		"nothing": func(uint64) *replica.Input { return &replica.Input{} },
		"clock":   func(from uint64) *replica.Input { return &replica.Input{Clocks: []replica.PeerClock{{ID: from}}} },
		"message": func(from uint64) *replica.Input {
			return &replica.Input{Messages: []*raftpb.Message{{Type: raftpb.MsgHeartbeatResp.Enum(), From: new(from), To: new(uint64(1))}}}
		},
	} {
		c := newCluster(t, 3, nil)
		c.leader()
		n := c.nodes[1]
		refuse := func(by uint64) error {
			return n.Refused(by, &replica.Refusal{Code: replica.RefusedMember, Message: "no member"})
		}
		if err := refuse(2); err != nil {
			t.Fatal(err)
		}
		if err := refuse(3); err != nil {
			t.Fatal(err)
		}
		c.turn(n, word(2))
		for range 200 {
			c.turn(n, &replica.Input{Ticks: 1})
		}
		if err := refuse(3); err != nil {
			t.Errorf("node 2 refused it once, before it knew: %v", err)
		}
		if err := refuse(2); (err != nil) != (name == "nothing") {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestChange_ALeaderWhoseRemovalItInheritedAddsNothing: it steps down when it applies its
// removal, and may not have told the other voter of two that it is committed. That one then
// needs its vote, and so a log as long as its own.
func TestChange_ALeaderWhoseRemovalItInheritedAddsNothing(t *testing.T) {
	c := newCluster(t, 2, nil)
	first := c.leader()
	second := c.nodes[3-first.id]
	c.drop = func(m *raftpb.Message) bool { return m.GetFrom() == second.id && m.GetType() == raftpb.MsgAppResp }
	if err := c.change(first, replica.Remove, second.id, ""); err != nil {
		t.Fatal(err)
	}
	c.settle()
	removal := first.Hello().LastIndex
	if removal == 0 || second.Hello().LastIndex < removal {
		t.Fatalf("the removal is entry %d, and the other node has %d", removal, second.Hello().LastIndex)
	}
	// The other one is elected, commits its removal, and cannot say so.
	c.crash(first, true)
	c.start(first)
	c.drop = func(m *raftpb.Message) bool {
		more := slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool { return e.GetIndex() > removal+1 })
		return m.GetFrom() == first.id && m.GetType() == raftpb.MsgPreVote || m.GetFrom() == second.id && (more || m.GetCommit() >= removal)
	}
	c.greet()
	for range 500 {
		if len(second.conf()) == 1 {
			break
		}
		c.tick(1)
	}
	if len(second.conf()) != 1 {
		t.Fatal("the removal was not committed")
	}
	c.drop = nil
	if l := c.leader(); l != first {
		t.Errorf("node %d leads, which was removed", l.id)
	}
	c.must(first)
}

// TestChange_OneVoterThatLagsEndsNobody: it may not know yet who was added while it was away.
func TestChange_OneVoterThatLagsEndsNobody(t *testing.T) {
	c := newChangeCluster(t, 2)
	learner := c.nodes[3]
	refused := func(by uint64) error {
		return learner.Refused(by, &replica.Refusal{Code: replica.RefusedMember, Message: "no member"})
	}
	wait := func() {
		for range 200 {
			c.turn(learner, &replica.Input{Ticks: 1})
		}
	}
	for range 2 {
		if err := refused(1); err != nil {
			t.Fatal(err)
		}
		wait()
	}
	if err := refused(2); err != nil {
		t.Errorf("the second one has just begun to say so: %v", err)
	}
	wait()
	if refused(2) == nil {
		t.Error("all voters say that it is no member, and it goes on")
	}
}

// TestChange_AClosedConnectionIsNoVoterOfTheRest: its process has just ended, and nobody else
// would be left to elect a leader.
func TestChange_AClosedConnectionIsNoVoterOfTheRest(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(20)
	up, gone := c.followers(l)[0], c.followers(l)[1]
	gone.down = true
	c.turn(l, &replica.Input{Gone: []uint64{gone.id, 99}})
	if err := c.change(l, replica.Remove, up.id, ""); err == nil || err.Code != isotone.CodeOverloaded ||
		!strings.Contains(err.Message, "2 voters, of which only 1 are connected") {
		t.Fatalf("%v", err)
	}
	c.start(gone)
	c.greet()
	c.tick(50)
	if err := c.change(l, replica.Remove, up.id, ""); err != nil {
		t.Errorf("connected again: %v", err)
	}
}
