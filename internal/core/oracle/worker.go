package oracle

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
)

// Worker leases (I9). A lease gives one process the right to make ids of one worker
// whose milliseconds lie in [Start, End). These are milliseconds of ids, not of
// anybody's clock: the intervals granted for one worker never overlap, so ids never
// repeat, whatever clocks say. A wrong clock can only cost ids.
//
// Three rules keep the intervals of a worker apart:
//
//   - A grant starts at or after the end of the one before.
//   - The end of a lease only grows while it is held. Its holder goes by what it has
//     applied of the log, and so never believes in more than it was granted.
//   - Giving back moves the end down to the first millisecond that the holder has never
//     used, and names the very grant by its Start. It leaves the first millisecond used
//     up, so the Starts of a worker's grants strictly increase: one that arrives late or
//     twice finds another Start and changes nothing.

const (
	// workersMax bounds the worker records, and with them the snapshot: 36 bytes each.
	// An id space with more workers leases only the first ones.
	workersMax = 1 << 10
	// SlotsMax bounds how many workers one process may hold.
	SlotsMax = 64
	// LeaseMax is the longest lease that may be asked for, in milliseconds. A worker
	// whose holder died is of no use for that long.
	LeaseMax = uint64(time.Hour / time.Millisecond)
	// aheadMax is how far ahead of the ceiling, in milliseconds, a lease may begin. The
	// ceiling is what the cluster knows of the time. One request with a clock that is
	// years ahead would otherwise use a worker up for years.
	aheadMax = uint64(time.Hour / time.Millisecond)
	// millisMax is the last millisecond of a lease: as int64, beyond what any clock of
	// nanoseconds can say.
	millisMax = math.MaxInt64
)

// AnyWorker as LeaseRequest.Fixed leaves the choice of the worker to the cluster.
const AnyWorker = -1

// Space says how ids are made of time, worker and sequence. The same number means
// another id in another space, so a cluster has exactly one: that of its first lease.
type Space struct {
	TimeBits, DatacenterBits, WorkerBits, SequenceBits uint8
	// Epoch is the unix time, in milliseconds, from which the time bits count; not negative.
	Epoch int64
}

// Workers returns how many workers of the space can be leased.
func (s Space) Workers() int {
	return 1 << min(int(s.DatacenterBits)+int(s.WorkerBits), 10)
}

// IsValid reports whether the bits make up the 63 of an id. The zero Space is not
// valid and stands for none.
func (s Space) IsValid() bool {
	return s.Epoch >= 0 && s.TimeBits > 0 && int(s.TimeBits)+int(s.DatacenterBits)+int(s.WorkerBits)+int(s.SequenceBits) == 63
}

// lastMillis is the last unix millisecond that the time bits can hold.
func (s Space) lastMillis() uint64 { return uint64(s.Epoch) + 1<<s.TimeBits - 1 }

// WorkerLease is the record of one worker: its latest grant, and whose it is.
type WorkerLease struct {
	Worker uint16 // datacenter and worker bits together
	// Slot tells the leases of one process apart.
	Slot uint8
	// Fixed: the holder asked for this very worker. While its node is a member, it goes
	// to nobody who did not ask for it, even when it has ended.
	Fixed bool
	// Node is the member that holds it, 0 for a client of the cluster; Session is that of
	// the process. Both are 0 once it was given back.
	Node, Session uint64
	// Start and End bound the milliseconds (unix) of its ids: Start <= ms < End.
	Start, End uint64
}

// IsHeldBy reports whether l belongs to this process.
func (l WorkerLease) IsHeldBy(node, session uint64) bool {
	return l.Session != 0 && l.Node == node && l.Session == session
}

// holder names the holder for messages.
func (l WorkerLease) holder() string {
	if l.Node == 0 {
		return "a client"
	}
	return fmt.Sprintf("node %d", l.Node)
}

