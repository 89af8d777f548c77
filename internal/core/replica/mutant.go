package replica

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// The deliberate bugs (internal/core/mutant) that take more than a condition. In normal
// builds mutant.On is constant false: these functions return what they were given, or do
// nothing and return false.

// mutation is the state of deliberate bugs. Unused in normal builds.
type mutation struct {
	mono     time.Duration // Input.Mono of the step before
	epoch    uint64        // of this node's latest leadership
	releases []oracle.Used // leases to be returned in the next step
	led      bool          // this process has led
}

// mutateStep is called before a step reads its clocks.
func (r *Replica) mutateStep() {
	if mutant.On(mutant.LeaseOnOldClock) {
		r.mutation.mono = r.mono
	}
	if mutant.On(mutant.ReleaseInNextStep) && len(r.mutation.releases) > 0 {
		r.ids.releaseLeases(r.mutation.releases)
		r.mutation.releases = nil
	}
}

// mutateRelease reports whether the leases of stopped generators are released later.
func (g *ids) mutateRelease(used []oracle.Used) bool {
	if !mutant.On(mutant.ReleaseInNextStep) {
		return false
	}
	g.mutation.releases = append(g.mutation.releases, used...)
	g.updateGenerators()
	return true
}

func (e *lease) mutateLeaseStart(started time.Duration) time.Duration {
	return mutant.Pick(mutant.LeaseFromAnswer, e.mono, started)
}

func (e *lease) mutateLeaseLength(ticks uint64, d time.Duration) time.Duration {
	return mutant.Pick(mutant.LeaseWithoutSlack, time.Duration(ticks)*e.cfg.TickInterval, d)
}

// mutatePromise returns what a voter has promised, in ticks.
func (e *lease) mutatePromise(ticks uint64) uint64 {
	return mutant.Pick(mutant.CountUnpromised, max(ticks, promiseTicks), ticks)
}

// mutateLengthen returns the place in the log from which an append goes on.
func (t *tail) mutateLengthen(next uint64) uint64 {
	return mutant.Pick(mutant.LengthenWrongly, 0, next)
}

// mutateRound is called when a round has its number.
func (r *Replica) mutateRound() {
	if mutant.On(mutant.ReuseRoundNumber) {
		r.queue.lastRound = 1
	}
	if mutant.On(mutant.LeaseUnconfirmed) {
		r.leading.lease.until = max(r.leading.lease.until, r.mono+r.leading.lease.length(promiseTicks))
	}
}

// mutateEnqueue reports whether it took req.
func (r *Replica) mutateEnqueue(req Request) bool {
	if mutant.On(mutant.NoRound) && r.leading.alloc.IsOpen() {
		_, hold, err := r.leading.issue(&pending{Request: req, clock: r.leading.arrivalClock(req)})
		if !hold {
			r.load.leave(&req)
			r.answer(req.Token, err)
		}
		return !hold
	}
	if n := len(r.queue.rounds); n > 0 && mutant.On(mutant.JoinRoundInFlight) {
		r.queue.rounds[n-1].requests = append(r.queue.rounds[n-1].requests, pending{Request: req, arrived: r.ticks})
		return true
	}
	return false
}

// mutateAnswerer returns who answered a heartbeat, or a voter in place of a learner.
func (r *Replica) mutateAnswerer(from uint64) uint64 {
	if mutant.On(mutant.CountLearner) && r.isLearner(from) {
		for _, id := range r.conf.GetVoters() {
			if id != r.cfg.Self.NodeID {
				return id
			}
		}
	}
	return from
}

// mutateTerm is called when everything of the former term or role was dropped.
func (r *Replica) mutateTerm(old oracle.Allocator) {
	if mutant.On(mutant.KeepEpochResetIndex) && old.IsOpen() {
		r.mutation.epoch = old.Time()
	}
	if mutant.On(mutant.KeepAllocator) {
		r.leading.alloc = old
	}
	if mutant.On(mutant.ServeUnreserved) && r.role == raft.StateLeader {
		r.leading.alloc.Open(r.state.Ceiling, r.leading.target())
	}
}

