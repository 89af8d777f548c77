package replica_test

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// brokenLink is a fault of the network that lasts: something never arrives. Connections stay.
type brokenLink struct {
	name string
	lost func(from, to uint64) bool
}

// deaf returns the fault by which a node hears nothing, mute that by which nobody hears it.
func deaf(id uint64) brokenLink {
	return brokenLink{fmt.Sprintf("node %d is deaf", id), func(_, to uint64) bool { return to == id }}
}

func mute(id uint64) brokenLink {
	return brokenLink{fmt.Sprintf("node %d is mute", id), func(from, _ uint64) bool { return from == id }}
}

// oneWay returns the fault by which one node does not hear another.
func oneWay(from, to uint64) brokenLink {
	return brokenLink{fmt.Sprintf("node %d does not hear node %d", to, from), func(f, t uint64) bool { return f == from && t == to }}
}

// brokenLinks returns what can be wrong with the links of one node of some.
func brokenLinks(id uint64, nodes int) []brokenLink {
	list := []brokenLink{deaf(id), mute(id)}
	for other := range uint64(nodes) {
		if other+1 != id {
			list = append(list, oneWay(other+1, id))
		}
	}
	return list
}

// after breaks a link of a new cluster that a node leads, for some ticks.
func (link brokenLink) after(t *testing.T, nodes int, leader uint64, ticks int) *cluster {
	t.Helper()
	c := newCluster(t, nodes, nil)
	c.lead(leader)
	c.tick(30)
	c.drop = func(m *raftpb.Message) bool { return link.lost(m.GetFrom(), m.GetTo()) }
	c.tick(ticks)
	return c
}

// untilAnswered returns how many ticks pass until a node that runs answers, at most 200.
func (c *cluster) untilAnswered() (ticks int) {
	c.settle()
	for ; ticks < 200; ticks++ {
		for _, n := range c.running() {
			if !n.Status().Serving {
				continue
			}
			token := c.ask(n, 1)
			if c.settle(); n.outcome(token) == "ok" {
				return ticks
			}
		}
		c.tick(1)
	}
	return ticks
}

// brokenFor are for how many ticks a link was broken when the leader ends: before and after the node has
// forgotten the leader and asked for pre-votes.
var brokenFor = []int{0, 1, 3, 9, 10, 11, 12, 14, 15, 16, 17, 20, 23, 26, 31, 40, 60}

// deafFailoverMax is how many ticks a failover takes at most beside a node that does not hear: what a
// voter leaves that node, and the distance of the next rank.
const deafFailoverMax = 7

// waitsForDeaf reports whether a failover takes longer because of a node that does not hear, or is not
// heard.
func waitsForDeaf(t *testing.T) (waits bool) {
	seedTimeouts(t, 1)
	for _, leader := range []uint64{1, 5} {
		for id := leader%5 + 1; id != leader; id = id%5 + 1 {
			for _, link := range brokenLinks(id, 5) {
				for _, ticks := range brokenFor {
					c := link.after(t, 5, leader, ticks)
					c.killed(c.nodes[leader])
					if got := c.untilAnswered(); got > deafFailoverMax {
						t.Logf("%s for %d ticks when node %d dies: no answer for %d ticks", link.name, ticks, leader, got)
						waits = true
					}
				}
			}
		}
	}
	return waits
}

func TestSuccession_DoesNotWaitForANodeThatDoesNotHear(t *testing.T) {
	if waitsForDeaf(t) {
		t.Errorf("a failover took more than %d ticks", deafFailoverMax)
	}
}

// TestSuccession_OfASilentLeaderBesideABrokenLink: nobody refuses connections for it.
func TestSuccession_OfASilentLeaderBesideABrokenLink(t *testing.T) {
	seedTimeouts(t, 1)
	for id := range uint64(4) {
		for _, link := range brokenLinks(id+2, 5) {
			for _, ticks := range brokenFor {
				c := link.after(t, 5, 1, ticks)
				c.kill(1)
				if got := c.untilAnswered(); got > 10+deafFailoverMax {
					t.Errorf("%s for %d ticks when the leader falls silent: no answer for %d ticks", link.name, ticks, got)
				}
			}
		}
	}
}

// TestSuccession_ABrokenLinkDeposesNobody: of three and of five nodes, as long as the leader hears a quorum.
func TestSuccession_ABrokenLinkDeposesNobody(t *testing.T) {
	seedTimeouts(t, 1)
	for _, nodes := range []int{3, 5} {
		for id := range uint64(nodes) {
			for _, link := range brokenLinks(id+1, nodes) {
				if link.name == deaf(1).name || link.name == mute(1).name {
					continue
				}
				c := link.after(t, nodes, 1, 0)
				term := c.nodes[1].Status().Term
				for range 20 {
					if c.tick(20); c.untilAnswered() > 0 {
						t.Errorf("%d nodes, %s: no answer", nodes, link.name)
					}
				}
				if got := c.nodes[1].Status(); got.Role != raft.StateLeader || got.Term != term {
					t.Errorf("%d nodes, %s: %v in term %d, want a leader in term %d", nodes, link.name, got.Role, got.Term, term)
				}
			}
		}
	}
}

// TestSuccession_OfALeaderThatIsCutOffInOneDirection: one that is not heard is forgotten as if it were
// dead; of one that does not hear, Raft finds out within two election timeouts.
func TestSuccession_OfALeaderThatIsCutOffInOneDirection(t *testing.T) {
	seedTimeouts(t, 1)
	for _, nodes := range []int{3, 5} {
		for _, test := range []struct {
			link brokenLink
			max  int
		}{{mute(1), 10}, {deaf(1), 2*20 + 10}} {
			for phase := range 20 {
				c := brokenLink{lost: func(_, _ uint64) bool { return false }}.after(t, nodes, 1, phase)
				c.drop = func(m *raftpb.Message) bool { return test.link.lost(m.GetFrom(), m.GetTo()) }
				if got := c.untilAnswered(); got > test.max {
					t.Errorf("%d nodes, %s, phase %d: no answer for %d ticks, want at most %d", nodes, test.link.name, phase, got, test.max)
				}
			}
		}
	}
}