// ends says for messages when the lease ends.
func (l WorkerLease) ends() string {
	return time.UnixMilli(int64(l.End)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// LeaseRequest asks for workers, or for more time with those that the process holds.
type LeaseRequest struct {
	Space Space
	// Node is the member that asks, 0 for a client; Session must not be 0.
	Node, Session uint64
	// Slots is how many workers the process wants, 1 to SlotsMax.
	Slots uint8
	// Fixed is the worker that it insists on, with Slots 1, or AnyWorker.
	Fixed int
	// From and Until bound the ids that it wants to make, in unix milliseconds; they
	// are at most LeaseMax apart. A grant that has to start later than From is as long;
	// a lease that is held already ends at Until, or stays as it is if it ends later.
	From, Until uint64
}

// Release gives leases back. The process makes no id of them any more.
type Release struct {
	Node, Session uint64
	Used          []Used // at most SlotsMax
}

// Used says how far a lease was used.
type Used struct {
	Worker uint16
	// Start is that of the lease, and tells it apart from all others of the worker.
	Start uint64
	// Next is the first millisecond in which no id was made.
	Next uint64
}

// LeaseReason says why no lease was granted.
type LeaseReason uint8

// The reasons.
const (
	// LeaseMalformed: the request contradicts itself or its limits.
	LeaseMalformed LeaseReason = iota + 1
	// LeaseSpace: the cluster makes ids of another space.
	LeaseSpace
	// LeaseSession: the process is not, or not yet, the one on record for its node.
	LeaseSession
	// LeaseClock: the time asked for lies too far ahead of the cluster's.
	LeaseClock
	// LeaseHeld: another holds the worker asked for.
	LeaseHeld
	// LeaseNoneFree: all workers are held or reserved.
	LeaseNoneFree
	// LeaseTimeOver: the time bits of the space cannot hold the time asked for.
	LeaseTimeOver
)

// LeaseRefusal says why no lease was granted, and which one is in the way.
type LeaseRefusal struct {
	Reason LeaseReason
	// Space is the cluster's, with LeaseSpace and LeaseTimeOver.
	Space Space
	// Held is the lease that is in the way, with LeaseHeld.
	Held WorkerLease
	// Ahead is by how many milliseconds the time asked for is ahead, with LeaseClock.
	Ahead uint64
}

// Err returns the refusal in the vocabulary of the module.
func (r *LeaseRefusal) Err() *isotone.Error {
	switch r.Reason {
	case LeaseMalformed:
		return isotone.Errorf(isotone.CodeInvalidArgument, "a request for a worker that contradicts itself or its limits")
	case LeaseSpace:
		s := r.Space
		return isotone.Errorf(isotone.CodeInvalidArgument, "this cluster makes ids of %d/%d/%d/%d bits since %d ms; another layout would repeat them",
			s.TimeBits, s.DatacenterBits, s.WorkerBits, s.SequenceBits, s.Epoch)
	case LeaseSession:
		return isotone.Errorf(isotone.CodeOverloaded, "the cluster has not yet taken notice of this start of the node")
	case LeaseClock:
		return isotone.Errorf(isotone.CodeClock, "ids from %d ms ahead of the cluster's time are wanted, at most %d are allowed; is a clock wrong?", r.Ahead, aheadMax)
	case LeaseHeld:
		return isotone.Errorf(isotone.CodeOverloaded, "worker %d is held by %s until %s", r.Held.Worker, r.Held.holder(), r.Held.ends())
	case LeaseTimeOver:
		return isotone.Errorf(isotone.CodeClock, "the %d bits of time since %d ms are used up", r.Space.TimeBits, r.Space.Epoch)
	default:
		return isotone.Errorf(isotone.CodeOverloaded, "all worker ids are held")
	}
}

// Outcome is what came of one command.
type Outcome struct {
	// Leases are those that a KindLease granted or renewed, by slot.
	Leases []WorkerLease
	// Refusal is why it stopped before the last slot, or nil.
	Refusal *LeaseRefusal
}

// lease carries out a request for workers.
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

// refusal says why nothing of a request can be granted, or nil.
func (s *State) refusal(q LeaseRequest) *LeaseRefusal {
	if !q.IsSound() {
		return &LeaseRefusal{Reason: LeaseMalformed}
	}
	if s.Space != (Space{}) && s.Space != q.Space && !mutant.On(mutant.GrantForeignSpace) {
		return &LeaseRefusal{Reason: LeaseSpace, Space: s.Space}
	}
	// A late request of a member's former process would keep a worker from the present
	// one for nothing.
	if m, _ := s.Member(q.Node); q.Node != 0 && m.Session != q.Session {
		return &LeaseRefusal{Reason: LeaseSession}
	}
	return s.tooFar(q.Space, q.From)
}

// IsSound reports whether q keeps its limits and does not contradict itself.
func (q *LeaseRequest) IsSound() bool {
	return q.Space.IsValid() && q.Session != 0 && q.Slots >= 1 && q.Slots <= SlotsMax &&
		(q.Fixed == AnyWorker || q.Slots == 1 && q.Fixed >= 0 && q.Fixed < q.Space.Workers()) &&
		q.From < q.Until && q.Until-q.From <= LeaseMax && q.Until <= millisMax
}

// leaseSlot renews the lease in one slot of a process, or grants it one.
func (s *State) leaseSlot(q LeaseRequest, slot uint8) (WorkerLease, *LeaseRefusal) {
	for i := range s.Workers {
		l := &s.Workers[i]
		same := l.IsHeldBy(q.Node, q.Session) || mutant.On(mutant.InheritLease) && q.Node != 0 && l.Node == q.Node
		if same && l.Slot == slot && (q.Fixed == AnyWorker || q.Fixed == int(l.Worker)) {
			l.Session, l.Fixed = q.Session, q.Fixed != AnyWorker
			l.End = max(l.End, q.Until)
			return *l, nil
		}
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

// choose returns the worker to grant: the one that the request insists on, or the lowest
// that is free.
//
// Whether a lease has ended is a matter of clocks, the requester's and the cluster's; if
// they are wrong, someone loses a worker early, or waits. Where the next one begins is
// no matter of clocks.
func (s *State) choose(q LeaseRequest) (uint16, *LeaseRefusal) {
	now := min(q.From, s.millis())
	if q.Fixed != AnyWorker {
		worker := uint16(q.Fixed)
		if l, ok := s.Worker(worker); ok && l.Session != 0 && l.End > now {
			return 0, &LeaseRefusal{Reason: LeaseHeld, Held: l}
		}
		return worker, nil
	}
	next := uint16(0) // the lowest worker without a record, if no lower one is free
	for _, l := range s.Workers {
		if l.Worker != next {
			break
		}
		if l.End <= now && !s.isReserved(l, q.Node) {
			return next, nil
		}
		next++
	}
	if int(next) >= q.Space.Workers() {
		return 0, &LeaseRefusal{Reason: LeaseNoneFree}
	}
	return next, nil
}

// millis is the ceiling in milliseconds: what the cluster knows of the time.
func (s *State) millis() uint64 { return s.Ceiling / uint64(time.Millisecond) }

// tooFar refuses a beginning too far ahead of the cluster's time, or beyond the time bits.
func (s *State) tooFar(space Space, ms uint64) *LeaseRefusal {
	switch now := s.millis(); {
	case ms > space.lastMillis():
		return &LeaseRefusal{Reason: LeaseTimeOver, Space: space}
	case ms > now+aheadMax:
		return &LeaseRefusal{Reason: LeaseClock, Ahead: ms - now}
	}
	return nil
}

// isReserved reports whether a worker waits for its node to come back.
func (s *State) isReserved(l WorkerLease, asks uint64) bool {
	if !l.Fixed || l.Node == 0 || l.Node == asks {
		return false
	}
	_, member := s.find(l.Node)
	return member
}

// release takes leases back.
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
		end := min(l.End, max(l.Start+1, u.Next))
		*l = WorkerLease{Worker: l.Worker, Start: l.Start, End: mutateReleased(l.Start, end)}
	}
}

// Worker returns the record of a worker.
func (s *State) Worker(worker uint16) (WorkerLease, bool) {
	i, ok := s.findWorker(worker)
	if !ok {
		return WorkerLease{}, false
	}
	return s.Workers[i], true
}

func (s *State) findWorker(worker uint16) (int, bool) {
	return slices.BinarySearchFunc(s.Workers, worker, func(l WorkerLease, worker uint16) int {
		return int(l.Worker) - int(worker)
	})
}
