package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// tick lets one tick pass for Raft, the epoch, leases and waiting requests.
func (r *Replica) tick() {
	r.ticks++
	r.tickElection()
	r.checkLeader()
	r.replayVotes()
	r.queue.expire()
	r.leading.clients.expire()
	r.leading.timelines.expire()
	r.owner.tick()
	r.leading.timelines.granted = false // an owner may be gone
	r.ids.maintain()
	r.clocks.send()
	r.interval.ask()
	if r.ticks%announceTicks == 0 && r.hasFormingPeers() {
		r.effects.Announce = true
	}
	if r.role != raft.StateLeader {
		return
	}
	if r.ticks%electionTicks == 0 {
		r.resendSnapshots()
	}
	if len(r.queue.rounds) > 0 {
		r.askRound(nil)
	}
	r.maintainLease()
	r.leading.sessions.tick()
	r.leading.timelines.endLeases()
	r.maintainClock()
	if r.ticks%promoteTicks == 0 {
		r.promoteLearners()
	}
	r.giveWay()
	r.leading.sinceEpoch++
	if r.leading.sinceEpoch >= r.cfg.EpochTicks {
		r.leading.sinceEpoch = 0
		r.leading.alloc.Advance(r.leading.axisNow())
		r.membership.register() // before reserve, which records what they have on disk (I6)
		r.reserve()
	}
	if r.leading.needsTime64() {
		r.reserveBetween()
	}
}

// reserveBetween proposes a reservation before the next epoch begins. As that records what members have on disk, their processes are to be on record before: one whose hello is
// older than what it has confirmed since would be taken for an older copy (I6).
func (r *Replica) reserveBetween() {
	r.membership.register()
	r.leading.proposeReservation()
}

// reserve proposes a higher ceiling, once in an epoch. At most one reservation is in flight: within its term a
// leader's entries may be late, but not lost.
func (r *Replica) reserve() {
	l := &r.leading
	switch {
	case l.reserving:
		if r.ticks-l.reservingSince >= uint64(r.cfg.EpochTicks) {
			r.missedReservation()
		}
	case r.state.Ceiling == 0 && !r.clocks.quorum.known && r.cfg.ClockJumpMax > 0:
		// A new cluster has no time yet at which it could hold.
	case !r.leading.proposeReservation():
		r.missedReservation()
	}
}

// proposeReservation reports whether it could propose a higher ceiling. None is in flight.
func (l *leading) proposeReservation() bool {
	if !l.tail.propose(oracle.Command{Kind: oracle.KindReserve, Target: l.target(), Shared: l.timelines.shared(), Durable: l.durableIndexes(), Digest: l.digests.latest()}) {
		return false
	}
	l.reserving, l.reservingSince, l.changeSeen = true, l.ticks, l.changedAt
	return true
}

// resendSnapshots makes Raft send unacknowledged snapshots again. By itself it waits for
// ever, though a message can get lost.
func (r *Replica) resendSnapshots() {
	var waiting []uint64
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.State == tracker.StateSnapshot {
			waiting = append(waiting, id)
		}
	})
	for _, id := range waiting {
		r.raw.ReportSnapshot(id, raft.SnapshotFailure)
	}
}

// durableIndexes returns the committed index that each member is known to have on disk.
// Uncommitted entries may still be overwritten.
func (f *facts) durableIndexes() []oracle.Durable {
	commit := f.raw.BasicStatus().HardState.GetCommit()
	list := make([]oracle.Durable, 0, len(f.state.Members))
	f.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		match := pr.Match
		if id == f.cfg.Self.NodeID {
			match = f.durable.index // Raft counts a leader's whole log, durable or not
		}
		if i := min(match, commit); i > 0 {
			list = append(list, oracle.Durable{ID: id, Index: i})
		}
	})
	return list
}

// missedReservation counts a late reservation and after several transfers the leadership.
func (r *Replica) missedReservation() {
	r.counters.ReservationsFailed++
	r.leading.missed++
	if r.leading.missed >= r.cfg.ReservationsMissedMax {
		r.leading.missed = 0
		r.transfer(0)
	}
}

// reservationApplied handles a reservation proposed in term; floor is the ceiling before it.
// Only one of this leader's own term opens the allocator (I2).
func (r *Replica) reservationApplied(term, floor uint64) {
	if r.role != raft.StateLeader || term != r.term && !mutant.On(mutant.OpenOnOlderTerm) {
		return
	}
	floor = max(r.mutateFloor(floor), 1) // the zero timestamp stands for none
	l := &r.leading
	l.reserving, l.missed, l.changeKnown = false, 0, l.changeSeen
	r.counters.Reservations++
	switch {
	case l.alloc.IsOpen():
		l.alloc.Extend(r.state.Ceiling)
		if l.wants64 {
			l.wants64 = false
			r.queue.release()
		}
	case floor < r.state.Ceiling:
		if !l.clock.reserved {
			r.leading.scheduleOpening(floor)
		}
		r.tryOpen()
	default:
		r.timeExhausted()
	}
}

// timeExhausted fails all requests when the ceiling is the last nanosecond: nothing can be
// issued any more, in this term or a later one.
func (r *Replica) timeExhausted() {
	if !r.leading.over {
		r.leading.over, r.effects.Changed = true, true
		r.queue.fail(r.queue.take(), errTimeOver)
	}
}

// errTimeOver takes a quorum of clocks that are wrong by a century, or the year 2262.
var errTimeOver = isotone.Errorf(isotone.CodeClock, "the ceiling has reached the year 2262, the last that a timestamp can have: no more can be issued")

// transfer transfers the leadership to voter to if it is active, or, with 0, to the active
// voter with the longest log, if there is one (Ongaro's dissertation, §3.10), rather one that stays than one that leaves. While limits of the
// cluster clock run, it waits for them.
func (r *Replica) transfer(to uint64) {
	if r.role != raft.StateLeader || r.successor(to) == 0 || r.release(to) {
		return
	}
	r.transferNow(to)
}

// transferNow transfers the leadership without regard to the cluster clock.
func (r *Replica) transferNow(to uint64) {
	if best := r.successor(to); best != 0 {
		// Before the message can leave (I5).
		r.leading.lease.forgone = !mutant.On(mutant.LeaseSurvivesTransfer)
		r.raw.TransferLeader(best)
	}
}

// successor returns the voter to which the leadership is transferred, 0 if there is none.
func (r *Replica) successor(to uint64) (best uint64) {
	var match uint64
	leaves := true
	// (pr.RecentActive is not enough: it is unset for everyone once in an election timeout, and
	// reservations, whose lateness makes a leader transfer its leadership, come at fixed times.)
	r.raw.WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		canLead := id != r.cfg.Self.NodeID && kind != raft.ProgressTypeLearner && slices.Contains(r.conf.GetVoters(), id) && (pr.RecentActive || r.isActive(id))
		if !canLead && !mutant.On(mutant.UnrefusedTransfer) || to != 0 && id != to {
			return
		}
		p := r.peers[id]
		switch isLeaving := p != nil && p.isLeaving(); {
		case best == 0, leaves && !isLeaving, leaves == isLeaving && pr.Match > match:
			best, match, leaves = id, pr.Match, isLeaving
		}
	})
	return best
}
