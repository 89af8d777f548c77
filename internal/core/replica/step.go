package replica

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Input is what one turn of the loop collected. Everything but the clocks is optional.
type Input struct {
	// Now is the wall clock in unix nanoseconds. It may stall, jump and go back.
	Now uint64
	// Mono is a steady clock that runs through suspend (CLOCK_BOOTTIME) and never goes back,
	// read after the requests arrived (I5). Its origin does not matter.
	Mono time.Duration
	// Steady is the clock that Config.Interval rests on, in nanoseconds: it never jumps, runs through
	// suspend, and has the right rate within interval.RateError; CLOCK_MONOTONIC_RAW plus the time in
	// suspend. Read after everything else in this input arrived. Its origin does not matter. 0 without
	// Config.Interval.
	Steady int64
	// ClockAsks are questions of peers for the cluster clock, ClockAnswers their answers.
	ClockAsks    []ClockAsk
	ClockAnswers []ClockAnswer
	// Persisted is the write of an earlier Effects that is durable now, or nil.
	Persisted *Write
	// Messages come from admitted peers, in order for each peer.
	Messages []*raftpb.Message
	// Hellos are those of peers admitted since the last step.
	Hellos []Hello
	// Gone are the IDs of peers whose connection has ended since the last step, and is not
	// followed by one in Hellos.
	Gone []uint64
	// Refused are the IDs of peers whose address refuses connections: nothing listens there any
	// more, or something in between says so.
	Refused []uint64
	// Ticks is the number of Raft ticks that passed, normally 0 or 1.
	Ticks int
	// Requests arrived since the last step.
	Requests []Request
	// Transfer asks the leader to transfer its leadership to another voter: TransferTo, or, if
	// that is 0, any that is active.
	Transfer   bool
	TransferTo uint64
	// Change proposes a membership change, or is refused in Effects.ChangeRefused. A proposed
	// change may still be lost with the leadership.
	Change *MemberChange
	// RaiseLevel proposes to raise the feature level of the cluster to the newest that all
	// members know, or is refused in Effects.LevelRefused.
	RaiseLevel bool
	// RaiseFloor, if not nil, proposes to raise the floor, or is refused in
	// Effects.FloorRefused.
	RaiseFloor *FloorRequest
	// Reserve has the leader propose a reservation at once, unless one is under way.
	Reserve bool
	// Clocks are what peers told of their clocks since the last step.
	Clocks []PeerClock
	// Behind has a bit for each slot whose generator refused to make ids because the clock
	// went back. Unless the worker is fixed, its lease is released and another requested.
	Behind uint64
	// StopIDs releases all worker leases of this node. This process makes no more ids.
	StopIDs bool
	// LeaseRequests are clients' requests for worker leases.
	LeaseRequests []LeaseRequest
	// StopOwning: this process is to own no timelines from now on. The leader gives its groups to other members. While this process
	// leads, it keeps its groups, and takes none that another member can own.
	StopOwning bool
	// OwnerAsks are questions of owners of timelines, OwnerAnswers the answers to those of this node.
	OwnerAsks    []OwnerAsk
	OwnerAnswers []OwnerAnswer
	// TimelineRequests are requests to change the timelines.
	TimelineRequests []TimelineRequest
	// SessionsGone are connections of clients that have ended, after all Requests that came over them.
	SessionsGone []session.Conn
}

