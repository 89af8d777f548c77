package replica_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

func TestReplica_ServesAloneAndInThree(t *testing.T) {
	for _, size := range []int{1, 3, 5} {
		c := newCluster(t, size, nil)
		l := c.leader()
		for range 100 {
			c.must(l)
			c.tick(1)
		}
		for _, n := range c.running() {
			if n.Status().ClusterID != l.Status().ClusterID || n.Status().ClusterID == 0 || n.Status().Leader != l.id {
				t.Errorf("%d nodes: node %d sees cluster %d, leader %d", size, n.id, n.Status().ClusterID, n.Status().Leader)
			}
			if m := n.Members(); len(m) != size || m[0].ClientAddr != "client1:1" || m[size-1].Incarnation != uint64(1000+size) {
				t.Errorf("%d nodes: node %d has members %+v", size, n.id, m)
			}
		}
	}
}

func TestReplica_AFormerLeaderThatIsReelectedRepeatsNothing(t *testing.T) {
	c := newCluster(t, 3, nil)
	first := c.leader()
	for range 20 {
		// Serve, transfer, and push the leadership back to the first node: cluster.check
		// fails on any repetition.
		for range 50 {
			c.must(c.leader())
		}
		c.turn(c.leader(), &replica.Input{Transfer: true})
		c.settle()
		for range 100 {
			if c.leader() == first {
				break
			}
			c.must(c.leader())
			c.turn(c.leader(), &replica.Input{Transfer: true})
			c.settle()
		}
	}
	if first.Status().Term < 20 {
		t.Fatalf("only %d terms passed", first.Status().Term)
	}
}

func TestReplica_IssuesNothingBeforeItsOwnReservationIsApplied(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.leader()
	c.must(old)
	for _, n := range c.running() {
		n.stalled = n != old // votes and entries of the others stay in memory
	}
	c.turn(old, &replica.Input{Transfer: true})
	c.settle()
	for _, n := range c.running() {
		n.stalled = false
	}
	// Now the vote is durable; let it be counted while no follower writes the new
	// term's entries.
	for range 200 {
		c.mono += tick
		for _, n := range c.running() {
			c.turn(n, &replica.Input{Ticks: 1})
		}
		for _, n := range c.running() {
			if n.Status().Role.String() == "StateLeader" && !n.Status().Serving {
				token := c.ask(n, 1)
				if got := n.outcome(token); got != "" {
					t.Fatalf("a leader without its own reservation answered %q", got)
				}
				c.settle()
				if got := n.outcome(token); got != "ok" {
					t.Fatalf("the request was answered %q once the reservation was applied", got)
				}
				return
			}
		}
		// One hop at a time, so that the moment between election and reservation shows.
		for _, n := range c.running() {
			in := &replica.Input{Messages: n.inbox, Persisted: n.flying}
			if n.flying != nil {
				n.disk.save(n.flying)
			}
			n.inbox, n.flying = nil, nil
			c.turn(n, in)
			if n.Status().Role.String() == "StateLeader" {
				break
			}
		}
	}
	t.Fatal("never saw a leader without a reservation")
}

func TestReplica_ARoundNeverAnswersARequestThatArrivedAfterItBegan(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	var held []*raftpb.Message
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgHeartbeatResp {
			held = append(held, m)
			return true
		}
		return false
	}
	a, b := c.ask(l, 1), c.ask(l, 1)
	c.settle()
	early := held // answers to the rounds of a and b
	held = nil
	late := c.ask(l, 1)
	if l.outcome(a) != "" || l.outcome(b) != "" {
		t.Fatal("answered without a quorum")
	}
	c.turn(l, &replica.Input{Messages: early})
	if l.outcome(a) != "ok" || l.outcome(b) != "ok" {
		t.Fatalf("a: %q, b: %q; want ok", l.outcome(a), l.outcome(b))
	}
	if got := l.outcome(late); got != "" {
		t.Fatalf("I4: the late request was answered %q by rounds that began before it", got)
	}
	c.settle() // its own round is on its way now
	c.turn(l, &replica.Input{Messages: held})
	if got := l.outcome(late); got != "ok" {
		t.Fatalf("the late request was answered %q by its own round", got)
	}
}

