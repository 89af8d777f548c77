package replica_test

import (
	"math/big"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// intervalHarms are the bugs of the cluster clock that random runs would take too long to find.
var intervalHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.WaitWithoutRate:     waitsTooShort,
	mutant.ReportNotAsLeader:   forgetsThatItLed,
	mutant.ReportForgets:       func(t *testing.T) bool { return ignoresItsVoter(t, true) },
	mutant.ReportOwnOnly:       func(t *testing.T) bool { return ignoresItsVoter(t, false) },
	mutant.LimitFromAnswer:     extendsAfterAPause,
	mutant.TellAfterGivingUp:   tellsAfterGivingUp,
	mutant.TellUnsaid:          tellsWhatTheLogDoesNot,
	mutant.ReelectedSkipsWait:  skipsItsOwnLimits,
	mutant.HoldAll:             holdsAll,
	mutant.ClientFloorByAnyone: movesTimeByAnyone,
	mutant.FarOffAtOnce:        changesWithClocks,
}

func TestInterval_NoHarmIsDone(t *testing.T) { wantNoHarm(t, intervalHarms) }

// waitsTooShort reports whether the wait for a limit of some length, on the fastest clock, may be over
// before the limit has passed on the slowest one, slewed.
func waitsTooShort(*testing.T) bool {
	const million = 1_000_000
	for d := int64(interval.LimitMin); d <= int64(interval.LimitMax); d += 999_999_937 {
		lasts := big.NewRat(d*million, million-interval.RateError)
		lasts.Mul(lasts, big.NewRat(million, million-interval.Slew))
		waited := big.NewRat(interval.Wait(d)*million, million+interval.RateError)
		if waited.Cmp(lasts) < 0 {
			return true
		}
	}
	return false
}

// newQuietCluster forms a cluster whose leader reserves rarely, with a cluster clock that all nodes
// read.
func newQuietCluster(t *testing.T, limit time.Duration) *cluster {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.Interval, cfg.EpochTicks = limit, 300 })
	c.leader()
	c.tick(310) // the next reservation comes in three seconds
	return c
}

// others returns the nodes that do not lead.
func (c *cluster) others(l *node) (list []*node) {
	for _, n := range c.running() {
		if n != l {
			list = append(list, n)
		}
	}
	return list
}

// forgetsThatItLed reports whether a leader that is elected again, by a voter that has heard nobody for
// long, serves while limits of its former term run.
func forgetsThatItLed(t *testing.T) bool {
	c := newQuietCluster(t, limit)
	a := c.leader()
	b, away := c.others(a)[0], c.others(a)[1]
	c.isolate(away.id)
	c.tick(int(limit/tick) + 10)
	c.kill(b.id)
	for a.Status().Serving { // until it steps down
		c.tick(1)
	}
	c.isolate()
	c.greet()
	return c.overlaps(int(limit / tick))
}

// ignoresItsVoter reports whether a leader that has heard nobody for long, and was elected by a voter that
// has answered the former leader lately, and perhaps was started again, serves while limits run.
func ignoresItsVoter(t *testing.T, restarted bool) bool {
	c := newQuietCluster(t, limit)
	a := c.leader()
	b, away := c.others(a)[0], c.others(a)[1]
	c.isolate(away.id)
	c.tick(int(limit/tick) + 10)
	c.kill(a.id)
	if restarted {
		c.kill(b.id)
		c.start(b)
	}
	c.isolate()
	c.greet()
	c.drop = func(m *raftpb.Message) bool { // the voter does not campaign
		return m.GetFrom() == b.id && (m.GetType() == raftpb.MsgPreVote || m.GetType() == raftpb.MsgVote)
	}
	return c.overlaps(int(limit / tick))
}

// tellsWhatTheLogDoesNot reports whether a first leader tells limits of which its successor finds
// nothing in the log.
func tellsWhatTheLogDoesNot(t *testing.T) bool {
	c := unformed(t, 3, func(cfg *replica.Config) { cfg.Interval = limit })
	c.drop = func(m *raftpb.Message) bool {
		for _, e := range m.GetEntries() {
			if len(e.GetData()) > 0 && oracle.Kind(e.GetData()[0]) == oracle.KindInterval {
				return true
			}
		}
		return false
	}
	c.greet()
	c.settle()
	l := c.leader()
	c.tick(5)
	c.killed(l)
	return c.overlaps(int(2 * time.Second / tick))
}

// skipsItsOwnLimits reports whether a leader that is elected again serves while limits of its former
// term run.
func skipsItsOwnLimits(t *testing.T) bool {
	const limit = 2 * time.Second
	c := newQuietCluster(t, limit)
	a := c.leader()
	// No round is confirmed any more, so it steps down. The others do not campaign.
	c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgHeartbeatResp }
	for a.Status().Serving {
		c.tick(1)
	}
	c.drop = func(m *raftpb.Message) bool {
		return m.GetFrom() != a.id && (m.GetType() == raftpb.MsgPreVote || m.GetType() == raftpb.MsgVote)
	}
	return c.overlaps(int(limit / tick))
}

// extendsAfterAPause reports whether a leader that was paused with the answers to its round unread tells
// a limit that runs when its successor serves.
func extendsAfterAPause(t *testing.T) bool {
	c := newQuietCluster(t, limit)
	a := c.leader()
	others := c.others(a)
	c.mono += tick
	c.turn(a, &replica.Input{Ticks: 1})
	for _, n := range others {
		in := &replica.Input{Messages: n.inbox}
		n.inbox = nil
		c.turn(n, in)
	}
	a.down = true // and keeps what has arrived
	c.tick(int(limit/tick) - 4)
	a.down = false
	in := &replica.Input{Messages: a.inbox}
	a.inbox = nil
	c.turn(a, in)
	return c.overlaps(int(limit / tick))
}

// tellsAfterGivingUp reports whether a leader that gave up a transfer tells limits that run when its
// successor serves, which has found in the log that none does.
func tellsAfterGivingUp(t *testing.T) bool {
	c, l := stalledRelease(t)
	c.settle()
	c.killed(l)
	return c.overlaps(3 * int(limit/tick))
}

// holdsAll reports whether requests that wait for their floors, for the cluster clock or for a proposal, leave no room to
// others.
func holdsAll(t *testing.T) (harm bool) {
	for _, limit := range []time.Duration{limit, 0} {
		for _, u64 := range []bool{false, true} {
			c := newCluster(t, 3, func(cfg *replica.Config) { cfg.Interval, cfg.QueueMax = limit, 100 })
			l := c.leader()
			c.tick(20)
			c.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp }
			floor := isotone.Timestamp{Time: uint64(c.mono + 4*time.Second)}
			if u64 {
				floor = isotone.Timestamp{}
				c.tick(60) // oracle time reaches the ceiling
			}
			for range 150 {
				c.request(l, replica.Request{Mode: isotone.ReadQuorum, U64: u64, Floor: floor, Raise: true, Counts: []uint64{isotone.Range64CountMax}})
			}
			c.tick(3)
			c.settle()
			token := c.ask(l, 1)
			c.settle()
			harm = harm || l.outcome(token) != "ok"
		}
	}
	return harm
}
