package replica

import (
	"encoding/binary"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone"
)

// roundsMax is how many rounds may be in flight. With two, requests that arrive
// while one is on its way need not wait for its answer before their own starts; a
// third has never been measured to help.
const roundsMax = 2

// queue holds the requests that are not answered yet.
type queue struct {
	// waiting arrived after the last round began, in order of arrival.
	waiting []pending
	// rounds are in flight, oldest first; at most roundsMax.
	rounds []round
	// size is the number of single requests in all of them; at most max.
	size, max int
	// lastRound numbers the rounds of this process. A number is never used again, in
	// any term: an answer to an old round must never confirm a new one (I4).
	lastRound uint64
	// spare are the slices of finished rounds, for use again.
	spare [][]pending
}

// pending is a request with the tick of its arrival.
type pending struct {
	Request
	arrived uint64
}

// round is a confirmation of leadership under way, and the requests that wait for it.
type round struct {
	id       uint64
	requests []pending
	started  time.Duration
}

// enqueue takes a request in, or answers it at once when this node cannot.
func (r *Replica) enqueue(req Request) {
	if r.role != raft.StateLeader {
		r.answer(req.Token, r.redirect())
		return
	}
	if r.leading.over {
		r.answer(req.Token, errTimeOver)
		return
	}
	if req.Mode == isotone.ReadLease && r.serveByLease(req) {
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
	r.queue.waiting = append(r.queue.waiting, pending{Request: req, arrived: r.ticks})
}

// startRound begins a round if requests wait, and returns the voters that it asks, nil for
// everyone; see chooseQuorum. While the allocator is closed a confirmation could release
// nothing.
func (r *Replica) startRound(chosen []uint64) []uint64 {
	if len(r.queue.waiting) == 0 || r.RoundsAreFull() || !r.leading.alloc.IsOpen() {
		return nil
	}
	r.beginRound()
	return r.chooseQuorum(chosen)
}

// beginRound begins a round for everything that waits, or for nothing but the lease.
func (r *Replica) beginRound() {
	q := &r.queue
	q.lastRound++
	r.mutateRound()
	q.rounds = append(q.rounds, round{id: q.lastRound, requests: q.waiting, started: r.mono})
	q.waiting = q.takeSpare()
	r.raw.ReadIndex(binary.BigEndian.AppendUint64(nil, q.lastRound))
}

// confirm answers the requests of the round with this context, and of every round
// before it: a confirmation that began later holds for them all the more.
func (r *Replica) confirm(ctx []byte) {
	id := binary.BigEndian.Uint64(ctx)
	if r.cfg.EpochInterval == 0 {
		r.leading.alloc.Advance(r.clockNow())
	}
	done := 0
	for _, rd := range r.queue.rounds {
		if rd.id > id {
			break
		}
		r.extendLease(rd.started)
		r.serve(rd)
		done++
	}
	r.queue.rounds = append(r.queue.rounds[:0], r.queue.rounds[done:]...)
}

// serve issues timestamps for all requests of a confirmed round.
func (r *Replica) serve(rd round) {
	stats := Round{Took: r.mono - rd.started}
	for _, p := range rd.requests {
		r.queue.size -= len(p.Counts)
		stats.Requests += len(p.Counts)
		issued, err := r.issue(p.Request)
		stats.Timestamps += issued
		r.answer(p.Token, err)
	}
	r.queue.putSpare(rd.requests)
	r.effects.Rounds = append(r.effects.Rounds, stats)
}

// restartRounds begins the rounds in flight anew, because the voters have changed. Those that
// were asked may be no members any more, and where one voter is left nobody ever answers.
func (r *Replica) restartRounds() {
	q := &r.queue
	var all []pending
	for _, rd := range q.rounds {
		all = append(all, rd.requests...)
	}
	q.waiting = append(all, q.waiting...)
	q.rounds = q.rounds[:0]
}

// expire gives up requests that have waited too long.
func (r *Replica) expire() {
	limit := uint64(r.cfg.RequestTicks)
	late := func(list []pending) []pending {
		n := 0
		for n < len(list) && r.ticks-list[n].arrived >= limit {
			r.queue.size -= len(list[n].Counts)
			r.counters.Expired += uint64(len(list[n].Counts))
			r.answer(list[n].Token, isotone.ErrDeadlineExceeded)
			n++
		}
		return append(list[:0], list[n:]...)
	}
	r.queue.waiting = late(r.queue.waiting)
	for i := range r.queue.rounds {
		r.queue.rounds[i].requests = late(r.queue.rounds[i].requests)
	}
}

// unserved empties the queue and returns what was in it.
func (r *Replica) unserved() []pending {
	q := &r.queue
	var all []pending
	for _, rd := range q.rounds {
		all = append(all, rd.requests...)
	}
	all = append(all, q.waiting...)
	q.rounds, q.waiting, q.size = q.rounds[:0], q.waiting[:0], 0
	return all
}

// failAll answers requests that this node will not serve.
func (r *Replica) failAll(list []pending) {
	if len(list) > 0 {
		r.failWith(list, r.redirect())
	}
}

func (r *Replica) failWith(list []pending, err *isotone.Error) {
	for _, p := range list {
		r.answer(p.Token, err)
	}
}

// redirect says whom to ask instead of this node.
func (r *Replica) redirect() *isotone.Error {
	if r.lead != raft.None && r.lead != r.cfg.Self.NodeID {
		if m, ok := r.state.Member(r.lead); ok && m.ClientAddr != "" {
			err := isotone.Errorf(isotone.CodeNotLeader, "node %d leads; ask %s", r.lead, m.ClientAddr)
			err.Leader = m.ClientAddr
			return err
		}
	}
	return isotone.ErrNoLeader
}

func (r *Replica) answer(token uint64, err *isotone.Error) {
	r.effects.Answers = append(r.effects.Answers, Answer{Token: token, Err: err})
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

// RoundsAreFull reports that no round can begin before one that is in flight has come back.
func (r *Replica) RoundsAreFull() bool { return len(r.queue.rounds) >= roundsMax }