func TestReplica_CollapsesWaitingRequestsIntoAtMostTwoRounds(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	before := l.rounds
	var tokens []uint64
	for range 500 {
		tokens = append(tokens, c.ask(l, 1, 2, 3))
	}
	c.settle()
	for _, token := range tokens {
		if l.outcome(token) != "ok" {
			t.Fatalf("request %d: %q", token, l.outcome(token))
		}
	}
	if got := l.rounds - before; got != 3 {
		t.Errorf("%d rounds for 500 requests that arrived at once, want 3: two in flight, one for the rest", got)
	}
}

func TestReplica_AnIsolatedLeaderAnswersNothingAndStepsDown(t *testing.T) {
	c := newCluster(t, 3, nil)
	old := c.leader()
	c.must(old)
	c.isolate(old.id)
	token := c.ask(old, 1)
	c.tick(1)
	if got := old.outcome(token); got != "" {
		t.Fatalf("an isolated leader answered %q", got)
	}
	next := c.leader(old)
	c.must(next)
	c.tick(50)
	if got := old.outcome(token); got != isotone.CodeNoLeader {
		t.Errorf("the isolated leader answered %q, want no_leader", got)
	}
	c.isolate()
	c.tick(50)
	token = c.ask(old, 1)
	if got := old.outcome(token); got != isotone.CodeNotLeader {
		t.Errorf("the former leader answered %q, want not_leader", got)
	}
	if got := old.answers[token].err.Leader; got != c.leader().cfg.Self.ClientAddr {
		t.Errorf("it points to %q, want %q", got, c.leader().cfg.Self.ClientAddr)
	}
}

func TestReplica_ASlowDiskOfTheLeaderDelaysNoAnswer(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	l.stalled = true
	for range 100 {
		c.must(l)
		c.tick(1)
	}
}

// The disk dies at any time in the term: what Raft knows of its followers goes in periods.
func TestReplica_HandsLeadershipOnWhenReservationsStayLate(t *testing.T) {
	for phase := range 40 {
		c := newCluster(t, 3, func(cfg *replica.Config) { cfg.ReservationsMissedMax = 10 })
		l := c.leader()
		c.tick(phase)
		l.stalled = true
		for range 300 {
			if c.tick(1); !l.Status().Serving {
				break
			}
		}
		if l.Status().Serving {
			t.Fatalf("the leader whose disk died %d ticks ago, %d after its election, still leads", 300, phase)
		}
		c.must(c.leader())
		if l.Status().Counters.ReservationsFailed == 0 {
			t.Error("no failed reservation was counted")
		}
	}
}

func TestReplica_TimeNeverGoesBackWhateverTheWallClockDoes(t *testing.T) {
	for name, jump := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour, "before 1970": -24 * time.Hour * 365 * 100} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			c.mono = 24 * time.Hour * 365 * 50
			l := c.leader()
			c.tick(100)
			before := c.must(l)
			if before.Time < uint64(c.mono-time.Second) {
				t.Fatalf("time %d does not follow the clock at %d", before.Time, c.mono)
			}
			for _, n := range c.nodes {
				if n.skew = jump; uint64(c.mono)+uint64(jump) > 1<<63 {
					n.skew = -c.mono // what a node makes of a clock before 1970
				}
			}
			for range 100 {
				c.tick(1)
				after := c.must(l)
				switch {
				case jump < 0 && after.Time-before.Time > uint64(2*100*tick):
					t.Fatalf("time went on from %d to %d although the clock went back", before.Time, after.Time)
				case jump < 0 && after.Index == 0 && after.Time == before.Time:
					t.Fatal("I3: the index began again")
				}
			}
			if jump > 0 {
				if after := c.must(l); after.Time < before.Time+uint64(jump)/2 {
					t.Errorf("time %d did not follow the clock forward from %d", after.Time, before.Time)
				}
			}
			// And over a change of leader, with the clock set right again.
			for _, n := range c.nodes {
				n.skew = 0
			}
			c.turn(l, &replica.Input{Transfer: true})
			c.settle()
			c.must(c.leader())
		})
	}
}

