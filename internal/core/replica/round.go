package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
)

// Rounds: one confirmation of the leadership for all requests that wait; see ask.go.

// roundsMax bounds the rounds in flight. With two, requests need not wait for a round that
// began before they arrived; a third was never measured to help.
const roundsMax = 2

// queue holds the requests that are not answered yet.
type queue struct {
	// waiting are requests without a round, in order of arrival but for those that were held.
	waiting []pending
	// rounds are in flight, oldest first; at most roundsMax.
	rounds []round
	// held are requests whose floor is proposed, or that wait for the cluster clock.
	held []pending
	// admission says which requests of a confirmed round are served.
	admission admission
	// size is the sum of len(Counts) of all requests; at most max.
	size, max int
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
	served   Round
}

// enqueue queues a request, or answers it at once.
func (r *Replica) enqueue(req Request) {
	if r.role != raft.StateLeader {
		r.answer(req.Token, r.redirect())
		return
	}
	if r.leading.over {
		r.answer(req.Token, errTimeOver)
		return
	}
	if req.Mode == isotone.ReadLease && r.serveByLease(&req) {
		return
	}
	if r.queue.size+len(req.Counts) > r.queue.max {
		r.counters.Overloaded += uint64(len(req.Counts))
		r.answer(req.Token, isotone.ErrOverloaded)
		return
	}
	if r.mutateEnqueue(req) {
		return
	}
	r.queue.size += len(req.Counts)
	r.queue.waiting = append(r.queue.waiting, pending{Request: req, arrived: r.ticks, clock: r.arrivalClock(req)})
}

// startRound begins a round if requests wait. While the allocator is closed a confirmation could
// release nothing.
func (r *Replica) startRound() {
	if len(r.queue.waiting) == 0 || r.RoundsAreFull() || !r.leading.alloc.IsOpen() {
		return
	}
	var chosen [4]uint64 // enough for 9 voters without an allocation
	r.beginRound(r.chooseQuorum(chosen[:0]))
}

// beginRound begins a round for all waiting requests, which may be none when it is for the
// lease. It asks the chosen voters, nil for everyone; a sole voter has confirmed it at once.
func (r *Replica) beginRound(chosen []uint64) {
	q := &r.queue
	q.lastRound++
	r.mutateRound()
	q.rounds = append(q.rounds, round{id: q.lastRound, requests: q.waiting, started: r.mono, clock: r.roundClock()})
	q.waiting = q.takeSpare()
	r.leading.lease.sent.noteSent(q.lastRound, r.mono)
	r.askRound(chosen)
	r.confirmRounds()
}

// confirm answers the requests of all rounds up to this one. All of them are concurrent. Those for 64-bit
// timestamps come first: with a cluster clock they get times before the present one, see next64. So that
// there are such times, time advances to the present one only if other requests need it.
func (r *Replica) confirm(id uint64) {
	rounds := r.queue.upTo(id)
	byClock := r.leading.clock.runs
	r.queue.admission.begin()
	if byClock {
		r.serveAll(rounds, true)
	}
	if r.advancesAlways() && (!byClock || haveOthers(rounds) && r.queue.admission.isOpen()) {
		r.leading.alloc.Advance(r.axisNow())
	}
	for i := range rounds {
		r.confirmLease(rounds[i].started)
		r.extendLimit(rounds[i].clock)
	}
	if !byClock {
		r.serveAll(rounds, true)
	}
	r.serveAll(rounds, false)
	r.endRounds(rounds)
	if r.queue.admission.end() {
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

// endRounds removes rounds that are confirmed.
func (r *Replica) endRounds(rounds []round) {
	for i := range rounds {
		rounds[i].served.Took = r.mono - rounds[i].started
		r.effects.Rounds = append(r.effects.Rounds, rounds[i].served)
		r.queue.putSpare(rounds[i].requests)
	}
	r.queue.rounds = append(r.queue.rounds[:0], r.queue.rounds[len(rounds):]...)
}

// haveOthers reports whether rounds have requests for timestamps that are not of 64 bits.
func haveOthers(rounds []round) bool {
	return slices.ContainsFunc(rounds, func(rd round) bool {
		return slices.ContainsFunc(rd.requests, func(p pending) bool { return !p.U64 })
	})
}

// serveAll answers the requests of confirmed rounds for one form of timestamps.
func (r *Replica) serveAll(rounds []round, u64 bool) {
	for i := range rounds {
		for j := range rounds[i].requests {
			if p := &rounds[i].requests[j]; p.U64 == u64 {
				r.serve(p, &rounds[i].served)
			}
		}
	}
}

// restartRounds puts the requests of the rounds in flight back into the queue, because the
// voters have changed: those that were asked may be gone, and a sole voter gets no answer.
func (r *Replica) restartRounds() {
	size := r.queue.size
	r.queue.waiting, r.queue.size = r.takeQueue(), size
}

// expire fails requests that have waited too long. They are not in order of arrival everywhere: those that
// were held come back in front of others.
func (r *Replica) expire() {
	late := func(p pending) bool {
		if r.ticks-p.arrived < uint64(r.cfg.RequestTicks) {
			return false
		}
		r.queue.size -= len(p.Counts)
		r.counters.Expired += uint64(len(p.Counts))
		r.answer(p.Token, isotone.ErrDeadlineExceeded)
		return true
	}
	r.queue.held = slices.DeleteFunc(r.queue.held, late)
	r.queue.waiting = slices.DeleteFunc(r.queue.waiting, late)
	for i := range r.queue.rounds {
		r.queue.rounds[i].requests = slices.DeleteFunc(r.queue.rounds[i].requests, late)
	}
}

// takeQueue empties the queue and returns what was in it.
func (r *Replica) takeQueue() []pending {
	q := &r.queue
	all := slices.Clone(q.held)
	for _, rd := range q.rounds {
		all = append(all, rd.requests...)
	}
	all = append(all, q.waiting...)
	q.held, q.rounds, q.waiting, q.size = nil, q.rounds[:0], q.waiting[:0], 0
	q.admission.open()
	return all
}

// redirectAll fails requests that this node will not serve.
func (r *Replica) redirectAll(list []pending) {
	if len(list) > 0 {
		r.failWith(list, r.redirect())
	}
}

// failWith fails requests that are not in the queue any more.
func (r *Replica) failWith(list []pending, err *isotone.Error) {
	for _, p := range list {
		r.answer(p.Token, err)
	}
}

// redirect returns the error that names the leader, or says that none is known.
func (r *Replica) redirect() *isotone.Error {
	if r.lead != raft.None && r.lead != r.cfg.Self.NodeID {
		if m, ok := r.state.Member(r.lead); ok && m.ClientAddr != "" {
			err := isotone.Errorf(isotone.CodeNotLeader, "node %d leads; ask %s", oracle.NodeOf(r.lead), m.ClientAddr)
			err.Leader = m.ClientAddr
			return err
		}
	}
	return isotone.ErrNoLeader
}

func (r *Replica) answer(token uint64, err *isotone.Error) {
	r.effects.Answers = append(r.effects.Answers, Answer{Token: token, Err: err})
}

func (r *Replica) answerTo(p *pending, err *isotone.Error) {
	r.effects.Answers = append(r.effects.Answers, Answer{Token: p.Token, Moved: p.moved, Err: err})
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
func (r *Replica) RoundsAreFull() bool { return len(r.queue.rounds) >= roundsMax }
