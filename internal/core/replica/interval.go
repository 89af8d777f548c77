package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
)

// The cluster clock (I14; docs/intervals.md has the rules and the proof). The leader of each term runs
// one, by its steady clock. It tells readings of it, with a limit: D after the start of the latest
// confirmed round, and below the ceiling. A process that holds a reading derives bounds of the clock locally until
// then, however the leader fares. So a leader of a later term waits until no limit can run any more
// before it issues anything or runs a clock of its own. Then all timestamps, the oracle's and those
// made from bounds, have one order.
//
// A later leader knows how long it has to wait by two things:
//
//   - Each vote says how long ago, at least, the voter has answered a leader, has led, or was started.
//     The quorum that answered the latest round of an earlier leader shares a voter with the quorum
//     that elects the later one.
//   - The log says whether limits run. A leader that transfers its leadership tells no more, waits
//     until its limits have passed, and has the log say that none runs.

// ClockAsk asks a peer for a reading of the cluster clock.
type ClockAsk struct {
	// Peer is the ID of the member that asks, or that is asked.
	Peer uint64
	// Nonce is that of the answer. It is odd if the peer holds its own steady clock or the leader's for
	// wrong, because the leader's readings contradict each other there.
	Nonce uint64
}

// ClockAnswer answers a [ClockAsk] of Peer, or comes from there.
type ClockAnswer struct {
	Peer    uint64
	Nonce   uint64
	Reading interval.Reading
}

// intervals is what a node knows of the cluster clock, and what it says in its votes.
type intervals struct {
	*facts
	estimate interval.Estimate
	// answered is when this node last answered a leader, led, or started, by Input.Steady; known is set
	// from the first step on.
	answered int64
	known    bool
	// votes is the shortest time, in nanoseconds, that a voter of this candidate in term votesTerm has told:
	// how long ago it had last answered a leader.
	votes     int64
	votesTerm uint64
	// asked are the latest questions to leaders, by nonce modulo the length: those of the time that an
	// answer may take to be of use.
	asked []clockQuestion
	nonce uint64
	rate  interval.Rate
	// blamed is the term whose leader's readings contradict each other.
	blamed uint64
}

// questionsMax bounds the questions to leaders that are remembered.
const questionsMax = 1024

// newIntervals returns what a process knows at its start. The nonces of two processes differ.
func newIntervals(cfg *Config) intervals {
	n := intervals{nonce: cfg.Self.Session >> 2}
	if cfg.Interval > 0 {
		n.asked = make([]clockQuestion, min(questionsMax, 4+int(cfg.Interval/cfg.TickInterval)))
	}
	return n
}

type clockQuestion struct {
	nonce, leader uint64
	at            int64 // Input.Steady
}

// steadyNow returns the steady clock. Without Config.Interval it is not read, and Mono stands for it.
func (f *facts) steadyNow() int64 {
	if f.cfg.Interval == 0 {
		return int64(f.mono)
	}
	return f.steady
}

// noteAnswered notes that this node answers a leader, leads, or has started.
func (n *intervals) noteAnswered() { n.answered = n.steadyNow() }

// noteAnsweredTo does so if m is of a leader that this node follows.
func (n *intervals) noteAnsweredTo(m *raftpb.Message) {
	if m.GetTerm() >= n.term {
		n.noteAnswered()
	}
}

// stateAnswered completes a vote that this node grants.
func (n *intervals) stateAnswered(m *raftpb.Message) {
	if n.cfg.Interval == 0 || m.GetReject() || m.GetType() != raftpb.MsgVoteResp {
		return
	}
	since := max(0, n.steadyNow()-n.answered) + mutant.Pick(mutant.ReportForgets, n.mutateForgotten(), 0)
	m.Context = binary.LittleEndian.AppendUint64(nil, uint64(since))
}

// noteUnheard records what a vote says. One of a version or a node without intervals says nothing.
func (n *intervals) noteUnheard(m *raftpb.Message) {
	if m.GetReject() || m.GetTerm() != n.term || n.role != raft.StateCandidate || mutant.On(mutant.ReportOwnOnly) {
		return
	}
	since := int64(0)
	if c := m.GetContext(); len(c) == contextSize {
		since = int64(min(binary.LittleEndian.Uint64(c), 1<<62))
	}
	if n.votesTerm != n.term || since < n.votes {
		n.votes, n.votesTerm = since, n.term
	}
}

// leaderElected begins the clock's part of a term.
func (r *Replica) leaderElected() {
	c, n := &r.leading.clock, &r.interval
	c.electedAt = r.steadyNow()
	c.unheard = max(0, c.electedAt-n.answered)
	if n.votesTerm == r.term {
		c.unheard = min(c.unheard, n.votes)
	}
}

