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

// mutateStep is called before a step takes in its clocks.
func (r *Replica) mutateStep() {
	if mutant.On(mutant.LeaseOnOldClock) {
		r.mutation.mono = r.mono
	}
	if mutant.On(mutant.ReleaseInNextStep) && len(r.mutation.releases) > 0 {
		r.releaseLeases(r.mutation.releases)
		r.mutation.releases = nil
	}
}

// mutateRelease reports whether the leases of stopped generators are released later.
func (r *Replica) mutateRelease(used []oracle.Used) bool {
	if !mutant.On(mutant.ReleaseInNextStep) {
		return false
	}
	r.mutation.releases = append(r.mutation.releases, used...)
	r.updateGenerators()
	return true
}

// leaseClock returns the clock by which a lease is checked.
func (r *Replica) leaseClock() time.Duration {
	return mutant.Pick(mutant.LeaseOnOldClock, r.mutation.mono, r.mono)
}

func (r *Replica) mutateLeaseStart(started time.Duration) time.Duration {
	return mutant.Pick(mutant.LeaseFromAnswer, r.mono, started)
}

func (r *Replica) mutateLeaseLength(ticks uint64, d time.Duration) time.Duration {
	return mutant.Pick(mutant.LeaseWithoutSlack, time.Duration(ticks)*r.cfg.TickInterval, d)
}

// mutatePromise returns what a voter has promised, in ticks.
func (r *Replica) mutatePromise(ticks uint64) uint64 {
	return mutant.Pick(mutant.CountUnpromised, max(ticks, promiseTicks), ticks)
}

// mutateLengthen returns the place in the log from which an append goes on.
func (r *Replica) mutateLengthen(next uint64) uint64 {
	return mutant.Pick(mutant.LengthenWrongly, 0, next)
}

// mutateRound is called when a round has its number.
func (r *Replica) mutateRound() {
	if mutant.On(mutant.ReuseRoundNumber) {
		r.queue.lastRound = 1
	}
	if mutant.On(mutant.LeaseUnconfirmed) {
		r.leading.lease.until = max(r.leading.lease.until, r.mono+r.leaseLength(promiseTicks))
	}
}

// mutateEnqueue reports whether it took req.
func (r *Replica) mutateEnqueue(req Request) bool {
	if mutant.On(mutant.NoRound) && r.leading.alloc.IsOpen() {
		_, hold, err := r.issue(&pending{Request: req, clock: r.arrivalClock(req)})
		if !hold {
			r.answer(req.Token, err)
		}
		return !hold
	}
	if n := len(r.queue.rounds); n > 0 && mutant.On(mutant.JoinRoundInFlight) {
		r.queue.size += len(req.Counts)
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
		r.leading.alloc.Open(r.state.Ceiling, r.target())
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
	return s
}

// mutateResponses sends messages that have to wait for the disk, and returns the others.
func (r *Replica) mutateResponses(list []*raftpb.Message) (rest []*raftpb.Message) {
	if !mutant.On(mutant.AcknowledgeUnsynced) && !mutant.On(mutant.VoteUnsynced) {
		return list
	}
	for _, m := range list {
		early := mutant.On(mutant.AcknowledgeUnsynced) && m.GetType() == raftpb.MsgAppResp ||
			mutant.On(mutant.VoteUnsynced) && m.GetType() == raftpb.MsgVoteResp
		if early && m.GetTo() != r.cfg.Self.NodeID {
			r.effects.Send = append(r.effects.Send, m)
		} else {
			rest = append(rest, m)
		}
	}
	return rest
}

func (r *Replica) mutateHeld(l oracle.WorkerLease) oracle.WorkerLease {
	if mutant.On(mutant.ExtendUnasked) {
		l.End += r.cfg.LeaseMillis
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
func (r *Replica) mutateForgotten() int64 {
	if r.cfg.Self.Boot > 1 && r.ticks < 100 {
		return int64(time.Second)
	}
	return 0
}

// mutateReelected reports whether a leader that led before does not wait.
func (r *Replica) mutateReelected() bool {
	again := mutant.On(mutant.ReelectedSkipsWait) && r.mutation.led
	r.mutation.led = true
	return again
}

// mutateClockStart returns where the cluster clock of a term starts.
func (r *Replica) mutateClockStart(from uint64) uint64 {
	switch {
	case mutant.On(mutant.ClockFromWall):
		return max(r.clockNow(), 1)
	case mutant.On(mutant.ClockFromOwnEstimate):
		b, _ := r.interval.estimate.Bounds(interval.At(r.steadyNow()))
		return max(r.clockNow(), b.Latest)
	}
	return from
}
