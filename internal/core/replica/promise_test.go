package replica_test

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// voteFor asks f for its vote in a term, as a candidate that is up to date would.
func voteFor(c *cluster, f *node, candidate, term uint64) (granted bool) {
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{voteRequest(raftpb.MsgVote, candidate, f.id, term)}})
	return hasVoted(c, f, candidate, term)
}

func voteRequest(kind raftpb.MessageType, candidate, to, term uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: kind.Enum(), From: new(candidate), To: new(to), Term: new(term), Index: new(uint64(1000)), LogTerm: new(term - 1),
	}
}

// hasVoted reports whether what f writes has a vote.
func hasVoted(c *cluster, f *node, candidate, term uint64) bool {
	for _, w := range c.flush(f) {
		if w.HardState != nil && w.HardState.GetVote() == candidate && w.HardState.GetTerm() == term {
			return true
		}
	}
	return false
}

// votesBefore lets ticks pass on a node that was asked for its vote, and reports whether it grants
// it before the last one. It must grant it with the last one, without being asked again.
func votesBefore(c *cluster, f *node, candidate, term uint64, ticks int) bool {
	for range ticks - 1 {
		if c.turn(f, &replica.Input{Ticks: 1}); hasVoted(c, f, candidate, term) {
			return true
		}
	}
	if c.turn(f, &replica.Input{Ticks: 1}); !hasVoted(c, f, candidate, term) {
		c.t.Errorf("no vote was granted after %d ticks either", ticks)
	}
	return false
}

// raiseTerm has f hear of a higher term, with which Raft forgets its leader.
func raiseTerm(c *cluster, f, from *node) (term uint64) {
	term = f.Status().Term + 1
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgPreVoteResp.Enum(), From: new(from.id), To: new(f.id), Term: new(term), Reject: new(true),
	}}})
	if got := f.Status(); got.Term != term || got.Leader != 0 {
		c.t.Fatalf("term %d, leader %d: the message changed nothing", got.Term, got.Leader)
	}
	return term
}

// votesRightAfterStart reports whether a node that restarts grants a vote within the longest time
// for which it may have promised none (I5).
func votesRightAfterStart(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f := c.nodes[l.id%3+1]
	c.start(f)
	return voteFor(c, f, l.id, 99) || votesBefore(c, f, l.id, 99, 20)
}

// votesAfterTermChange reports whether a follower that has made a promise grants a vote once
// another message has brought a higher term (I5). Raft itself would.
func votesAfterTermChange(t *testing.T) bool {
	c, l := leased(t)
	c.tick(1)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	term := raiseTerm(c, f, other)
	return voteFor(c, f, other.id, term) || votesBefore(c, f, other.id, term, 10)
}

// leaseOutlastsPromise reports whether a leader whose clock is slow by 10 % answers by
// lease when a voter whose clock is fast by as much, and whose first two ticks came at
// once, may already have voted for another (I5).
func leaseOutlastsPromise(t *testing.T) bool {
	c, l := leased(t)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	c.isolate(l.id)
	term := f.Status().Term + 1
	if voteFor(c, f, other.id, term) || votesBefore(c, f, other.id, term, 10) {
		t.Error("a vote was granted while the promise lasted")
	}
	const promised = 8 * tick * 10 / 11 // in real time
	c.mono += promised * 9 / 10         // on the leader's clock
	return l.outcome(c.askMode(l, isotone.ReadLease, 1)) == "ok"
}

// servesBesideSuccessor has the followers of l find that its address refuses connections, and
// nothing else reach them from l. It reports whether they have elected a successor within that
// turn, which has answered, and whether l still answers by lease after that (I5).
func (c *cluster) servesBesideSuccessor(l *node) (succeeded, served bool) {
	c.isolate(l.id)
	c.refuse(l.id, c.followers(l)...)
	c.settle()
	for _, n := range c.followers(l) {
		if !n.Status().Serving {
			continue
		}
		newest := c.must(n)
		c.highest = isotone.Timestamp{} // the following one may be older: that is the harm
		token := c.askMode(l, isotone.ReadLease, 1)
		if served = l.outcome(token) == "ok"; served && !l.answers[token].ranges[0].First.Before(newest) {
			c.t.Error("what the former leader issues does no harm")
		}
		return true, served
	}
	return false, false
}

// leasesUnpromised reports whether a leader has a lease though it has asked for no promise, so
// that its voters are free to elect another (I5). Requests in quorum mode only came before.
func leasesUnpromised(t *testing.T) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(30)
	c.must(l)
	succeeded, served := c.servesBesideSuccessor(l)
	if !succeeded {
		t.Error("no successor, though nothing was promised")
	}
	return served
}

