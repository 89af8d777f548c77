package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// flapping is a link that works for some ticks and then does not for some, in turns. 0 and 0: it always
// works.
type flapping struct{ up, down, since int }

func (f flapping) isDown(tick int) bool {
	return f.down > 0 && (tick+f.since)%(f.up+f.down) >= f.up
}

// flap has links flap for some ticks while a client of each node asks. It returns in how many terms
// a node served, and the longest time in ticks without an answer.
func (c *cluster) flap(ticks int, links map[[2]uint64]flapping) (terms, longest int) {
	now, last, term := 0, 0, uint64(0)
	c.drop = func(m *raftpb.Message) bool { return links[[2]uint64{m.GetFrom(), m.GetTo()}].isDown(now) }
	asked := map[uint64]uint64{}
	for ; now < ticks; now++ {
		c.tick(1)
		for _, n := range c.running() {
			s := n.Status()
			if token, waits := asked[n.id]; waits && n.outcome(token) != "" {
				delete(asked, n.id)
				if n.outcome(token) == "ok" {
					last = now
				}
			}
			if _, waits := asked[n.id]; !waits && s.Serving {
				asked[n.id] = c.ask(n, 1)
			}
			if s.Serving && s.Term > term {
				terms, term = terms+1, s.Term
			}
		}
		longest = max(longest, now-last)
	}
	return terms, longest
}

// leadsAgainAndAgain reports whether a node whose links flap leads in one term after the other, although
// the links between the others are in order.
func leadsAgainAndAgain(t *testing.T) (again bool) {
	for seed := range uint64(10) {
		seedTimeouts(t, seed)
		c, _ := ledBy1(t, 3)
		c.tick(int(seed))
		terms, longest := c.flap(1500, map[[2]uint64]flapping{{1, 2}: {6, 17, 8}, {2, 1}: {17, 30, 48}, {3, 1}: {1, 26, 61}})
		if terms > 4 || longest > 60 {
			t.Logf("phase %d: %d terms, no answer for %d ticks", seed, terms, longest)
			again = true
		}
	}
	return again
}

func TestSuccession_ANodeWhoseLinksFlapIsNotElectedAgainAndAgain(t *testing.T) {
	if leadsAgainAndAgain(t) {
		t.Error("a leader that lost its quorum was elected again and again")
	}
}

// TestSuccession_ALeaderThatHeardNoQuorumStandsLast, as its links are probably worse than those of others.
func TestSuccession_ALeaderThatHeardNoQuorumStandsLast(t *testing.T) {
	for seed := range uint64(20) {
		seedTimeouts(t, seed)
		c, l := ledBy1(t, 5)
		now, deaf := 0, false
		c.drop = func(m *raftpb.Message) bool { // its messages come in bursts, so that the others are patient
			return m.GetFrom() == l.id && now%7 > 0 || m.GetTo() == l.id && deaf
		}
		for ; l.Status().Serving && now < 500; now++ {
			deaf = now > 100
			c.tick(1)
		}
		c.drop = nil
		if next := c.leader(); next == l {
			t.Errorf("phase %d: node 1 heard no quorum, and leads again in term %d", seed, next.Status().Term)
		}
	}
}