// Request is a batch of timestamp requests that arrived together. The replica owns the
// slices until it returns the Token in an [Answer].
type Request struct {
	// Token identifies the request to the caller.
	Token uint64
	Mode  isotone.ReadMode
	// Floor is the largest timestamp that the client knows; all answers are larger (I13). The
	// zero timestamp stands for none.
	Floor isotone.Timestamp
	// Raise: the client has the right to move time ahead of the clock by its floor (I17).
	Raise bool
	// U64 asks for timestamps of the 64-bit form.
	U64 bool
	// Timeline names the timeline, "" the default order.
	Timeline string
	// Op, if not timeline.OpIssue, asks the oracle of reads and writes of the timeline. There is one count then, of 1, Floor and U64 do
	// not count, and the answer is the time of First, in unix milliseconds. At is the time of timeline.OpApply, in the same unit.
	Op timeline.Op
	At uint64
	// Counts are the numbers of timestamps requested, each 1 to isotone.RangeCountMax.
	Counts []uint64
	// Session, if not nil, is the part of the request that is about the session of the connection. There is at most one count then.
	Session *session.Request
	// Ranges receives the answers. It is as long as Counts. With U64, First is the place of the first
	// timestamp in the order of all, isotone.Timestamp64.Timestamp, and Count the number of consecutive
	// 64-bit timestamps.
	Ranges []isotone.Range

	moved bool // see Answer
}

// Answer completes the request with this token.
type Answer struct {
	Token uint64
	// Moved: the request's floor has moved time ahead of the clock, or was proposed to.
	Moved bool
	// Err is nil if the request's Ranges are set, else of code not_leader, no_leader,
	// overloaded, deadline_exceeded, clock or regressed; not_found if there is no such timeline, or it is sealed; invalid_argument if what is to be
	// applied is beyond its ceiling.
	Err *isotone.Error
}

// Effects is what the caller has to do, in any order. It is valid until the next call of
// Step.
type Effects struct {
	// Send holds messages to other members. Losing one is harmless.
	Send []*raftpb.Message
	// Write, if not nil, has to become durable and then be returned in Input.Persisted. No
	// other follows before that.
	Write *Write
	// Answers complete requests of this or earlier steps.
	Answers []Answer
	// LeaseAnswers complete LeaseRequests of this or earlier steps.
	LeaseAnswers []LeaseAnswer
	// TimelineAnswers complete TimelineRequests of this or earlier steps.
	TimelineAnswers []TimelineAnswer
	// Sessions are messages to clients, to be sent in order, after Answers.
	Sessions []session.Message
	// Grants are the locks that were granted in this step.
	Grants []Grant
	// ChangeRefused says why Input.Change was not proposed; nil if it was.
	ChangeRefused *isotone.Error
	// LevelRefused says why Input.RaiseLevel was refused; nil if it was not.
	LevelRefused *isotone.Error
	// FloorRefused says why Input.RaiseFloor was refused; nil if it was not.
	FloorRefused *isotone.Error
	// Rounds were confirmed in this step.
	Rounds []Round
	// Changed is set if anything that [Replica.Status] returns may have changed, but for Time
	// and Ceiling.
	Changed bool
	// Announce asks the caller to send this node's [Replica.Hello] to all connected peers
	// again.
	Announce bool
	// SendClock asks the caller to send a reading of the wall clock to all connected peers.
	SendClock bool
	// AskClock and TellClock are to be sent to their peers. Losing one is harmless.
	AskClock  []ClockAsk
	TellClock []ClockAnswer
	// AskVoters and TellOwners are to be sent to their peers. Losing one is harmless.
	AskVoters  []OwnerAsk
	TellOwners []OwnerAnswer
	// ClockChanged is set if ClockEstimate has changed.
	ClockChanged bool
	// Fatal ends the node: it cannot carry out a log entry or form its cluster. Every later
	// Step does nothing but return it.
	Fatal error
}

// Round describes a confirmed round.
type Round struct {
	// Requests is the number of requests that it answered, Timestamps of the timestamps that
	// it issued.
	Requests   int
	Timestamps uint64
	// Took is the time from its start to its confirmation.
	Took time.Duration
}

// Grant describes a lock that was granted.
type Grant struct {
	// Waited is the time from the request for the lock until its claim was applied, Committed that from the proposal of the claim.
	Waited, Committed time.Duration
}