// waivesPromise reports whether voters that have made a promise elect another leader because the
// address of theirs refuses connections, as it would behind a firewall (I5).
func waivesPromise(t *testing.T) bool {
	c, l := leased(t)
	succeeded, served := c.servesBesideSuccessor(l)
	if succeeded != served {
		t.Errorf("a successor: %v, the former leader serves beside it: %v", succeeded, served)
	}
	if !succeeded {
		c.tick(10)
		if next := c.leader(l); next.Status().Term != l.Status().Term+1 {
			t.Error("the successor took more than one election once the promises had run out")
		}
	}
	return served
}

func TestReplica_ALeaseEndsBeforeThePromiseThatItRestsOn(t *testing.T) {
	if leaseOutlastsPromise(t) {
		t.Error("I5: a lease outlasted a voter's promise")
	}
}

func TestReplica_GrantsNoVoteForOneElectionTimeoutAfterItsStart(t *testing.T) {
	if votesRightAfterStart(t) {
		t.Error("I5: a vote was granted right after the start")
	}
}

func TestReplica_KeepsItsPromiseThroughAHigherTerm(t *testing.T) {
	if votesAfterTermChange(t) {
		t.Error("I5: a vote was granted while a promise lasted")
	}
}

func TestPromise_NoLeaseWithoutOne(t *testing.T) {
	if leasesUnpromised(t) {
		t.Error("I5: a leader answers by lease beside its successor")
	}
}

func TestPromise_IsKeptThoughTheLeaderRefusesConnections(t *testing.T) {
	if waivesPromise(t) {
		t.Error("I5: a leader answers by lease beside its successor")
	}
}

// TestPromise_IsMadeOnlyWhenAskedFor: heartbeats alone keep nobody from voting.
func TestPromise_IsMadeOnlyWhenAskedFor(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(50)
	c.must(l)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	if !voteFor(c, f, other.id, raiseTerm(c, f, other)) {
		t.Error("a voter that has promised nothing grants no vote")
	}
}

// TestPromise_IsAskedForWhileRequestsInLeaseModeCome looks at the messages.
func TestPromise_IsAskedForWhileRequestsInLeaseModeCome(t *testing.T) {
	c, l := leased(t)
	asked, stated := 0, 0
	c.drop = func(m *raftpb.Message) bool {
		switch {
		case m.GetRejectHint() <= 1:
		case m.GetType() == raftpb.MsgHeartbeat:
			asked++
		case m.GetType() == raftpb.MsgHeartbeatResp:
			stated++
		}
		return false
	}
	c.tick(200)
	if asked < 400 || stated != asked {
		t.Errorf("in 200 ticks two voters were asked for %d promises and stated %d", asked, stated)
	}
	c.tick(1)
	asked, stated = 0, 0
	c.tick(50)
	if asked != 0 || stated != 0 || l.Status().Leased {
		t.Errorf("200 ticks after the last request %d promises were asked for and %d stated", asked, stated)
	}
}

// TestPromise_HoldsAtMostOneVoteRequestOfEachPeer, however many come, and for no longer than an
// election timeout.
func TestPromise_HoldsAtMostOneVoteRequestOfEachPeer(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.tick(30)
	f, other := c.nodes[l.id%3+1], c.nodes[(l.id+1)%3+1]
	c.isolate(other.id)
	term := f.Status().Term
	ask := func(kind raftpb.MessageType, from, term uint64) {
		c.turn(f, &replica.Input{Messages: []*raftpb.Message{voteRequest(kind, from, f.id, term)}})
	}
	for range 100 {
		ask(raftpb.MsgPreVote, other.id, term+1)
		ask(raftpb.MsgVote, other.id, term+1)
	}
	held := f.HeldVotes()
	if slices.Sort(held); !slices.Contains(held, other.id) || len(slices.Compact(held)) != len(f.HeldVotes()) {
		t.Errorf("requests of %d are held, want one of each", f.HeldVotes())
	}
	for id := range uint64(1000) {
		ask(raftpb.MsgPreVote, 100+id, term+1)
	}
	if got := f.HeldVotes(); len(got) > oracle.MembersMax {
		t.Errorf("I7: %d requests are held", len(got))
	}
	if got := f.Status(); got.Term != term || got.Leader != l.id {
		t.Errorf("term %d, leader %d: a request that has to wait had an effect", got.Term, got.Leader)
	}
	for range 20 {
		c.mono += tick
		for _, n := range []*node{l, f} {
			c.turn(n, &replica.Input{Ticks: 1})
		}
		c.settle()
	}
	c.turn(f, &replica.Input{Ticks: 1})
	c.refuse(l.id, f)
	if got := f.HeldVotes(); len(got) != 0 || f.Status().Term != term {
		t.Errorf("%d requests are held, in term %d: want those that came 21 ticks ago forgotten", len(got), f.Status().Term)
	}
}
