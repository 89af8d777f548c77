package replica_test

import (
	cryptorand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
)

// slowDisks is a cluster whose writes take some ticks.
type slowDisks struct {
	*cluster
	// takes is how many ticks a write takes, by node.
	takes map[uint64]int
	now   int
	since map[*replica.Write]int // the tick at which a write was given out
}

// withSlowDisks has the writes of a cluster take some ticks from now on, on each node.
func withSlowDisks(c *cluster, takes int) *slowDisks {
	s := &slowDisks{cluster: c, takes: map[uint64]int{}, since: map[*replica.Write]int{}}
	for _, n := range c.running() {
		n.stalled, s.takes[n.id] = true, takes
	}
	return s
}

// pass lets ticks pass, until the function returns true. It returns how many passed.
func (s *slowDisks) pass(count int, until func() bool) int {
	for i := range count {
		if until() {
			return i
		}
		s.now, s.mono = s.now+1, s.mono+tick
		for _, n := range s.running() {
			s.turn(n, &replica.Input{Ticks: 1})
		}
		s.deliver()
	}
	return count
}

// deliver delivers messages and ends the writes that are due, until nothing is left to do.
func (s *slowDisks) deliver() {
	for busy := true; busy; {
		s.settle()
		busy = false
		for _, n := range s.running() {
			w := n.flying
			if w == nil {
				continue
			}
			if _, known := s.since[w]; !known {
				s.since[w] = s.now
			}
			if s.now-s.since[w] < s.takes[n.id] {
				continue
			}
			n.disk.save(w)
			n.flying, busy = nil, true
			delete(s.since, w)
			s.turn(n, &replica.Input{Persisted: w})
		}
	}
}

// serves reports whether a running node serves and answers.
func (s *slowDisks) serves() bool {
	for _, n := range s.running() {
		if n.Status().Serving {
			token := s.ask(n, 1)
			s.deliver()
			return n.outcome(token) == "ok"
		}
	}
	return false
}

// seedTimeouts has Raft draw its election timeouts from a seed, for the rest of the test.
func seedTimeouts(t *testing.T, seed uint64) {
	before := cryptorand.Reader
	cryptorand.Reader = timeouts{rand.New(rand.NewPCG(seed, 1))}
	t.Cleanup(func() { cryptorand.Reader = before })
}

type timeouts struct{ rng *rand.Rand }

var _ io.Reader = timeouts{}

func (r timeouts) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r.rng.Uint64())
	}
	return len(b), nil
}

// lose has the leader die, and then others which are next in rank, until so many are dead. The rest
// notices at once.
func (s *slowDisks) lose(count int) {
	for id := range uint64(count) {
		s.kill(id + 1)
	}
	for _, n := range s.running() {
		for id := range uint64(count) {
			s.refuse(id+1, n)
		}
	}
	s.deliver()
}

// never is for passing a fixed number of ticks.
func never() bool { return false }

// TestSuccession_OnSlowDisks: a cluster gets a leader that serves however long writes take, and
// mostly in the first term. It takes a write of the candidate, one of its voters and one with the
// reservation, each of which may have to wait for another that was under way.
func TestSuccession_OnSlowDisks(t *testing.T) {
	const phases = 20
	for _, cluster := range []struct{ nodes, dead int }{{3, 1}, {5, 1}, {5, 2}} {
		for _, takes := range []int{25, 50, 100} {
			t.Run(fmt.Sprintf("%d of %d nodes are left, a write takes %d ticks", cluster.nodes-cluster.dead, cluster.nodes, takes), func(t *testing.T) {
				seedTimeouts(t, 1)
				firstTerm := 0
				for phase := range phases {
					c, l := ledBy1(t, cluster.nodes)
					term := l.Status().Term
					s := withSlowDisks(c, takes)
					s.pass(5*takes+phase*2*takes/phases, never)
					s.lose(cluster.dead)
					if took := s.pass(6*takes+1, s.serves); took > 6*takes {
						t.Errorf("phase %d: no answer after 6 writes", phase)
					}
					if s.leader().Status().Term == term+1 {
						firstTerm++
					}
				}
				if firstTerm < phases*8/10 {
					t.Errorf("only %d of %d elections succeeded in the first term", firstTerm, phases)
				}
			})
		}
	}
}

