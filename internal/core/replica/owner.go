package replica

import (
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Owners (docs/decisions/0040-timelines.md). The applied log says which process owns which group of timelines. An owner issues within the
// bounds that its applied log gives: below the ceiling, and not below the base, which every grant raises above all that earlier
// owners have issued. What is left is real-time order: an owner must not answer once a later one has.
//
// A leader answers for its groups in the rounds of the default order. Any other owner has rounds of its own, which need neither a leader
// nor a term: it asks voters for the fences of their logs (see [tail.noteFences]), as many as with itself are a quorum, and all with the next
// tick or when a peer is gone. It answers the requests that arrived before once a quorum has told fences that it has applied. An entry that was
// committed when the round began is in the log of a quorum, so of a voter that has answered: the owner has applied it, and knows if it was
// another's grant. A change of membership is a fence as well, so the quorum is that of the latest configuration, or of the one before, which has
// to commit the change.

// OwnerAsk is a question of an owner of timelines for the fence of a voter's log.
type OwnerAsk struct {
	// Peer is who asks, or is to be asked.
	Peer uint64
	// Session identifies the asking process, and Round its question. Round 0 is no question: it tells that this process is to own no
	// groups.
	Session, Round uint64
}

// OwnerAnswer answers an [OwnerAsk].
type OwnerAnswer struct {
	OwnerAsk
	// Fence is an index of the log: all that its owner has to know in the log of the voter is at or below it.
	Fence uint64
}

// owner is what a process does about the timelines that it owns. The issuers serve it while it leads as well.
type owner struct {
	*facts
	tail    *tail
	clocks  *clocks
	load    *load
	issuers map[string]*issuer // of timelines that this process has issued something of
	// waiting are requests without a round, rounds those in flight, oldest first.
	waiting []pending
	rounds  []ownerRound
	// lastRound is the number of the latest round of this process; none is used twice.
	lastRound uint64
	// held are requests that wait for the next tick, see [owner.awaitsLease].
	held  []pending
	lease ownerLease
	// leaves is set from Input.StopOwning on.
	leaves bool
}

// issuer makes what a process issues of a timeline that it owns.
type issuer struct {
	oracle.Allocator
	readWrite timeline.ReadWrite
	// base and now are the base of the timeline and the clock when it was opened last, in unix nanoseconds.
	base, now uint64
}

// ownerRound is a question to all voters, with the requests that it answers.
type ownerRound struct {
	id       uint64
	requests []pending
	// conf is the configuration when it began. A round does not outlive it.
	conf    *raftpb.ConfState
	told    []fenceOf
	started time.Duration // Input.Mono
}

// fenceOf is the fence of a voter's log.
type fenceOf struct{ voter, fence uint64 }

// enqueueOwned takes a request of a timeline that this process or another one owns, or reports false: then it is for the leader.
func (r *Replica) enqueueOwned(req Request) bool {
	have, known := r.state.Timelines.Timeline(req.Timeline)
	g, _ := r.state.Timelines.Group(have.Group)
	leads, owns := r.role == raft.StateLeader, r.owner.owns(g.Owner, g.Session)
	switch {
	case !known || g.Owner == 0 || owns && r.leading.alloc.IsOpen():
		return false
	case owns:
		if req.Mode != isotone.ReadLease || !r.owner.serveByLease(&req, have.Group, g) {
			r.owner.enqueue(req)
		}
	case g.Owner == r.cfg.Self.NodeID || leads && !r.leading.timelines.hasOwner(g):
		return false // the leader takes what belonged to a process that has ended
	default:
		r.answer(req.Token, r.redirectTo(g.Owner))
	}
	return true
}

// enqueue queues a request, or refuses it.
func (o *owner) enqueue(req Request) {
	if !o.load.admit(&req) {
		o.counters.Overloaded += uint64(len(req.Counts))
		o.answer(req.Token, isotone.ErrOverloaded)
		return
	}
	o.waiting = append(o.waiting, pending{Request: req, arrived: o.ticks})
}

// takeOver takes the requests of timelines that this process owns from a leadership that has ended, and returns the others. They wait for a
// round that begins now.
func (o *owner) takeOver(list []pending) (others []pending) {
	for i := range list {
		have, _ := o.state.Timelines.Timeline(list[i].Timeline)
		if g, _ := o.state.Timelines.Group(have.Group); list[i].Timeline != "" && o.owns(g.Owner, g.Session) && !mutant.On(mutant.TimelinesWithLeader) {
			o.waiting = append(o.waiting, list[i])
		} else {
			others = append(others, list[i])
		}
	}
	return others
}

// owns reports whether that process is this one.
func (o *owner) owns(member, session uint64) bool {
	return member == o.cfg.Self.NodeID && (session == o.cfg.Self.Session || mutant.On(mutant.OwnWithoutSession))
}

// step answers other owners, takes the answers of voters, and begins a round if requests wait.
func (o *owner) step(in *Input) {
	if in.StopOwning && !o.leaves {
		o.leaves = true
		o.leave()
	}
	for _, q := range in.OwnerAsks {
		if p := o.peers[q.Peer]; q.Round == 0 && p != nil {
			p.leaves = q.Session
			continue
		}
		o.effects.TellOwners = append(o.effects.TellOwners, OwnerAnswer{OwnerAsk: q, Fence: o.tail.told()})
	}
	for _, a := range in.OwnerAnswers {
		if a.Session == o.cfg.Self.Session {
			o.take(a)
		}
	}
	o.confirm()
	if (len(o.waiting) > 0 || o.lease.due) && len(o.rounds) < roundsMax {
		o.begin()
		o.confirm() // a sole voter
	}
}

// take notes the answer of a voter for its round and the earlier ones. The lowest fence that it has told since a round began counts: that was
// at or above what it had to tell, and a later one may not be applied here for long.
func (o *owner) take(a OwnerAnswer) {
	if p := o.peers[a.Peer]; p != nil {
		p.owned.answered = max(p.owned.answered, a.Round)
	}
	for i := range o.rounds {
		if rd := &o.rounds[i]; rd.id <= a.Round || mutant.On(mutant.CountLateTold) {
			if at := slices.IndexFunc(rd.told, func(f fenceOf) bool { return f.voter == a.Peer }); at >= 0 {
				rd.told[at].fence = min(rd.told[at].fence, a.Fence)
			} else {
				rd.told = append(rd.told, fenceOf{a.Peer, a.Fence})
			}
		}
	}
}

// begin begins a round for all waiting requests.
func (o *owner) begin() {
	o.lastRound++
	if mutant.On(mutant.OwnerReusesNumber) {
		o.lastRound = 1
	}
	o.rounds = append(o.rounds, ownerRound{id: o.lastRound, requests: o.waiting, conf: o.conf, started: o.mono, told: []fenceOf{{o.cfg.Self.NodeID, o.tail.told()}}})
	o.waiting, o.lease.due = nil, false
	var chosen [4]uint64 // enough for 9 voters without an allocation
	o.ask(o.chooseQuorum(chosen[:0], ownedOf))
}

// ownedOf returns the rounds of an owner. One that is not connected owes an answer.
func ownedOf(p *peerView) roundsOf {
	if p.session == 0 {
		return roundsOf{asked: math.MaxUint64, answered: p.owned.answered}
	}
	return p.owned
}

// ask sends the latest round to these voters, nil for all.
func (o *owner) ask(chosen []uint64) {
	asked := chosen
	if asked == nil {
		asked = slices.Concat(o.conf.GetVoters(), o.conf.GetVotersOutgoing())
	}
	if mutant.On(mutant.CountAnyone) {
		asked = append(asked, o.conf.GetLearners()...)
	}
	for _, id := range asked {
		if id != o.cfg.Self.NodeID {
			o.peer(id).owned.asked = o.lastRound
			o.effects.AskVoters = append(o.effects.AskVoters, OwnerAsk{Peer: id, Session: o.cfg.Self.Session, Round: o.lastRound})
		}
	}
}

// confirm answers the requests of rounds that a quorum has confirmed. Those of another configuration begin again.
func (o *owner) confirm() {
	for len(o.rounds) > 0 {
		rd := o.rounds[0]
		if mutant.On(mutant.OwnerLeaseOverTouched) && len(rd.told) > len(rd.conf.GetVoters())/2 {
			o.extendLease(&rd)
		}
		switch {
		case rd.conf != o.conf && !mutant.On(mutant.OldConfigCounts):
			o.restart()
			return
		case !o.isConfirmed(&rd):
			return
		}
		o.rounds = slices.Delete(o.rounds, 0, 1)
		o.extendLease(&rd)
		served := Round{Took: o.mono - rd.started}
		for i := range rd.requests {
			o.serve(&rd.requests[i], &served)
		}
		o.effects.Rounds = append(o.effects.Rounds, served)
	}
}

// restart puts the requests of all rounds back.
func (o *owner) restart() {
	var all []pending
	for _, rd := range o.rounds {
		all = append(all, rd.requests...)
	}
	o.rounds, o.waiting = nil, append(all, o.waiting...)
}

// isConfirmed reports whether a quorum, of both sets in a joint configuration, has told fences that are applied here.
func (o *owner) isConfirmed(rd *ownerRound) bool {
	return o.isQuorum(rd, rd.conf.GetVoters()) && (len(rd.conf.GetVotersOutgoing()) == 0 || o.isQuorum(rd, rd.conf.GetVotersOutgoing()))
}

func (o *owner) isQuorum(rd *ownerRound, voters []uint64) bool {
	count, need := 0, len(voters)/2+1
	for _, f := range rd.told {
		isVoter := slices.Contains(voters, f.voter) || mutant.On(mutant.CountAnyone)
		if isVoter && (f.fence <= o.applied || mutant.On(mutant.TouchedIgnored)) {
			count++
		}
	}
	return count >= mutant.Pick(mutant.OwnerCountsTooFew, need-1, need)
}

// serve answers a request of a confirmed round.
func (o *owner) serve(p *pending, stats *Round) {
	have, _ := o.state.Timelines.Timeline(p.Timeline)
	if g, _ := o.state.Timelines.Group(have.Group); o.owns(g.Owner, g.Session) && o.awaitsLease(have.Group, g) {
		o.held = append(o.held, *p)
		return
	}
	err := o.issue(p)
	o.load.leave(&p.Request)
	stats.Requests += len(p.Counts)
	stats.Timestamps += p.issued
	o.effects.Answers = append(o.effects.Answers, Answer{Token: p.Token, Moved: p.moved, Err: err})
}

// issue allocates the timestamps of a request.
func (o *owner) issue(p *pending) *isotone.Error {
	a, err := o.open(p.Timeline)
	if err == nil {
		err = o.passFloor(p, &a.Allocator)
	}
	if err == nil {
		err = a.fill(p)
	}
	return err
}

// passFloor makes what is issued next larger than the floor of a request. What this or an earlier owner has issued is below the ceiling.
func (o *owner) passFloor(p *pending, a *oracle.Allocator) *isotone.Error {
	f, now := p.Floor, o.clocks.time()
	if f == (isotone.Timestamp{}) || p.Op != timeline.OpIssue || a.IsAbove(f) {
		return nil
	}
	if refused := o.refuseMove(p, f.Time, now, ClientFloorAheadMax); refused != nil {
		return refused
	}
	if !a.Pass(f) {
		return isotone.ErrOverloaded // only a leader proposes to raise the ceiling
	}
	o.counters.FloorsPassed++
	p.moved = f.Time > now
	return nil
}

// open returns the issuer of a timeline that this process owns, with its time and its bounds as of now. The base counts at each timestamp,
// so it does not matter what of an earlier tenure is left here.
func (o *owner) open(name string) (*issuer, *isotone.Error) {
	table := &o.state.Timelines
	have, ok := table.Timeline(name)
	switch {
	case !ok:
		return nil, isotone.Errorf(isotone.CodeNotFound, "there is no timeline %q; create it with: isotone timeline create %s", name, name)
	case have.Bound != 0 && !mutant.On(mutant.IssueSealed):
		return nil, isotone.Errorf(isotone.CodeNotFound, "the timeline %q is sealed: it issues no timestamps any more", name)
	}
	if g, _ := table.Group(have.Group); !o.owns(g.Owner, g.Session) && !mutant.On(mutant.OwnUngranted) {
		return nil, o.redirectTo(g.Owner)
	}
	base, ceiling, ok := table.Bounds(name)
	if !ok {
		return nil, isotone.ErrOverloaded
	}
	a := o.issuers[name]
	switch {
	case a == nil:
		a = &issuer{}
		a.Open(max(base, 1), ceiling)
		o.issuers[name] = a
	case mutant.On(mutant.BaseOnce):
		base = 0
	}
	a.base, a.now = base, o.clocks.time()
	a.Extend(ceiling)
	a.Advance(max(base, a.now))
	return a, nil
}

// forgetDeleted drops the issuers of timelines that a snapshot does not have.
func (o *owner) forgetDeleted() {
	for name := range o.issuers { // order-free: each is judged by itself
		if _, ok := o.state.Timelines.Timeline(name); !ok {
			delete(o.issuers, name)
		}
	}
}

// fill sets the ranges of a request.
func (a *issuer) fill(p *pending) *isotone.Error {
	if p.Op != timeline.OpIssue {
		return a.answer(p)
	}
	for ; p.filled < len(p.Counts); p.filled++ {
		n, rng, ok := p.Counts[p.filled], isotone.Range{}, false
		if p.U64 {
			rng, ok = a.Next64(n, 0, math.MaxUint64)
		} else {
			next, err := a.Next(n)
			rng, ok = next, err == nil
		}
		if !ok {
			return isotone.ErrOverloaded
		}
		p.Ranges[p.filled] = rng
		p.issued += n
	}
	return nil
}

// answer answers a request to the oracle of reads and writes.
func (a *issuer) answer(p *pending) *isotone.Error {
	ms, ok := a.readWrite.Do(p.Op, p.At, a.base, a.now, a.Ceiling())
	switch {
	case !ok && p.Op == timeline.OpApply:
		return isotone.Errorf(isotone.CodeInvalidArgument, "%d ms is not applied: it is later than any time that the timeline %q may have issued, so no write of it has that time", p.At, p.Timeline)
	case !ok:
		return errNoTimeToWrite
	}
	p.Ranges[0], p.issued = isotone.Range{First: isotone.Timestamp{Time: ms}, Count: 1}, p.issued+1
	return nil
}

// errNoTimeToWrite answers writes that would be at or above the ceiling.
var errNoTimeToWrite = isotone.Errorf(isotone.CodeOverloaded, "the timeline has no time for another write yet: its time is ahead of the clock, after a raised floor or more than a thousand writes in a second")

// tick fails requests that have waited too long, and repeats the latest round.
func (o *owner) tick() {
	late := func(p pending) bool {
		if o.ticks-p.arrived < uint64(o.cfg.RequestTicks) {
			return false
		}
		o.load.leave(&p.Request)
		o.counters.Expired += uint64(len(p.Counts))
		o.answer(p.Token, isotone.ErrDeadlineExceeded)
		return true
	}
	o.waiting, o.held = slices.DeleteFunc(append(o.held, o.waiting...), late), nil
	for i := range o.rounds {
		o.rounds[i].requests = slices.DeleteFunc(o.rounds[i].requests, late)
	}
	o.askAgain()
	o.renewLease()
	o.leave()
}

// leave tells the other members that this process is to own no groups, if that is so. All are told, as any of them may be the next leader.
func (o *owner) leave() {
	if !o.leaves {
		return
	}
	for _, m := range o.state.Members {
		if m.ID != o.cfg.Self.NodeID {
			o.effects.AskVoters = append(o.effects.AskVoters, OwnerAsk{Peer: m.ID, Session: o.cfg.Self.Session})
		}
	}
}

// askAgain asks all voters for the latest round, as one that was asked may be gone.
func (o *owner) askAgain() {
	if len(o.rounds) > 0 {
		o.ask(nil)
	}
}