func (r *Replica) mutateFloor(floor uint64) uint64 {
	switch {
	case mutant.On(mutant.FloorFromClock):
		return min(r.now, r.state.Ceiling-1)
	case mutant.On(mutant.KeepEpochResetIndex) && r.mutation.epoch > 0:
		return r.mutation.epoch
	}
	return floor
}

// mutateApplied is called when c was applied.
func (r *Replica) mutateApplied(c oracle.Command) {
	if mutant.On(mutant.ApplyByNode) && c.Kind == oracle.KindRelease && len(r.state.Workers) > 0 {
		r.state.Workers[0].End += r.cfg.Self.NodeID
	}
}

// mutateRestored returns the state of a snapshot that replaces r.state.
func (r *Replica) mutateRestored(s oracle.State) oracle.State {
	if mutant.On(mutant.RestoreOldCeiling) && r.state.Ceiling != 0 {
		s.Ceiling = r.state.Ceiling
	}
	if mutant.On(mutant.ForgetWorkers) {
		s.Space, s.Workers = oracle.Space{}, nil
	}
	if mutant.On(mutant.SnapshotWithoutHolds) {
		s.Holds = oracle.Holds{}
	}
	return s
}

// mutateResponses sends messages that have to wait for the disk, and returns the others.
func (t *tail) mutateResponses(list []*raftpb.Message) (rest []*raftpb.Message) {
	if !mutant.On(mutant.AcknowledgeUnsynced) && !mutant.On(mutant.VoteUnsynced) {
		return list
	}
	for _, m := range list {
		early := mutant.On(mutant.AcknowledgeUnsynced) && m.GetType() == raftpb.MsgAppResp ||
			mutant.On(mutant.VoteUnsynced) && m.GetType() == raftpb.MsgVoteResp
		if early && m.GetTo() != t.cfg.Self.NodeID {
			t.effects.Send = append(t.effects.Send, m)
		} else {
			rest = append(rest, m)
		}
	}
	return rest
}

func (g *ids) mutateHeld(l oracle.WorkerLease) oracle.WorkerLease {
	if mutant.On(mutant.ExtendUnasked) {
		l.End += g.cfg.LeaseMillis
	}
	return l
}

func mutateLevels(l LevelReport) LevelReport {
	l.Next = mutant.Pick(mutant.RaiseUnasked, l.Newest, l.Next)
	return l
}

// mutateClockQuorum returns how many clocks have to vouch for a time.
func mutateClockQuorum(quorum int) int { return mutant.Pick(mutant.VouchByOne, 1, quorum) }

// mutateFounders returns how many of the founders form a cluster.
func mutateFounders(n int) int { return mutant.Pick(mutant.FormByQuorum, n/2+1, n) }

func mutateFounder(m oracle.Member) oracle.Member {
	if mutant.On(mutant.FormUnregistered) {
		m.Incarnation, m.Level = 0, 0
	}
	return m
}

// mutateForgotten is what a voter adds to the time since it answered a leader, in nanoseconds, if it
// was started again: a second.
func (n *intervals) mutateForgotten() int64 {
	if n.cfg.Self.Boot > 1 && n.ticks < 100 {
		return int64(time.Second)
	}
	return 0
}

// mutateReelected reports whether a leader that led before does not wait.
func (l *leading) mutateReelected() bool {
	again := mutant.On(mutant.ReelectedSkipsWait) && l.mutation.led
	l.mutation.led = true
	return again
}

// mutateClockStart returns where the cluster clock of a term starts.
func (l *leading) mutateClockStart(from uint64) uint64 {
	switch {
	case mutant.On(mutant.ClockFromWall):
		return max(l.clocks.time(), 1)
	case mutant.On(mutant.ClockFromOwnEstimate):
		b, _ := l.interval.estimate.Bounds(interval.At(l.steadyNow()))
		return max(l.clocks.time(), b.Latest)
	}
	return from
}
