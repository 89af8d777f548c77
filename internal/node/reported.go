package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// leadMax is by how much time may lead the clock before that is worth a warning. After a
// failover it leads by some epochs.
const leadMax = 10 * time.Second

// reported is what the log and the metrics were told last, so that each change is told once.
type reported struct {
	serving       bool   // this node answers as the leader
	peers         string // how PEERS differs from the members
	forming       string // what the formation of the cluster waits for
	clockExceeded bool   // this node does not go by its own clock
	ahead         bool   // time leads the clock by more than leadMax
	idsRefused    bool   // because of the clock
	level         uint64 // the feature level
	levelTerm     uint64 // the term in which an upgrade was said to wait for its finalization
	counters      replica.Counters
	// floorTerm and refusedTerm are the terms in which clients were said to know larger timestamps
	// than this leader, and to be refused for that.
	floorTerm, refusedTerm uint64
	ids                    uint64       // made so far
	dropped                droppedCount // messages to peers
	rounds                 servedRounds
	frontiersNext          time.Duration // when the log may be told next of a frontier that stands, by the loop's clock
}

// servedRounds counts the rounds since the log was told of one.
type servedRounds struct {
	rounds, requests int
	next             time.Duration // when the next may be told, by the loop's clock
}

// roundLogPause is the time between two rounds that the log is told of: there may be ten thousand a second.
const roundLogPause = 100 * time.Millisecond

// logRound says at debug level, of a round now and then, how many requests it served and how long it took.
func (c *core) logRound(round *replica.Round, now time.Duration) {
	log, r := c.node.cfg.Log, &c.reported.rounds
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	r.rounds++
	r.requests += round.Requests
	if now < r.next {
		return
	}
	log.Debug("a round served requests", "requests", round.Requests, "timestamps", round.Timestamps, "took", round.Took.String(),
		"rounds_since", r.rounds, "requests_since", r.requests)
	*r = servedRounds{next: now + roundLogPause}
}

// logStatus logs a change of leader, term or readiness, and that this node answers as the leader.
func (c *core) logStatus(v *view) {
	s, old := v.front, v.previous
	if c.reported.serving != v.replica.Serving {
		if c.reported.serving = v.replica.Serving; v.replica.Serving {
			c.node.cfg.Log.Debug("this node answers as the leader", "term", s.Term)
		}
	}
	if old == nil || old.Leader == s.Leader && old.Term == s.Term && (old.NotReady == "") == (s.NotReady == "") {
		return
	}
	attrs := []any{"node", s.NodeID, "role", s.Role, "term", s.Term, "leader", s.Leader, "leader_addr", s.LeaderAddr,
		"ready", s.NotReady == ""}
	if s.NotReady != "" {
		attrs = append(attrs, "why", s.NotReady)
	}
	c.node.cfg.Log.Info("cluster state changed", attrs...)
}

// logFormation logs what the formation of the cluster waits for, and its end.
func (c *core) logFormation(s *view) {
	forming, members := s.replica.Forming, len(s.front.Members)
	if forming == c.reported.forming || c.node.Err() != nil {
		return
	}
	c.reported.forming = forming
	cfg := &c.node.cfg
	switch {
	case forming == "":
		cfg.Log.Info("the cluster is formed", "node", s.front.NodeID, "cluster", isotone.ClusterID(s.replica.ClusterID).String(), "members", members)
	case members > 1:
		cfg.Log.Info("the cluster is not formed yet", "node", s.front.NodeID, "why", forming+c.awaited(s.peers))
	}
}

// logPeers warns that PEERS and the record differ: one of them is out of date. The members come with
// the log, so this waits until a leader is known.
func (c *core) logPeers(v *view) {
	cfg, r := &c.node.cfg, &v.replica
	if r.Forming != "" || v.front.Leader == 0 || len(cfg.Peers) < 2 {
		return
	}
	strangers, moved := differingPeers(cfg.Peers, c.replica.Members())
	if now := fmt.Sprint(strangers, moved); now != c.reported.peers {
		if c.reported.peers = now; len(strangers)+len(moved) > 0 {
			cfg.Log.Warn("PEERS differs from the members that the cluster has by now; both their addresses on record and those in PEERS are dialed. "+
				"Correct PEERS, or the record: isotone member list, isotone member update", "no_members", strangers, "other_addresses", moved)
		}
	}
}