// TestSuccession_BesideOneSlowDisk: two of three nodes are left, and only one of their disks is
// slow. The candidate's own disk does not tell it how slow that of the voter is, and the voter does
// not know that of the candidate.
func TestSuccession_BesideOneSlowDisk(t *testing.T) {
	for _, slow := range []uint64{2, 3} {
		for _, takes := range []int{25, 50, 100} {
			seedTimeouts(t, 1)
			for phase := range 20 {
				c, _ := ledBy1(t, 3)
				s := withSlowDisks(c, 0)
				s.takes[slow] = takes
				s.pass(5*takes+phase*takes/10, never)
				s.lose(1)
				if took := s.pass(8*takes+1, s.serves); took > 8*takes {
					t.Errorf("node %d is slow, a write takes %d ticks, phase %d: no answer after 8 writes", slow, takes, phase)
				}
			}
		}
	}
}

// TestSuccession_OnDisksOfDifferentSpeed: those that are done earlier do not take the term from
// those that are not.
func TestSuccession_OnDisksOfDifferentSpeed(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, takes := range []int{25, 50, 100} {
			seedTimeouts(t, 1)
			rng := rand.New(rand.NewPCG(7, 7))
			sum := 0
			for phase := range 20 {
				c, _ := ledBy1(t, nodes)
				s := withSlowDisks(c, takes)
				for id := range uint64(nodes) {
					s.takes[id+1] = takes/2 + rng.IntN(takes)
				}
				s.pass(5*takes+phase*takes/10, never)
				s.lose(1)
				sum += s.pass(20*takes, s.serves)
			}
			if mean := sum / 20; mean > 7*takes {
				t.Errorf("%d nodes, a write takes %d ticks: %d ticks without an answer on average", nodes, takes, mean)
			}
		}
	}
}

// TestSuccession_ADeadCandidateIsWaitedForAsLongAsTheDisksAreSlow: the voters leave it alone until
// their own votes are on disk, for twice as long again, and for graceTicks.
func TestSuccession_ADeadCandidateIsWaitedForAsLongAsTheDisksAreSlow(t *testing.T) {
	for _, takes := range []int{0, 25, 50, 100} {
		seedTimeouts(t, 1)
		c, l := ledBy1(t, 5)
		term := l.Status().Term
		s := withSlowDisks(c, takes)
		for _, n := range s.followers(l)[1:] {
			s.turn(n, &replica.Input{Gone: []uint64{1}, Refused: []uint64{1}})
			s.turn(n, &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgVote, 2, n.id, term+1)}})
		}
		s.kill(1)
		s.kill(2)
		s.deliver()
		want := takes + min(2*takes, 200) + 20
		asked := false
		c.drop = func(m *raftpb.Message) bool {
			asked = asked || m.GetType() == raftpb.MsgPreVote
			return false
		}
		if got := s.pass(1000, func() bool { return asked }); got < want || got > want+2 {
			t.Errorf("a write takes %d ticks: the next one asks for votes after %d, want %d, or 2 more for its rank", takes, got, want)
		}
	}
}

// TestSuccession_AVoteThatIsWrittenHoldsPreVotes of the next term, so that this one may succeed.
func TestSuccession_AVoteThatIsWrittenHoldsPreVotes(t *testing.T) {
	c, l := ledBy1(t, 3)
	term, f := l.Status().Term, c.nodes[3]
	c.kill(1)
	c.refuse(1, f)
	f.stalled = true
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgVote, 2, 3, term+1)}})
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgPreVote, 2, 3, term+2)}})
	if !slices.Contains(f.HeldVotes(), 2) {
		t.Fatal("the request for a pre-vote is not held")
	}
	granted := false
	c.drop = func(m *raftpb.Message) bool {
		granted = granted || m.GetType() == raftpb.MsgPreVoteResp && !m.GetReject()
		return true
	}
	c.tickOnly(5, f)
	early := granted
	c.flush(f)
	c.tickOnly(1, f)
	if early || !granted {
		t.Errorf("granted while the vote was being written: %v, and afterwards: %v", early, granted)
	}
}

// TestSuccession_WhoMayHaveLostWaitsForTheWinner: it would depose one that has just been elected.
func TestSuccession_WhoMayHaveLostWaitsForTheWinner(t *testing.T) {
	c, l := ledBy1(t, 5)
	term, n := l.Status().Term, c.nodes[3]
	c.kill(1)
	c.refuse(1, n)
	answer := func(kind raftpb.MessageType, from uint64, reject bool) {
		c.turn(n, &replica.Input{Messages: []*raftpb.Message{{
			Type: kind.Enum(), From: new(from), To: new(n.id), Term: new(term + 1), Reject: new(reject),
		}}})
		c.flush(n)
	}
	for range 2 {
		c.turn(n, &replica.Input{Ticks: 1})
	}
	answer(raftpb.MsgPreVoteResp, 4, false)
	answer(raftpb.MsgPreVoteResp, 5, false)
	if got := n.Status(); got.Role != raft.StateCandidate || got.Term != term+1 {
		t.Fatalf("%v in term %d, want a candidate in term %d", got.Role, got.Term, term+1)
	}
	campaigns := c.notesVotes(3)
	pass := func(ticks int) {
		for range ticks {
			c.turn(n, &replica.Input{Ticks: 1})
		}
	}
	answer(raftpb.MsgVoteResp, 2, true)
	answer(raftpb.MsgVoteResp, 4, true)
	if pass(10); campaigns() {
		t.Error("it campaigns again although nodes 2, 4 and 5 may have elected another")
	}
	answer(raftpb.MsgVoteResp, 5, false)
	if pass(2); !campaigns() {
		t.Error("it does not campaign again although nobody can be elected any more")
	}
}