func TestReplica_RefusesMoreThanItsQueueHolds(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.QueueMax = 10 })
	l := c.leader()
	c.isolate(l.id)
	first := c.ask(l, 1, 1, 1, 1, 1, 1)
	second := c.ask(l, 1, 1, 1, 1, 1)
	if got := l.outcome(second); got != isotone.CodeOverloaded {
		t.Errorf("request 11 of 10: %q, want overloaded", got)
	}
	third := c.ask(l, 1, 1, 1, 1)
	c.isolate()
	c.tick(2)
	if l.outcome(first) != "ok" || l.outcome(third) != "ok" {
		t.Errorf("requests within the limit: %q, %q", l.outcome(first), l.outcome(third))
	}
	if got := l.Status(); got.Waiting != 0 || got.Counters.Overloaded != 5 {
		t.Errorf("waiting %d, overloaded %d; want 0, 5", got.Waiting, got.Counters.Overloaded)
	}
}

func TestReplica_GivesUpRequestsWhoseTimeRanOut(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.RequestTicks = 5 })
	l := c.leader()
	c.isolate(l.id)
	tokens := []uint64{c.ask(l, 1), c.ask(l, 1), c.ask(l, 1)} // two in rounds, one waits
	c.tick(4)
	for _, token := range tokens {
		if got := l.outcome(token); got != "" {
			t.Fatalf("answered %q before its time ran out", got)
		}
	}
	c.tick(1)
	for _, token := range tokens {
		if got := l.outcome(token); got != isotone.CodeDeadlineExceeded {
			t.Errorf("answered %q, want deadline_exceeded", got)
		}
	}
	if got := l.Status().Waiting; got != 0 {
		t.Errorf("%d requests still counted as waiting", got)
	}
}

func TestReplica_RestartsFromItsDisk(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.SnapshotEvery = 8 })
	for range 10 {
		l := c.leader()
		for range 20 {
			c.must(l)
			c.tick(3)
		}
		for _, n := range c.running() { // power cut
			c.start(n)
		}
		c.greet()
	}
	for _, n := range c.running() {
		if n.disk.snap.GetMetadata().GetIndex() < 10 || len(n.disk.entries) > 40 {
			t.Errorf("node %d: snapshot at %d, %d entries: the log is not compacted", n.id, n.disk.snap.GetMetadata().GetIndex(), len(n.disk.entries))
		}
	}
}

func TestReplica_AMemberFarBehindCatchesUpBySnapshot(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.SnapshotEvery = 8 })
	l := c.leader()
	late := c.nodes[l.id%3+1]
	late.down = true
	c.tick(1000)
	c.start(late)
	c.greet()
	c.tick(100)
	if got, want := late.Status().Applied, l.Status().Applied; got < want-10 {
		t.Errorf("applied index %d, the leader's is %d", got, want)
	}
	if late.disk.snap.GetMetadata().GetIndex() < 50 {
		t.Errorf("its disk still has the snapshot at %d", late.disk.snap.GetMetadata().GetIndex())
	}
}

