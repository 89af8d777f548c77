package oracle

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Worker leases (I9; docs/decisions/0006-worker-leases.md). A lease is the right of one
// process to make the ids of one worker whose milliseconds lie in [Start, End). These are
// milliseconds of ids, not of a clock. The leases of a worker never overlap, so ids never
// repeat whatever clocks say; a wrong clock can only cost ids. Three rules see to it:
//
//   - A grant starts at or after the end of the one before.
//   - The end of a lease only grows while it is held. Its holder relies on its applied log, and
//     so never assumes a later end than was granted.
//   - A release lowers the end to the first millisecond that the holder never used, but keeps
//     it above Start, so the Starts of a worker's grants strictly increase. A release names
//     its grant by Start; one that arrives late or twice finds another and changes nothing.
//
// An operator may revoke a grant (worker_revoke.go): it ends at the End that it has.

const (
	// workersMax bounds the worker records, of 36 bytes each in a snapshot. Of a layout with
	// more workers only the first ones are leased.
	workersMax = 1 << 10
	// SlotsMax is the largest number of workers that one process may hold.
	SlotsMax = 64
	// LeaseMax is the longest lease that may be requested, in milliseconds. A worker whose
	// holder died is unusable for up to that long.
	LeaseMax = uint64(time.Hour / time.Millisecond)
	// aheadMax is how far ahead of the ceiling, in milliseconds, a lease may begin. Otherwise
	// one clock that is years ahead would use up a worker for years.
	aheadMax = uint64(time.Hour / time.Millisecond)
	// millisMax is the largest End: an int64.
	millisMax = math.MaxInt64
)

// AnyWorker as LeaseRequest.Fixed leaves the choice of the worker to the cluster.
const AnyWorker = -1

// Space is the layout of ids: the bits of time, datacenter, worker and sequence. A number
// means another id in another layout, so a cluster has exactly one: that of its first lease.
type Space struct {
	TimeBits, DatacenterBits, WorkerBits, SequenceBits uint8
	// Epoch is the unix millisecond from which the time bits count; not negative.
	Epoch int64
}

// Workers returns how many workers can be leased, at most 1024.
func (s Space) Workers() int {
	return 1 << min(int(s.DatacenterBits)+int(s.WorkerBits), 10)
}

// MembersShare is the number of workers, from 0 on, that only members are
// granted: a quarter, and none of fewer than 4. After a restore they are free again
// sooner than those that clients may hold; see [Restored].
func (s Space) MembersShare() int {
	if n := s.Workers(); n >= 4 {
		return n / 4
	}
	return 0
}

// IsValid reports whether the bits add up to the 63 of an id. The zero Space, which stands for
// none, is not valid.
func (s Space) IsValid() bool {
	return s.Epoch >= 0 && s.TimeBits > 0 && int(s.TimeBits)+int(s.DatacenterBits)+int(s.WorkerBits)+int(s.SequenceBits) == 63
}

// lastMillis is the last unix millisecond that fits the time bits.
func (s Space) lastMillis() uint64 { return uint64(s.Epoch) + 1<<s.TimeBits - 1 }

// WorkerLease is the record of one worker: its latest grant and the holder.
type WorkerLease struct {
	Worker uint16 // datacenter and worker bits together
	// Slot numbers the leases of one process, below SlotsMax.
	Slot uint8
	// Fixed is set if the holder requested this worker. While its node is a member, only
	// another request for this worker gets it, even after its End.
	Fixed bool
	// Node is the member that holds it, 0 for a client of the cluster, and Session that of the
	// process. Both are 0 after a release.
	Node, Session uint64
	// Start and End bound the unix milliseconds of its ids: Start <= ms < End.
	Start, End uint64
	// Revoked is set once an operator has revoked the grant: it is not renewed any more.
	Revoked bool
}

// IsHeldBy reports whether l belongs to this process; Node 0 is a client.
func (l WorkerLease) IsHeldBy(node, session uint64) bool {
	return l.Session != 0 && l.Node == node && l.Session == session
}

// holder names the holder for messages.
func (l WorkerLease) holder() string {
	if l.Node == 0 {
		return "a client"
	}
	return fmt.Sprintf("node %d", NodeOf(l.Node))
}