// logIDs logs when ids begin and cease to be refused because of the clock.
func (c *core) logIDs(s *view) {
	r := &s.replica
	if r.IDsStopped || len(c.node.ids.slots) == 0 {
		return
	}
	refused := r.IDsRefused != nil && r.IDsRefused.Code == isotone.CodeClock
	switch {
	case refused && !c.reported.idsRefused:
		c.node.cfg.Log.Error("ids are refused", "why", r.IDsRefused.Message)
	case !refused && c.reported.idsRefused:
		c.node.cfg.Log.Info("ids are made again: the clock agrees with the peers'")
	}
	c.reported.idsRefused = refused
}

// logClock logs when this node begins and ceases to go by another clock than its own.
func (c *core) logClock(s *view) {
	clock, log, limit := s.replica.Clock, c.node.cfg.Log, c.node.cfg.ClockJumpMax.String()
	if clock.Exceeded == c.reported.clockExceeded {
		return
	}
	c.reported.clockExceeded = clock.Exceeded
	offset := clock.Offset.Round(time.Millisecond).String()
	switch {
	case !clock.Exceeded:
		log.Info("this node's clock is believed again", "offset", offset)
	case clock.SoleVoter:
		log.Error("this node's wall clock has jumped, and time goes on by its steady clock; if the wall clock is right now, restart the node "+
			"(with CLOCK_JUMP_MAX_MS=0, if it was off for more than a year)", "by", offset, "limit", limit)
	default:
		log.Error("this node's clock is off those of a quorum, and time goes on by theirs: set it right", "offset", offset, "limit", limit)
	}
}

// logLevel logs that the feature level was raised, and, once in each term of this leader,
// that an upgrade waits to be finalized.
func (c *core) logLevel(s *view) {
	r, told, log := &s.replica, &c.reported, c.node.cfg.Log
	if r.Forming != "" {
		return
	}
	if r.Level > told.level {
		if told.level > 0 {
			log.Info("the feature level of the cluster was raised; older versions cannot be put back", "level", r.Level)
		}
		told.level = r.Level
	}
	if !r.Serving || told.levelTerm == r.Term || r.Level == c.replica.Levels().Newest {
		return
	}
	if l := c.replica.Levels(); l.Next > l.Level {
		told.levelTerm = r.Term
		log.Info("all members run a version that knows a newer feature level; when no older version is to be put back any more, finalize the upgrade with: isotone upgrade finalize",
			"level", l.Level, "next", l.Next)
	}
}

// warnAhead logs, once, that timestamps are ahead of the clock: the index grows and time
// stands still until the clock has caught up. lead is the lead over the node's own clock,
// which need not be the one that time goes by.
func (c *core) warnAhead(lead time.Duration, clock replica.Clock) {
	limit := c.node.cfg.ClockJumpMax
	if !clock.Known && limit > 0 {
		return // time stands still because nobody knows how late it is
	}
	lead += clockAhead(clock, limit)
	if ahead := lead > leadMax; ahead != c.reported.ahead {
		if c.reported.ahead = ahead; ahead {
			c.node.cfg.Log.Warn("time leads the clock that it goes by, and stands still until that has caught up; "+
				"the clock is slow, or that of an earlier leader was fast", "lead", lead.Round(time.Millisecond).String())
		}
	}
}

// clockAhead returns by how much this node's clock is ahead of the one that time goes by: its
// own, within limit of the quorum's (I11).
func clockAhead(c replica.Clock, limit time.Duration) time.Duration {
	switch {
	case !c.Exceeded:
		return 0
	case c.Offset > 0:
		return c.Offset - limit
	default:
		return c.Offset + limit
	}
}

// warnFloors logs, once in each term, that clients carry floors above what this leader would
// have issued.
func (c *core) warnFloors(term uint64, now *replica.Counters) {
	told, log := &c.reported, c.node.cfg.Log
	before := &told.counters
	if now.FloorsPassed+now.FloorsRaised > before.FloorsPassed+before.FloorsRaised && told.floorTerm != term {
		told.floorTerm = term
		log.Warn("a client knows a larger timestamp than this cluster would have issued, and time was moved beyond it; was the cluster set back to an older copy?", "term", term)
	}
	if now.FloorsRefused > before.FloorsRefused && told.refusedTerm != term {
		told.refusedTerm = term
		log.Error("a client knows a timestamp ahead of the clock, and may not move time beyond it, or not so far, and is refused; if the cluster was set back to an older copy, run isotone floor raise, "+
			"otherwise the client uses the wrong cluster", "term", term, "limit", replica.ClientFloorAheadMax.String())
	}
}