// take merges a reading into the estimate, and judges the clocks by it.
func (n *intervals) take(sent, received interval.Instant, m interval.Reading) {
	believed, agrees := n.rate.OK(), n.estimate.Take(sent, received, m)
	if !agrees {
		n.blamed = m.Term
	}
	if n.rate.Take(received, m.Term, agrees) != believed {
		n.effects.Changed = true
	}
	n.effects.ClockChanged = true
}

// ClockEstimate returns what this node knows of the cluster clock. It belongs to the replica and is
// valid until the next call of Step: copy it. A copy may be used by any goroutine for as long as its
// bounds are good, whatever becomes of this node.
func (r *Replica) ClockEstimate() *interval.Estimate { return &r.interval.estimate }

// question returns the place of the question with a nonce.
func (n *intervals) question(nonce uint64) *clockQuestion {
	return &n.asked[nonce/2%uint64(len(n.asked))]
}

// blamedByMost reports whether most of the other voters, two at least, hold this leader's steady clock
// for wrong, or their own: more than one are hardly wrong by the same.
func (f *facts) blamedByMost() bool {
	blaming, others := 0, 0
	for _, id := range f.conf.GetVoters() {
		if p := f.peers[id]; id != f.cfg.Self.NodeID {
			others++
			if p != nil && p.blamesAt > 0 && f.ticks-p.blamesAt <= electionTicks {
				blaming++
			}
		}
	}
	return blaming >= 2 && blaming > others/2
}

// exchangeClocks answers what peers ask, and handles what they answer.
func (r *Replica) exchangeClocks(in *Input) {
	if r.cfg.Interval == 0 {
		return
	}
	for _, q := range in.ClockAsks {
		if p := r.peers[q.Peer]; p != nil && q.Nonce%2 == 1 {
			p.blamesAt = r.ticks
		}
		if m, ok := r.leading.reading(); ok {
			r.effects.TellClock = append(r.effects.TellClock, ClockAnswer{Peer: q.Peer, Nonce: q.Nonce, Reading: m})
		}
	}
	n := &r.interval
	for _, a := range in.ClockAnswers {
		q := *n.question(a.Nonce)
		if mutant.On(mutant.AnswerOfAnother) {
			q = *n.question(2 * n.nonce)
			q.nonce, q.leader = a.Nonce, a.Peer
		}
		if a.Nonce == 0 || q.nonce != a.Nonce || q.leader != a.Peer || a.Reading.Cluster != r.state.ClusterID {
			continue
		}
		r.interval.take(interval.At(q.at), interval.At(r.steadyNow()), a.Reading)
	}
}

// ask asks the leader for a reading, with every tick.
func (n *intervals) ask() {
	if n.cfg.Interval > 0 && n.isFollowing() && n.state.Interval != 0 {
		n.nonce++
		nonce := 2 * n.nonce
		if n.blamed == n.term {
			nonce++
		}
		*n.question(nonce) = clockQuestion{nonce: nonce, leader: n.lead, at: n.steadyNow()}
		n.effects.AskClock = append(n.effects.AskClock, ClockAsk{Peer: n.lead, Nonce: nonce})
	}
}

// noteLeads notes that this node leads, which counts as an answer to a leader.
func (n *intervals) noteLeads() {
	if !mutant.On(mutant.ReportNotAsLeader) {
		n.noteAnswered()
	}
}

// IntervalStatus describes what this node knows of the cluster clock.
type IntervalStatus struct {
	// On is set if Config.Interval is not 0.
	On bool
	// Running is set while the log says that readings may be told.
	Running bool
	// Waiting is set while this leader answers nothing because limits of an earlier term may run.
	Waiting bool
	// Known is set while bounds are good; the next three count only then, in nanoseconds. Width is that
	// of the interval, Limit the time from its later bound to the limit, Age the time since the latest
	// reading.
	Known             bool
	Width, Limit, Age int64
	// Broken is set while this node's steady clock, or the leader's, has a wrong rate. Blamed is set while
	// this node leads and most of the others find that; it transfers its leadership then.
	Broken, Blamed bool
}

// intervalStatus returns Status.Interval.
func (r *Replica) intervalStatus() IntervalStatus {
	n, now := &r.interval, interval.At(r.steadyNow())
	s := IntervalStatus{
		On: r.cfg.Interval > 0, Running: r.state.Interval != 0, Broken: !n.rate.OK(),
		Waiting: r.role == raft.StateLeader && r.leading.clock.reserved && !r.leading.alloc.IsOpen(),
	}
	s.Blamed = r.role == raft.StateLeader && s.On && r.blamedByMost()
	if b, good := n.estimate.Bounds(now); good && s.On {
		s.Known, s.Width, s.Limit, s.Age = true, int64(b.Latest-b.Earliest), int64(b.Limit-b.Latest), n.estimate.Age(now)
	}
	return s
}