// Instant formats a unix millisecond for messages, RFC 3339 in UTC.
func Instant(ms uint64) string {
	return time.UnixMilli(int64(ms)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// LeaseRequest requests worker leases, or renews those that the process holds.
type LeaseRequest struct {
	Space Space
	// Node is the requesting member, 0 for a client; Session must not be 0.
	Node, Session uint64
	// Slots is the number of workers, 1 to SlotsMax.
	Slots uint8
	// Fixed is the requested worker, with Slots 1, or AnyWorker.
	Fixed int
	// From and Until bound the requested milliseconds (unix), From <= ms < Until, at most
	// LeaseMax apart. A grant that has to start later than From is as long. A lease that the
	// process holds is renewed to Until, unless it ends later.
	From, Until uint64
}

// Release ends leases early. The process makes no more ids of them.
type Release struct {
	Node, Session uint64
	Used          []Used // at most SlotsMax
}

// Used says how far a lease was used.
type Used struct {
	Worker uint16
	// Start is that of the lease; it identifies the lease among those of the worker.
	Start uint64
	// Next is the first unix millisecond in which no id was made.
	Next uint64
}

// LeaseReason says why no lease was granted.
type LeaseReason uint8

const (
	// LeaseMalformed: the request contradicts itself or its limits.
	LeaseMalformed LeaseReason = iota + 1
	// LeaseSpace: the cluster has another layout of ids.
	LeaseSpace
	// LeaseSession: the process is not the one on record for its node.
	LeaseSession
	// LeaseClock: the lease would begin too far ahead of the cluster's time.
	LeaseClock
	// LeaseHeld: another process holds the requested worker.
	LeaseHeld
	// LeaseNoneFree: all workers are held or reserved.
	LeaseNoneFree
	// LeaseTimeOver: the lease would begin after the last millisecond of the layout.
	LeaseTimeOver
	// LeaseShare: a client requested a worker in the members' share.
	LeaseShare
	// LeaseFenced: the cluster was restored, and a holder of the former one may still use the
	// worker.
	LeaseFenced
	// LeaseRevoked: the lease of the process was revoked and has not ended.
	LeaseRevoked
	// LeaseNotHeld: nobody holds the lease that was to be revoked.
	LeaseNotHeld
)

// LeaseRefusal says why no lease was granted.
type LeaseRefusal struct {
	Reason LeaseReason
	// Space is the cluster's, with LeaseSpace; the requested one, with LeaseTimeOver and
	// LeaseShare.
	Space Space
	// Held is the other process's lease, with LeaseHeld; its own, with LeaseRevoked. With
	// LeaseNotHeld only the worker and, if one was named, the Start count.
	Held WorkerLease
	// Ahead is how far ahead of the ceiling the lease would begin, in milliseconds, with
	// LeaseClock.
	Ahead uint64
	// Until is the unix millisecond at which the first worker becomes free, with LeaseFenced.
	Until uint64
}

// Err returns the refusal as an error of code invalid_argument, overloaded, no_worker,
// not_found or clock.
func (r *LeaseRefusal) Err() *isotone.Error {
	switch r.Reason {
	case LeaseMalformed:
		return isotone.Errorf(isotone.CodeInvalidArgument, "a request for a worker that contradicts itself or its limits")
	case LeaseSpace:
		s := r.Space
		return isotone.Errorf(isotone.CodeInvalidArgument, "this cluster makes ids of %d/%d/%d/%d bits since %d ms; another layout would repeat them",
			s.TimeBits, s.DatacenterBits, s.WorkerBits, s.SequenceBits, s.Epoch)
	case LeaseSession:
		return isotone.Errorf(isotone.CodeOverloaded, "the cluster has not yet registered this start of the node")
	case LeaseClock:
		return isotone.Errorf(isotone.CodeClock, "the ids would begin %d ms ahead of the cluster's time, at most %d are allowed; is a clock wrong?", r.Ahead, aheadMax)
	case LeaseHeld:
		return isotone.Errorf(isotone.CodeNoWorker, "worker %d is held by %s until %s", r.Held.Worker, r.Held.holder(), Instant(r.Held.End))
	case LeaseTimeOver:
		return isotone.Errorf(isotone.CodeClock, "the %d bits of time since %d ms are used up", r.Space.TimeBits, r.Space.Epoch)
	case LeaseShare:
		return isotone.Errorf(isotone.CodeInvalidArgument, "clients are granted the workers from %d to %d; those below are for nodes", r.Space.MembersShare(), r.Space.Workers()-1)
	case LeaseFenced:
		return isotone.Errorf(isotone.CodeNoWorker, "this cluster was restored from a backup, and its workers may still be in use by holders of the lost one until %s", Instant(r.Until))
	case LeaseRevoked:
		return isotone.Errorf(isotone.CodeNoWorker, "worker %d was revoked by an operator: this lease of it ends at %s and is not renewed; another session may lease another worker",
			r.Held.Worker, Instant(r.Held.End))
	case LeaseNotHeld:
		if r.Held.Start > 0 {
			return isotone.Errorf(isotone.CodeNotFound, "nobody holds worker %d since %s; list the workers again", r.Held.Worker, Instant(r.Held.Start))
		}
		return isotone.Errorf(isotone.CodeNotFound, "nobody holds worker %d", r.Held.Worker)
	default:
		return isotone.Errorf(isotone.CodeNoWorker, "all worker ids are held")
	}
}

// Outcome is the outcome of a KindLease, KindRevoke, KindTimeline or KindHold.
type Outcome struct {
	// Leases are those granted or renewed, by slot, or the one that is revoked.
	Leases []WorkerLease
	// Refusal says why slots are missing, or why nothing is revoked; else nil.
	Refusal *LeaseRefusal
	// Timelines are what [timeline.Table.Apply] returned.
	Timelines []timeline.Refusal
	// Freed are the holds of locks that have ended.
	Freed []Hold
}

// lease applies a request for workers.
func (s *State) lease(q LeaseRequest) Outcome {
	if r := s.refusal(q); r != nil {
		return Outcome{Refusal: r}
	}
	var o Outcome
	for slot := range q.Slots {
		l, refusal := s.leaseSlot(q, slot)
		if refusal != nil {
			o.Refusal = refusal
			break
		}
		s.Space = q.Space
		o.Leases = append(o.Leases, l)
	}
	return o
}

// refusal returns why nothing of a request can be granted, or nil.
func (s *State) refusal(q LeaseRequest) *LeaseRefusal {
	if !q.IsSound() {
		return &LeaseRefusal{Reason: LeaseMalformed}
	}
	if s.Space != (Space{}) && s.Space != q.Space && !mutant.On(mutant.GrantForeignSpace) {
		return &LeaseRefusal{Reason: LeaseSpace, Space: s.Space}
	}
	// A late request of a former process would take a worker that nobody uses.
	if m, _ := s.Member(q.Node); q.Node != 0 && m.Session != q.Session {
		return &LeaseRefusal{Reason: LeaseSession}
	}
	return s.tooFar(q.Space, q.From)
}

// IsSound reports whether q keeps the limits stated with its fields.
func (q *LeaseRequest) IsSound() bool {
	return q.Space.IsValid() && q.Session != 0 && q.Slots >= 1 && q.Slots <= SlotsMax &&
		(q.Fixed == AnyWorker || q.Slots == 1 && q.Fixed >= 0 && q.Fixed < q.Space.Workers()) &&
		q.From < q.Until && q.Until-q.From <= LeaseMax && q.Until <= millisMax
}

// leaseSlot renews the lease in one slot of a process, or grants it one.
func (s *State) leaseSlot(q LeaseRequest, slot uint8) (WorkerLease, *LeaseRefusal) {
	var revoked WorkerLease
	for i := range s.Workers {
		l := &s.Workers[i]
		same := l.IsHeldBy(q.Node, q.Session) || mutant.On(mutant.InheritLease) && q.Node != 0 && l.Node == q.Node
		if same && l.Slot == slot && (q.Fixed == AnyWorker || q.Fixed == int(l.Worker)) && int(l.Worker) >= s.firstFor(q) {
			if l.Revoked && !mutant.On(mutant.RenewRevoked) {
				if l.End > revoked.End {
					revoked = *l
				}
				continue
			}
			l.Session, l.Fixed = q.Session, q.Fixed != AnyWorker
			l.End = max(l.End, q.Until)
			return *l, nil
		}
	}
	if r := s.refuseRevoked(q, revoked); r != nil {
		return WorkerLease{}, r
	}
	worker, refusal := s.choose(q)
	if refusal != nil {
		return WorkerLease{}, refusal
	}
	i, known := s.findWorker(worker)
	start := q.From
	if known && !mutant.On(mutant.GrantFromRequest) {
		start = max(start, s.Workers[i].End)
	}
	start = max(start, s.fenceOf(q.Space, worker))
	if refusal := s.tooFar(q.Space, start); refusal != nil {
		return WorkerLease{}, refusal
	}
	l := WorkerLease{
		Worker: worker, Slot: slot, Fixed: q.Fixed != AnyWorker, Node: q.Node, Session: q.Session,
		Start: start, End: start + (q.Until - q.From),
	}
	if known {
		s.Workers[i] = l
	} else {
		s.Workers = slices.Insert(s.Workers, i, l)
	}
	return l, nil
}

// firstFor returns the first worker that a requester may be granted or may renew.
func (s *State) firstFor(q LeaseRequest) int {
	if q.Node != 0 {
		return 0
	}
	return q.Space.MembersShare()
}

// choose returns the worker to grant: the fixed one, or the lowest that is free.
//
// A lease has ended when both the requester's clock and the ceiling are past its End. If they
// are wrong, a holder loses its worker early or a requester waits; the next lease begins at
// End all the same.
func (s *State) choose(q LeaseRequest) (uint16, *LeaseRefusal) {
	now := s.elapsed(q.From)
	first := s.firstFor(q)
	if q.Fixed != AnyWorker {
		worker := uint16(q.Fixed)
		l, known := s.Worker(worker)
		switch fence := s.fenceOf(q.Space, worker); {
		case q.Fixed < first:
			return 0, &LeaseRefusal{Reason: LeaseShare, Space: q.Space}
		case fence > now:
			return 0, &LeaseRefusal{Reason: LeaseFenced, Until: fence}
		case known && l.Session != 0 && l.End > now:
			return 0, &LeaseRefusal{Reason: LeaseHeld, Held: l}
		}
		return worker, nil
	}
	refusal := &LeaseRefusal{Reason: LeaseNoneFree}
	i, _ := s.findWorker(uint16(first)) // the next record
	for worker := first; worker < q.Space.Workers(); worker++ {
		free := true
		if i < len(s.Workers) && int(s.Workers[i].Worker) == worker {
			free = s.Workers[i].End <= now && !s.isReserved(s.Workers[i], q.Node)
			i++
		}
		fence := s.fenceOf(q.Space, uint16(worker))
		switch {
		case free && fence <= now:
			return uint16(worker), nil
		case free && (refusal.Until == 0 || fence < refusal.Until):
			refusal = &LeaseRefusal{Reason: LeaseFenced, Until: fence}
		}
	}
	return 0, refusal
}

// elapsed returns the unix millisecond up to which leases have ended, for somebody whose clock
// shows the given one.
func (s *State) elapsed(clock uint64) uint64 { return min(clock, s.millis()) }

// millis is the cluster's time in milliseconds: the ceiling.
func (s *State) millis() uint64 { return s.Ceiling / uint64(time.Millisecond) }

// tooFar refuses a beginning too far ahead of the cluster's time or beyond the layout.
func (s *State) tooFar(space Space, ms uint64) *LeaseRefusal {
	switch now := s.millis(); {
	case ms > space.lastMillis():
		return &LeaseRefusal{Reason: LeaseTimeOver, Space: space}
	case ms > now+aheadMax:
		return &LeaseRefusal{Reason: LeaseClock, Ahead: ms - now}
	}
	return nil
}

// isReserved reports whether a fixed worker is kept for another member.
func (s *State) isReserved(l WorkerLease, requester uint64) bool {
	if !l.Fixed || l.Revoked || l.Node == 0 || l.Node == requester {
		return false
	}
	_, member := s.find(l.Node)
	return member
}

// release applies a release.
func (s *State) release(r Release) {
	for _, u := range r.Used {
		i, ok := s.findWorker(u.Worker)
		if !ok {
			continue
		}
		l := &s.Workers[i]
		if !l.IsHeldBy(r.Node, r.Session) || l.Start != u.Start && !mutant.On(mutant.ReleaseLate) {
			continue
		}
		next := mutant.Pick(mutant.ReleaseUsed, 0, u.Next)
		*l = WorkerLease{Worker: l.Worker, Start: l.Start, End: min(l.End, max(l.Start+1, next))}
	}
}

// Worker returns the record of a worker, if it was ever leased.
func (s *State) Worker(worker uint16) (WorkerLease, bool) {
	i, ok := s.findWorker(worker)
	if !ok {
		return WorkerLease{}, false
	}
	return s.Workers[i], true
}

// WorkersLeased returns how many workers a client would not be granted at the given unix
// millisecond, because they are leased or reserved, and how many there are; 0 and 0 before the
// first lease, which sets the layout.
func (s *State) WorkersLeased(now uint64) (leased, limit int) {
	if !s.Space.IsValid() {
		return 0, 0
	}
	now = s.elapsed(now)
	for _, l := range s.Workers {
		if l.End > now || s.isReserved(l, 0) {
			leased++
		}
	}
	return leased, s.Space.Workers()
}

func (s *State) findWorker(worker uint16) (int, bool) {
	return slices.BinarySearchFunc(s.Workers, worker, func(l WorkerLease, worker uint16) int {
		return int(l.Worker) - int(worker)
	})
}