// TestSuccession_WhoAskedLongAgoIsNotWaitedFor: node 2 once asked for a pre-vote, which was held.
// When the leader dies, it is gone, too. If it asked within 5 ticks, its request for the vote is waited
// for as long.
func TestSuccession_WhoAskedLongAgoIsNotWaitedFor(t *testing.T) {
	for _, test := range []struct {
		ago  int
		gone bool
		want int // ticks until node 3 campaigns, which is next in rank
	}{
		{5, false, 7},
		{6, false, 2},
		{15, false, 2},
		{0, true, 0},
	} {
		c, l := ledBy1(t, 5)
		term, n := l.Status().Term, c.nodes[3]
		c.turn(n, &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgPreVote, 2, 3, term+1)}})
		if c.tick(test.ago); !slices.Contains(n.HeldVotes(), 2) {
			t.Fatal("the request is not held")
		}
		c.kill(1)
		c.kill(2)
		if test.gone {
			c.turn(n, &replica.Input{Gone: []uint64{2}})
		}
		campaigns := c.notesVotes(3)
		c.refuse(1, c.running()...)
		c.waitsToCampaign(n, campaigns, test.want)
	}
}

// waitsToCampaign expects a node to ask for votes after so many ticks. Raft's own election timeout, which is
// random, may come before, but not within 20 ticks.
func (c *cluster) waitsToCampaign(n *node, campaigns func() bool, want int) {
	c.t.Helper()
	got := 0
	for c.turn(n, &replica.Input{}); !campaigns() && got < 40; got++ {
		c.tickOnly(1, n)
	}
	if got > want || got < min(want, 20) {
		c.t.Errorf("node %d campaigns after %d ticks, want %d", n.id, got, want)
	}
}

// TestSuccession_ASlowVoteDelaysOnlyItsOwnElection, and not the one in which its disk is fast again.
func TestSuccession_ASlowVoteDelaysOnlyItsOwnElection(t *testing.T) {
	c, _ := ledBy1(t, 5)
	s := withSlowDisks(c, 50)
	s.lose(1)
	s.pass(1000, s.serves)
	for id := range s.takes {
		s.takes[id] = 0
	}
	s.pass(30, never)
	if l := s.leader(); l.id != 2 {
		t.Fatalf("node %d leads", l.id)
	}
	s.kill(2)
	campaigns := s.notesVotes(4)
	s.refuse(2, s.nodes[4]) // node 3, which campaigns before it, has not noticed
	s.waitsToCampaign(s.nodes[4], campaigns, 2)
}

// TestSuccession_ConnectionsThatRecoverTeachNothing: a node that was cut off hears of a new leader, and
// then nothing for a while, as TCP catches up. It gives that leader no more time than any other.
func TestSuccession_ConnectionsThatRecoverTeachNothing(t *testing.T) {
	for name, silence := range map[string]int{"it keeps the leader": 9, "it forgets the leader": 12} {
		t.Run(name, func(t *testing.T) {
			c, _ := ledBy1(t, 3)
			c.isolate(1)
			next := c.leader(c.nodes[1])
			c.tick(50)
			c.isolate()
			c.tick(1)
			f := c.nodes[1]
			if got := f.Status(); got.Leader != next.id {
				t.Fatalf("%+v, want node %d as leader", got, next.id)
			}
			c.isolate(1)
			c.tick(silence)
			c.isolate()
			c.tick(30)
			if got := f.Status(); got.Leader != next.id || got.Term != next.Status().Term {
				t.Fatalf("%+v, want node %d as leader", got, next.id)
			}
			c.kill(next.id)
			c.tick(9)
			if f.Status().Leader != next.id {
				t.Error("the leader was forgotten after less than ten ticks")
			}
			if c.tick(2); f.Status().Leader == next.id {
				t.Error("the leader is still waited for after ten ticks")
			}
		})
	}
}