func (e *Effects) reset() {
	clear(e.Send)
	*e = Effects{
		Send: e.Send[:0], Answers: e.Answers[:0], LeaseAnswers: e.LeaseAnswers[:0], TimelineAnswers: e.TimelineAnswers[:0], Rounds: e.Rounds[:0],
		Sessions: e.Sessions[:0], Grants: e.Grants[:0], AskClock: e.AskClock[:0], TellClock: e.TellClock[:0], AskVoters: e.AskVoters[:0], TellOwners: e.TellOwners[:0],
	}
}

// Step works through one input and returns what is to be done. The effects belong to the
// replica and are valid until the next call.
func (r *Replica) Step(in *Input) *Effects {
	o := r.cfg.Observer
	if o == nil {
		return r.step(in)
	}
	o.Before(in)
	e := r.step(in)
	o.After(r, e)
	return e
}

// Observer sees what goes into a replica and what comes out. It changes nothing, and what it sees belongs to the replica, but for the slices of requests: those have their answers
// when their token is among Effects.Answers.
type Observer interface {
	Before(*Input)
	After(*Replica, *Effects)
}

func (r *Replica) step(in *Input) *Effects {
	fatal := r.effects.Fatal
	if fatal == nil && r.stopErr != nil && r.ticks >= r.stopAt {
		fatal = r.stopErr
	}
	r.effects.reset()
	if fatal != nil {
		r.effects.Fatal = fatal
		return &r.effects
	}
	r.mutateStep()
	r.readClocks(in)
	r.effects.SendClock = len(in.Hellos) > 0
	r.ids.stop(in)
	if r.forming != nil {
		if r.stepFounder(in); r.forming == nil {
			r.processReady()
		}
		return &r.effects
	}
	r.advance(in)
	r.operate(in)
	r.processReady()
	r.exchangeClocks(in)
	if r.effects.Fatal != nil {
		return &r.effects
	}
	for i := range in.Requests {
		r.enqueue(in.Requests[i])
	}
	for i := range in.LeaseRequests {
		r.leading.clients.request(in.LeaseRequests[i])
	}
	for i := range in.TimelineRequests {
		r.leading.timelines.request(in.TimelineRequests[i])
	}
	for _, conn := range in.SessionsGone {
		r.leading.sessions.gone(conn)
	}
	r.leading.sessions.step()
	r.leading.timelines.grant()
	r.owner.step(in)
	r.campaign()
	r.startRound()
	r.processReady()
	return &r.effects
}

// readClocks reads the time and the peers' clocks, and does what depends on them.
func (r *Replica) readClocks(in *Input) {
	r.now, r.mono, r.steady = in.Now, in.Mono, in.Steady
	if !r.interval.known {
		r.interval.known = true
		r.interval.noteAnswered()
	}
	for _, c := range in.Clocks {
		r.clearRefusal(c.ID)
		r.clocks.record(c)
	}
	if in.Ticks > 0 || len(in.Clocks) > 0 || !r.clocks.quorum.known {
		r.clocks.update()
		r.ids.checkSkew()
		r.ids.extendGenerators()
	}
}

// advance handles what storage, peers and the timer brought.
func (r *Replica) advance(in *Input) {
	if in.Persisted != nil {
		r.writePersisted(in.Persisted)
	}
	for _, m := range in.Messages {
		r.receive(m)
	}
	for _, id := range in.Gone {
		r.admission.gone(id)
		r.leading.timelines.granted = false
		r.owner.askAgain()
	}
	for _, h := range in.Hellos {
		r.admission.connected(h)
		r.membership.register()
	}
	for _, id := range in.Refused {
		r.connectionRefused(id)
	}
	for range in.Ticks {
		r.tick()
	}
}

// operate does what an operator asks for.
func (r *Replica) operate(in *Input) {
	if in.Change != nil {
		r.change(*in.Change)
	}
	if in.Transfer {
		r.transfer(in.TransferTo)
	}
	if in.RaiseLevel {
		r.raiseLevel()
	}
	if in.RaiseFloor != nil {
		r.raiseFloor(*in.RaiseFloor)
	}
	if in.Reserve && r.leading.alloc.IsOpen() && !r.leading.reserving {
		r.reserveBetween()
	}
}