func TestReplica_MembershipChanges(t *testing.T) {
	// Snapshots are rare here: one that is older than a new member is of no use to it.
	c := newCluster(t, 3, nil)
	l := c.leader()
	m4 := oracle.Member{ID: 4, PeerAddr: "peer4:1"}
	if got := l.Admit(replica.Hello{NodeID: 4, Incarnation: 1004}); got == nil || got.Code != replica.RefusedMember {
		t.Fatalf("a stranger: %v, want not_member", got)
	}
	c.turn(l, &replica.Input{Change: &replica.MemberChange{Kind: replica.AddLearner, Member: m4}})
	c.settle()
	n4 := c.add(4, nil, nil)
	c.greet()
	c.tick(100)
	if m := n4.Members(); len(m) != 4 || !m[3].Learner || m[3].ClientAddr != "client4:1" || m[3].PeerAddr != "peer4:1" {
		t.Fatalf("the learner sees %+v", m)
	}
	c.turn(l, &replica.Input{Change: &replica.MemberChange{Kind: replica.AddVoter, Member: m4}})
	c.tick(20)
	remove := &replica.MemberChange{Kind: replica.Remove, Member: oracle.Member{ID: l.id}}
	c.turn(l, &replica.Input{Change: remove}) // it transfers its leadership first
	c.tick(50)
	next := c.leader(l)
	c.turn(next, &replica.Input{Change: remove})
	c.tick(5)
	if l.Status().Serving {
		t.Error("a removed leader still serves")
	}
	l.down = true
	c.must(next)
	c.tick(20)
	if m := next.Members(); len(m) != 3 || m[2].ID != 4 || m[2].Learner || next.Voters() != 3 {
		t.Errorf("members after the change: %+v", m)
	}
	if got := next.Admit(l.Hello()); got == nil || got.Code != replica.RefusedRemoved {
		t.Errorf("the removed member: %v, want removed", got)
	}
}

func TestConfig_ValidateListsEveryFault(t *testing.T) {
	_, err := replica.New(replica.Config{EpochInterval: -1})
	if err == nil {
		t.Fatal("the zero configuration was accepted")
	}
	for _, name := range []string{"NodeID", "Incarnation", "Session", "EpochTicks", "EpochInterval", "TickInterval",
		"ReservationsMissedMax", "QueueMax", "RequestTicks", "SnapshotEvery", "Log"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is missing in:\n%v", name, err)
		}
	}
}

// BenchmarkRound is one round of three replicas in memory: a request, two heartbeats,
// the answer that completes the quorum, and the late second one.
func BenchmarkRound(b *testing.B) {
	c := newCluster(b, 3, nil)
	l := c.leader()
	c.tick(10)
	counts, ranges := []uint64{1}, make([]isotone.Range, 1)
	b.ReportAllocs()
	for b.Loop() {
		delete(l.answers, c.token)
		c.token++
		l.answers[c.token] = &answered{ranges: ranges}
		c.turn(l, &replica.Input{Requests: []replica.Request{{Token: c.token, Counts: counts, Ranges: ranges}}})
		c.settle()
		if l.answers[c.token].err == nil {
			b.Fatal("no answer")
		}
	}
}

func TestReplica_StopsForGoodAtAnEntryThatItCannotCarryOut(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	last := l.disk.entries[len(l.disk.entries)-1].GetIndex()
	l.disk.entries = append(slices.Clip(l.disk.entries), &raftpb.Entry{
		Term: new(l.Status().Term), Index: new(last + 1), Data: []byte{99, 1, 2, 3},
	})
	cfg := l.cfg
	cfg.Self.Boot, cfg.Self.Session = 2, 9
	cfg.HardState, cfg.Snapshot, cfg.Entries = l.disk.hard, l.disk.snap, l.disk.entries
	r, err := replica.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e := r.Step(&replica.Input{Now: 1, Mono: 1})
	for range 10 { // elect itself, commit what it found, apply it
		e = r.Step(&replica.Input{Now: 1, Mono: 1, Persisted: e.Write, Ticks: 1})
	}
	if e.Fatal == nil || !strings.Contains(e.Fatal.Error(), "newer version") {
		t.Fatalf("an entry of an unknown kind: %v", e.Fatal)
	}
	if e = r.Step(&replica.Input{Now: 2, Mono: 2, Ticks: 1}); e.Fatal == nil || e.Write != nil || len(e.Send) > 0 {
		t.Errorf("it goes on after that: %+v", e)
	}
}
