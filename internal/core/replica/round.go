package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Rounds: one confirmation of the leadership for all requests that wait; see ask.go.

// roundsMax bounds the rounds in flight. With two, requests need not wait for a round that
// began before they arrived; a third was never measured to help.
const roundsMax = 2

// queue holds the requests that are not answered yet.
type queue struct {
	*facts
	// waiting are requests without a round, in order of arrival but for those that were held.
	waiting []pending
	// rounds are in flight, oldest first; at most roundsMax.
	rounds []round
	// held are requests whose floor is proposed, or that wait for the cluster clock.
	held []pending
	// turns says which requests of a confirmed round are served.
	turns turns
	load  *load
	// lastRound is the number of the latest round of this process. No number is used twice,
	// in any term: an answer to an old round must not confirm a new one (I4).
	lastRound uint64
	// spare are slices of finished rounds, for reuse.
	spare [][]pending
}

// pending is a request, the tick of its arrival, and what the cluster clock showed then, 0 if none ran.
type pending struct {
	Request
	arrived uint64
	clock   uint64
	tried   uint64 // what the cluster clock showed when it was last tried in vain; see triesAgain
	short   bool   // what held it last is next64
	filled  int    // ranges that are set, with issued timestamps
	issued  uint64
}

// round is a confirmation of leadership in flight, with the requests that it answers.
type round struct {
	id       uint64
	requests []pending
	started  time.Duration // Input.Mono
	clock    uint64        // of the cluster clock when it began, 0 if that did not run
	fence    uint64        // tail.fence when it began
	served   Round
}

// enqueue queues a request, or answers it at once.
func (r *Replica) enqueue(req Request) {
	if req.Session != nil && (req.Timeline != "" || len(req.Counts) > 1) {
		r.answer(req.Token, errSessionRequest)
		return
	}
	if req.Timeline != "" && r.enqueueOwned(req) {
		return
	}
	if r.role != raft.StateLeader {
		r.answer(req.Token, r.redirect())
		return
	}
	if r.leading.over {
		r.answer(req.Token, errTimeOver)
		return
	}
	if req.Session != nil && r.leading.sessions.isOpen() {
		if err, done := r.leading.sessions.receive(req.Session); done {
			r.answer(req.Token, err)
			return
		}
	}
	if req.Mode == isotone.ReadLease && req.Session == nil && r.serveByLease(&req) {
		return
	}
	if !r.load.admit(&req) {
		r.counters.Overloaded += uint64(len(req.Counts))
		r.answer(req.Token, isotone.ErrOverloaded)
		return
	}
	if r.mutateEnqueue(req) {
		return
	}
	r.queue.waiting = append(r.queue.waiting, pending{Request: req, arrived: r.ticks, clock: r.leading.arrivalClock(req)})
}

// startRound begins a round if requests wait. While the allocator is closed a confirmation could
// release nothing.
func (r *Replica) startRound() {
	if len(r.queue.waiting) == 0 || r.queue.isFull() || !r.leading.alloc.IsOpen() {
		return
	}
	var chosen [4]uint64 // enough for 9 voters without an allocation
	r.beginRound(r.chooseQuorum(chosen[:0], readOf))
}

// beginRound begins a round for all waiting requests, which may be none when it is for the
// lease. It asks the chosen voters, nil for everyone; a sole voter has confirmed it at once.
func (r *Replica) beginRound(chosen []uint64) {
	q := &r.queue
	q.lastRound++
	r.mutateRound()
	q.rounds = append(q.rounds, round{id: q.lastRound, requests: q.waiting, started: r.mono, clock: r.leading.roundClock(), fence: r.tail.fence})
	q.waiting = q.takeSpare()
	r.leading.lease.sent.noteSent(q.lastRound, r.mono)
	r.askRound(chosen)
	r.confirmRounds()
}

// confirm answers the requests of all rounds up to this one. All of them are concurrent. Those for 64-bit
// timestamps come first: with a cluster clock they get times before the present one, see next64. To keep such
// times available, time advances to the present one only if other requests need it.
func (r *Replica) confirm(id uint64) {
	rounds := r.queue.upTo(id)
	byClock := r.leading.clock.runs
	r.queue.turns.begin()
	if byClock {
		r.leading.serveAll(rounds, true)
		r.leading.sessions.step() // before others use the present time
	}
	if r.leading.advancesAlways() && (!byClock || haveOthers(rounds) && r.queue.turns.isOpen()) {
		r.leading.alloc.Advance(r.leading.axisNow())
	}
	for i := range rounds {
		r.leading.lease.confirm(rounds[i].started)
		r.leading.extendLimit(rounds[i].clock)
	}
	if !byClock {
		r.leading.serveAll(rounds, true)
	}
	r.leading.serveAll(rounds, false)
	r.queue.end(rounds)
	if r.queue.turns.end() {
		r.queue.release()
	}
}

// upTo returns the rounds in flight up to one.
func (q *queue) upTo(id uint64) []round {
	n := len(q.rounds)
	for n > 0 && q.rounds[n-1].id > id {
		n--
	}
	return q.rounds[:n]
}

