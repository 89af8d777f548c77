package replica

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
)

// Input is what one turn of the loop collected. All fields are optional but the
// clocks. The replica works through it in the order of the fields.
type Input struct {
	// Now is the wall clock, unix nanoseconds. It may do anything: stall, jump
	// forward, go back.
	Now uint64
	// Mono is a clock that never goes back and runs through suspend
	// (CLOCK_BOOTTIME), since any fixed moment.
	Mono time.Duration
	// Persisted is the write of earlier Effects that is durable now, or nil.
	Persisted *Write
	// Messages come from peers that were admitted, in order for each peer.
	Messages []*raftpb.Message
	// Hellos are peers whose handshake was admitted since the last turn.
	Hellos []Hello
	// Ticks is how many Raft ticks passed, normally 0 or 1.
	Ticks int
	// Requests arrived since the last turn.
	Requests []Request
	// Transfer asks the leader to hand its leadership to another voter.
	Transfer bool
	// Change proposes a change of membership, unless Effects.ChangeRefused says otherwise.
	// It may still be lost with the leadership.
	Change *MemberChange
	// RaiseLevel asks the leader to raise the feature level of the cluster to the newest that
	// all members know, unless Effects.LevelRefused says otherwise.
	RaiseLevel bool
	// Clocks are what peers have told of their clocks since the last turn.
	Clocks []PeerClock
	// Behind has a bit for each of this node's workers whose generator refused to make ids
	// because the clock went back. Their leases are given back, and others asked for.
	Behind uint64
	// StopIDs gives all leases of this node back. It makes no more ids in this process.
	StopIDs bool
	// LeaseRequests are clients' requests for worker leases.
	LeaseRequests []LeaseRequest
}

// Request is a batch of timestamp requests that arrived together. The replica owns
// the slices until it returns the Token in an [Answer].
type Request struct {
	// Token means something to the caller only.
	Token uint64
	Mode  isotone.ReadMode
	// Counts are the numbers of timestamps wanted, each 1 to isotone.RangeCountMax.
	Counts []uint64
	// Ranges is as long as Counts and receives the answers.
	Ranges []isotone.Range
}

// Answer says that the request with this token is done.
type Answer struct {
	Token uint64
	// Err is nil when the request's Ranges are set.
	Err *isotone.Error
}

// Effects is what the caller has to do. It belongs to the replica and is valid
// until the next call of Step.
type Effects struct {
	// Send holds messages for other members. Losing one is harmless.
	Send []*raftpb.Message
	// Write, if not nil, is to be made durable and then returned in Input.Persisted.
	// There is never a second one before that.
	Write *Write
	// Answers belong to requests of this or earlier turns.
	Answers []Answer
	// LeaseAnswers belong to LeaseRequests of this or earlier turns.
	LeaseAnswers []LeaseAnswer
	// ChangeRefused is why Input.Change was not proposed, nil if it was.
	ChangeRefused *isotone.Error
	// LevelRefused is why Input.RaiseLevel was refused, nil if it was not.
	LevelRefused *isotone.Error
	// Rounds are those confirmed in this turn.
	Rounds []Round
	// Changed is set when anything that [Replica.Status] returns, but Time and
	// Ceiling, may have changed.
	Changed bool
	// Announce is set when the peers that are connected have to be told this node's hello
	// again: they may wait for what has changed in it.
	Announce bool
	// TellClock is set when the peers that are connected have to be told what this node's
	// wall clock shows.
	TellClock bool
	// Fatal ends the node: it met something in the replicated log that it cannot
	// carry out, and must not guess, or it was to form a cluster and cannot. Every later
	// Step returns it and does nothing.
	Fatal error
}

// Round describes a confirmed round.
type Round struct {
	// Requests is how many requests it answered.
	Requests int
	// Timestamps is how many timestamps it issued.
	Timestamps uint64
	// Took is the time from its start to its confirmation.
	Took time.Duration
}

func (e *Effects) reset() {
	clear(e.Send)
	*e = Effects{Send: e.Send[:0], Answers: e.Answers[:0], LeaseAnswers: e.LeaseAnswers[:0], Rounds: e.Rounds[:0]}
}

// Step works through one input. The returned effects are valid until the next call.
func (r *Replica) Step(in *Input) *Effects {
	fatal := r.effects.Fatal
	if fatal == nil && r.ending != nil && r.ticks >= r.endingAt {
		fatal = r.ending
	}
	r.effects.reset()
	if fatal != nil {
		r.effects.Fatal = fatal
		return &r.effects
	}
	r.mutateStep()
	r.now, r.mono = in.Now, in.Mono
	for _, c := range in.Clocks {
		r.hearClock(c)
	}
	if in.Ticks > 0 || len(in.Clocks) > 0 || !r.time.quorum.known {
		r.keepTime()
	}
	r.effects.TellClock = len(in.Hellos) > 0
	r.giveBack(in)
	if r.forming != nil {
		if r.stepFounder(in); r.forming == nil {
			r.processReady(nil)
		}
		return &r.effects
	}
	if in.Persisted != nil {
		r.persisted(in.Persisted)
	}
	for _, m := range in.Messages {
		r.receive(m)
	}
	for _, h := range in.Hellos {
		r.greet(h)
	}
	for range in.Ticks {
		r.tick()
	}
	if in.Change != nil {
		r.change(*in.Change)
	}
	if in.Transfer {
		r.transfer()
	}
	if in.RaiseLevel {
		r.raiseLevel()
	}
	r.processReady(nil)
	if r.effects.Fatal != nil {
		return &r.effects
	}
	for i := range in.Requests {
		r.enqueue(in.Requests[i])
	}
	for i := range in.LeaseRequests {
		r.leaseClient(in.LeaseRequests[i])
	}
	var chosen [4]uint64 // enough for 9 voters without an allocation
	r.processReady(r.startRound(chosen[:0]))
	return &r.effects
}
