//go:build linux

package membership_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// killRound is one command of an operator within which the leader is killed.
type killRound struct {
	t   *testing.T
	c   *chaos.Cluster
	l   memberLoad
	rng *rand.Rand
}

// run runs a command, and kills the leader at a random moment within the time that it usually
// takes, or when the condition holds. Whatever the moment, the command must succeed: it finds
// the next leader, and what was lost it repeats.
func (k *killRound) run(within time.Duration, condition func() bool, args ...string) {
	k.t.Helper()
	o := start(k.t, k.c, args...)
	began := time.Now()
	if condition != nil {
		for !condition() && time.Since(began) < within {
			time.Sleep(time.Millisecond)
		}
	} else {
		time.Sleep(time.Duration(k.rng.Int64N(int64(within))))
	}
	struck := time.Since(began)
	killed := k.killLeader()
	if err := o.wait(); err != nil {
		k.t.Errorf("the leader, node %d, was killed after %v: %v", killed.ID, struck, err)
	}
	k.t.Logf("isotone %s: took %v, the leader was killed after %v", strings.Join(args[:2], " "), o.took.Round(time.Millisecond), struck.Round(time.Millisecond))
}

// killLeader kills the leader and starts it again.
func (k *killRound) killLeader() *chaos.Node {
	k.t.Helper()
	var leader *chaos.Node
	await.Done(k.t, chaos.ReadyTimeout, func() (bool, string) {
		leader = k.c.Leader()
		return leader != nil && !leader.Exited(), "no leader"
	})
	leader.Kill()
	time.Sleep(time.Duration(k.rng.Int64N(int64(100 * time.Millisecond))))
	leader.Start()
	return leader
}

// follower returns a node that runs and does not lead.
func (k *killRound) follower() *chaos.Node {
	k.t.Helper()
	list := running(k.c, k.c.WaitLeader())
	return list[k.rng.IntN(len(list))]
}

// inJoint reports whether a node has two voters: the cluster is between the old members and
// the new ones.
func (k *killRound) inJoint(node uint64) func() bool {
	return func() bool {
		voters := 0
		for _, m := range membersNow(k.c) {
			if m.NodeID == node && m.Role != "learner" {
				voters++
			}
		}
		return voters > 1
	}
}

// How long commands usually take, with the start of the process.
const (
	shortCommand = 60 * time.Millisecond
	longCommand  = 1200 * time.Millisecond
)

// killRounds are the commands. Each leaves as many nodes as it found, or the next one does.
var killRounds = []struct {
	name string
	do   func(*killRound)
}{
	{"add and remove", func(k *killRound) {
		n := k.c.Joiner()
		n.Start()
		k.run(shortCommand, nil, "member", "add", id(n), n.RaftAddr)
		settled(k.t, k.c, k.l)
		k.run(shortCommand, nil, "member", "remove", id(n))
		wantRemoved(k.t, n)
	}},
	{"add --voter", func(k *killRound) {
		n := k.c.Joiner()
		n.Start()
		k.run(longCommand, nil, "member", "add", id(n), n.RaftAddr, "--voter")
		settled(k.t, k.c, k.l)
		n = k.c.WaitLeader()
		k.run(shortCommand, nil, "member", "remove", id(n))
		wantRemoved(k.t, n)
	}},
	{"promote", func(k *killRound) {
		n := k.c.Joiner()
		operate(k.t, k.c, "member", "add", id(n), n.RaftAddr, "--learner")
		n.Start()
		n.WaitReady(chaos.ReadyTimeout)
		k.run(shortCommand, nil, "member", "promote", id(n))
		settled(k.t, k.c, k.l)
		n = k.follower()
		k.run(shortCommand, nil, "member", "remove", id(n))
		wantRemoved(k.t, n)
	}},
	{"replace", func(k *killRound) {
		n := k.follower()
		n.Kill()
		k.c.LoseDisk(n)
		n.Start()
		k.run(longCommand, nil, "member", "replace", id(n), n.RaftAddr)
	}},
	{"replace, between the old members and the new", func(k *killRound) {
		n := k.follower()
		n.Kill()
		k.c.LoseDisk(n)
		n.Start()
		k.run(10*time.Second, k.inJoint(n.ID), "member", "replace", id(n), n.RaftAddr)
	}},
	{"update", func(k *killRound) {
		n := k.follower()
		was, port := n.HTTPAddr, n.RaftAddr
		k.c.Move(n)
		n.HTTPAddr = was
		k.run(shortCommand, nil, "member", "update", id(n), n.RaftAddr)
		if n.RaftAddr == port {
			k.t.Errorf("node %d was not moved", n.ID)
		}
		k.l.More(k.t, 100)
		n.Shutdown()
		n.Start()
	}},
	{"transfer", func(k *killRound) {
		// The next leader may be the one that is killed, so which one leads is open.
		k.run(shortCommand, nil, "leader", "resign")
	}},
	{"floor", func(k *killRound) {
		floor := time.Now().Add(50 * time.Millisecond)
		k.run(shortCommand, nil, "floor", "raise", fmt.Sprint(floor.UnixNano()))
		if ts := trial.Highest(k.t, k.c); ts.Time <= uint64(floor.UnixNano()) {
			k.t.Errorf("timestamp %v at the floor %v", ts, floor.UnixNano())
		}
	}},
}

// TestMember_LeaderKilledWithinCommands: kill -9 of the leader at a random moment within every
// command. The command succeeds all the same, no call fails, and all nodes know the same
// members. MEMBER_KILLS says how many commands, MEMBER_SEED which moments.
func TestMember_LeaderKilledWithinCommands(t *testing.T) {
	t.Parallel()
	seed := trial.Seed(t, "MEMBER_SEED")
	t.Logf("MEMBER_SEED=%d", seed)
	o := trial.Options()
	o.Nodes = 5 // one has lost its disk, another is killed
	c := chaos.StartCluster(t, o)
	l := startMemberLoad(t, c)
	k := &killRound{t: t, c: c, l: l, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range trial.Number(t, "MEMBER_KILLS", len(killRounds), 3) {
		round := killRounds[i%len(killRounds)]
		t.Logf("%s", round.name)
		round.do(k)
		settled(t, c, l)
	}
	l.Verify(t)
}