// end removes rounds that are confirmed.
func (q *queue) end(rounds []round) {
	for i := range rounds {
		rounds[i].served.Took = q.mono - rounds[i].started
		q.effects.Rounds = append(q.effects.Rounds, rounds[i].served)
		q.putSpare(rounds[i].requests)
	}
	q.rounds = append(q.rounds[:0], q.rounds[len(rounds):]...)
}

// haveOthers reports whether rounds have requests for timestamps that are not of 64 bits.
func haveOthers(rounds []round) bool {
	return slices.ContainsFunc(rounds, func(rd round) bool {
		return slices.ContainsFunc(rd.requests, func(p pending) bool { return !p.usesClock() })
	})
}

// usesClock reports whether it is for 64-bit timestamps of the default order: those of a timeline do not follow the cluster clock.
func (p *pending) usesClock() bool { return p.U64 && p.Timeline == "" }

// serveAll answers the requests of confirmed rounds that use the cluster clock, or the others.
func (l *leading) serveAll(rounds []round, u64 bool) {
	for i := range rounds {
		for j := range rounds[i].requests {
			switch p := &rounds[i].requests[j]; {
			case p.usesClock() != u64:
			case p.Timeline != "" && rounds[i].fence > l.applied && !mutant.On(mutant.LeaderSelfUnchecked):
				l.queue.held = append(l.queue.held, *p) // until that is applied
			default:
				l.serve(p, &rounds[i].served)
			}
		}
	}
}

// restart puts the requests of the rounds in flight back into the queue, because the
// voters have changed: those that were asked may be gone, and a sole voter gets no answer.
func (q *queue) restart() {
	q.waiting = q.take()
}

// expire fails requests that have waited too long. They are not in order of arrival everywhere: those that
// were held come back in front of others.
func (q *queue) expire() {
	late := func(p pending) bool {
		if q.ticks-p.arrived < uint64(q.cfg.RequestTicks) {
			return false
		}
		q.load.leave(&p.Request)
		q.counters.Expired += uint64(len(p.Counts))
		q.answer(p.Token, isotone.ErrDeadlineExceeded)
		return true
	}
	q.held = slices.DeleteFunc(q.held, late)
	q.waiting = slices.DeleteFunc(q.waiting, late)
	for i := range q.rounds {
		q.rounds[i].requests = slices.DeleteFunc(q.rounds[i].requests, late)
	}
}

// take empties the queue and returns what was in it, which still counts.
func (q *queue) take() []pending {
	all := slices.Clone(q.held)
	for _, rd := range q.rounds {
		all = append(all, rd.requests...)
	}
	all = append(all, q.waiting...)
	q.held, q.rounds, q.waiting = nil, q.rounds[:0], q.waiting[:0]
	q.turns.open()
	return all
}

// redirectAll fails requests that this node will not serve.
func (q *queue) redirectAll(list []pending) {
	if len(list) > 0 {
		q.fail(list, q.redirect())
	}
}

// fail fails requests that are not in the queue any more.
func (q *queue) fail(list []pending, err *isotone.Error) {
	for i := range list {
		q.load.leave(&list[i].Request)
		q.answer(list[i].Token, err)
	}
}

// redirect returns the error that names the leader, or says that none is known.
func (f *facts) redirect() *isotone.Error {
	if f.lead != f.cfg.Self.NodeID {
		return f.redirectTo(f.lead)
	}
	return isotone.ErrNoLeader
}

// redirectTo returns the error that names a member, which leads or owns a timeline, or says that none is known.
func (f *facts) redirectTo(id uint64) *isotone.Error {
	m, ok := f.state.Member(id)
	if !ok || m.ClientAddr == "" {
		return isotone.ErrNoLeader
	}
	what := "leads"
	if id != f.lead {
		what = "owns the timeline"
	}
	err := isotone.Errorf(isotone.CodeNotLeader, "node %d %s; ask %s", oracle.NodeOf(id), what, m.ClientAddr)
	err.Leader = m.ClientAddr
	return err
}

func (f *facts) answer(token uint64, err *isotone.Error) {
	f.effects.Answers = append(f.effects.Answers, Answer{Token: token, Err: err})
}

func (q *queue) answerTo(p *pending, err *isotone.Error) {
	q.effects.Answers = append(q.effects.Answers, Answer{Token: p.Token, Moved: p.moved, Err: err})
}

// release puts the held requests back in front of those that wait for a round.
func (q *queue) release() {
	if len(q.held) > 0 {
		q.waiting, q.held = append(q.held, q.waiting...), nil
	}
}

func (q *queue) takeSpare() []pending {
	if n := len(q.spare); n > 0 {
		s := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return s
	}
	return nil
}

func (q *queue) putSpare(list []pending) {
	if len(q.spare) > roundsMax {
		return
	}
	clear(list)
	q.spare = append(q.spare, list[:0])
}

// RoundsAreFull reports whether no round can begin before one in flight is confirmed.
func (r *Replica) RoundsAreFull() bool { return r.queue.isFull() }

func (q *queue) isFull() bool { return len(q.rounds) >= roundsMax }
