package sim

import (
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// The cluster clock (I14). Processes without a replica keep estimates of it, read bounds, make
// timestamps and wait them out. Every read is held against the clock itself, against every other read,
// and against the oracle's answers, and their timestamps are part of the history. They have a source of
// randomness of their own, so that runs without them are the same as before.

// intervalRuns is one in how many runs has a cluster clock.
const intervalRuns = 4

// intervals is the part of the world that has to do with the cluster clock.
type intervals struct {
	rng    *rand.Rand
	length time.Duration // of a limit; 0: off
	wrong  wrongRate
	users  []*user
	// clocks are those of the terms of the cluster, by term, and the machine of each.
	clocks map[uint64]termClock
	opened uint64 // the latest term with a clock
	// earliest is the largest bound that a process has read, answered the latest timestamp that a
	// client of the oracle has received.
	earliest uint64
	answered isotone.Timestamp
	made     map[isotone.Timestamp]bool
}

type termClock struct {
	clock  replica.ClusterClock
	steady *steady
}

func newIntervals(seed uint64, tick time.Duration) intervals {
	v := intervals{rng: rand.New(rand.NewPCG(seed, 0x1a7e4)), clocks: map[uint64]termClock{}, made: map[isotone.Timestamp]bool{}}
	if v.rng.IntN(intervalRuns) == 0 {
		v.length = max(interval.LimitMin, []time.Duration{4, 10, 40}[v.rng.IntN(3)]*tick)
	}
	if v.rng.IntN(wrongRuns) == 0 {
		v.wrong = wrongRate(1 + v.rng.IntN(2))
	}
	return v
}

// wrongRuns is one in how many runs with a cluster clock has a steady clock whose rate is beyond the
// bound.
const wrongRuns = 6

// wrongRate is whose steady clock has a rate beyond the bound.
type wrongRate int

const (
	// wrongUser: one process without a replica. The promises hold for all others, and it finds
	// contradictions.
	wrongUser wrongRate = 1 + iota
	// wrongNode: one node. The promises of the oracle hold, and none of the cluster clock.
	wrongNode
)

// drawWrongRate draws a rate beyond the bound.
func (v *intervals) drawWrongRate() int64 {
	rate := 5*interval.Slew + v.rng.Int64N(50_000)
	if v.rng.IntN(2) == 0 {
		rate = -rate
	}
	return rate
}

// steady is a steady clock, by rate millionths too fast.
type steady struct {
	at     time.Duration // true time
	shown  int64
	rate   int64
	frozen bool
}

func (v *intervals) newSteady() *steady {
	return &steady{shown: v.rng.Int64N(1 << 50), rate: v.drawRate()}
}

// drawRate draws a rate within the bound, often at it.
func (v *intervals) drawRate() int64 {
	switch v.rng.IntN(3) {
	case 0:
		return interval.RateError
	case 1:
		return -interval.RateError
	}
	return v.rng.Int64N(2*interval.RateError+1) - interval.RateError
}

func (s *steady) read(now time.Duration) int64 {
	if s.frozen {
		return s.shown
	}
	d := int64(now - s.at)
	return s.shown + d + d*s.rate/1_000_000
}

func (s *steady) set(now time.Duration, rate int64, frozen bool) {
	s.shown, s.at = s.read(now), now
	s.rate, s.frozen = rate, frozen
}

// user is a process that uses the cluster clock.
type user struct {
	id        uint64
	steady    *steady
	estimate  interval.Estimate
	cluster   uint64
	generator interval.Generator
	nonce     uint64
	asked     map[uint64]int64
	resumes   time.Duration    // it is paused until then
	before    interval.Reading // an earlier read, for a deliberate bug
	beforeOK  bool
	// wrong is set if the rate of its clock is beyond the bound.
	wrong bool
}

// runIntervals starts the processes that use the cluster clock.
func (w *world) runIntervals() {
	v := &w.interval
	if v.length == 0 {
		return
	}
	for i := range 2 + v.rng.IntN(3) {
		u := &user{id: uint64(1000 + i), steady: v.newSteady(), asked: map[uint64]int64{}, generator: interval.NewGenerator(v.rng.Uint64())}
		if i == 0 && v.wrong == wrongUser {
			u.wrong, u.steady.rate = true, v.drawWrongRate()
		}
		v.users = append(v.users, u)
		w.synchronize(u)
		w.use(u)
	}
	w.disturb()
}

// act has u do something after a while, or when its pause is over.
func (w *world) act(u *user, in time.Duration, do func()) {
	w.after(in, func() {
		if w.now < u.resumes {
			w.act(u, u.resumes-w.now, do)
			return
		}
		do()
	})
}

// disturb pauses processes and changes the rates of clocks now and then.
func (w *world) disturb() {
	v := &w.interval
	w.after(w.cfg.tick*time.Duration(1+v.rng.IntN(40)), func() {
		if w.closing || w.healing {
			return
		}
		if !w.quiet {
			u := v.users[v.rng.IntN(len(v.users))]
			switch v.rng.IntN(4) {
			case 0, 1:
				u.resumes = w.now + time.Duration(v.rng.Int64N(int64(2*v.length)))
				if mutant.On(mutant.ClockStopsInSuspend) {
					u.steady.set(w.now, u.steady.rate, true)
					w.after(u.resumes-w.now, func() { u.steady.set(w.now, u.steady.rate, false) })
				}
			case 2:
				if rate := v.drawRate(); !u.wrong {
					u.steady.set(w.now, rate, u.steady.frozen)
				}
			case 3:
				n, rate := w.nodes[v.rng.IntN(len(w.nodes))], v.drawRate()
				if v.wrong == wrongNode && n.slot == 0 {
					rate = v.drawWrongRate()
				}
				n.steady.set(w.now, rate, n.steady.frozen)
			}
		}
		w.disturb()
	})
}

// transit is the time of a message of a process that uses the clock, drawn apart from others.
func (v *intervals) transit() time.Duration {
	d := 20*time.Microsecond + time.Duration(v.rng.Int64N(int64(300*time.Microsecond)))
	if v.rng.IntN(20) == 0 {
		d += time.Duration(v.rng.Int64N(int64(2 * v.length)))
	}
	return d
}

// synchronize asks nodes for readings, for ever.
func (w *world) synchronize(u *user) {
	v := &w.interval
	w.act(u, time.Duration(v.rng.Int64N(int64(v.length/2))), func() {
		if w.closing {
			return
		}
		u.nonce++
		nonce, n := u.nonce, w.nodes[v.rng.IntN(len(w.nodes))]
		u.asked[nonce] = u.steady.read(w.now)
		delete(u.asked, nonce-32)
		w.after(v.transit(), func() { w.tell(n, u, nonce) })
		w.synchronize(u)
	})
}

// tell has the node n answer u, once its process goes on.
func (w *world) tell(n *node, u *user, nonce uint64) {
	v := &w.interval
	if n.up() && n.paused {
		w.after(w.cfg.tick/4, func() { w.tell(n, u, nonce) })
		return
	}
	if !n.up() {
		return
	}
	m, good := n.published.Told(interval.At(n.steady.read(w.now)))
	if !good {
		return
	}
	m.Cluster = n.publishedBy
	w.checkRead(n.id, m)
	for range 1 + v.rng.IntN(20)/19 { // sometimes twice
		if v.rng.IntN(50) == 0 {
			continue // lost
		}
		w.after(v.transit(), func() { w.act(u, 0, func() { w.told(u, nonce, m) }) })
	}
}

// told gives an answer to u.
func (w *world) told(u *user, nonce uint64, m interval.Reading) {
	v := &w.interval
	sent, ok := u.asked[nonce]
	if !ok {
		return
	}
	delete(u.asked, nonce)
	if mutant.On(mutant.AnswerOfAnother) && len(u.asked) > 0 {
		sent = u.asked[u.nonce]
	}
	if m.Cluster != u.cluster { // a restored one: nothing is known of its clock
		if u.cluster != 0 && m.Cluster != w.cluster {
			return
		}
		u.cluster, u.estimate = m.Cluster, interval.Estimate{}
	}
	if !u.estimate.Take(interval.At(sent), interval.At(u.steady.read(w.now)), m) {
		w.stats.Contradictions++
		if !u.wrong && v.wrong != wrongNode {
			w.fail("I14: process %d finds that clocks with right rates contradict each other", u.id)
		}
	}
}

// read reads bounds. With a pause between its two steps, then is called late.
func (w *world) read(u *user, then func(m interval.Reading, good bool)) {
	v := &w.interval
	pause := time.Duration(0)
	if v.rng.IntN(10) == 0 {
		pause = time.Duration(v.rng.Int64N(int64(v.length)))
	}
	estimate, now := u.estimate, u.steady.read(w.now) // R5: the estimate is loaded first
	w.act(u, pause, func() {
		if mutant.On(mutant.ClockBeforeEstimate) {
			estimate = u.estimate
		} else {
			now = u.steady.read(w.now)
		}
		m, good := estimate.Bounds(interval.At(now))
		if mutant.On(mutant.ClockBeforeCall) {
			m, u.before = u.before, m
			good, u.beforeOK = u.beforeOK, good
		}
		m.Cluster = u.cluster
		if good && !u.wrong {
			w.checkRead(u.id, m)
		}
		then(m, good)
	})
}

// checkRead checks bounds that were read at this instant.
func (w *world) checkRead(by uint64, m interval.Reading) {
	v := &w.interval
	if m.Cluster != w.cluster || v.wrong == wrongNode {
		return // of a cluster that was lost, or nothing is promised
	}
	if v.opened > m.Term {
		w.fail("I14: process %d reads the clock of term %d, and that of term %d runs", by, m.Term, v.opened)
	}
	if c, ok := v.clocks[m.Term]; ok {
		const rounding = 10 // nanoseconds
		if now := c.clock.Show(c.steady.read(w.now)); now+rounding < m.Earliest || now > m.Latest+rounding {
			w.fail("I14: process %d reads [%d, %d] in term %d, and the clock shows %d", by, m.Earliest, m.Latest, m.Term, now)
		}
	}
	if m.Latest < v.earliest {
		w.fail("I14: process %d reads the latest bound %d, and another has read the earliest bound %d before", by, m.Latest, v.earliest)
	}
	if m.Latest < v.answered.Time {
		w.fail("I14: process %d reads the latest bound %d, and the oracle has answered %v before", by, m.Latest, v.answered)
	}
	v.earliest = max(v.earliest, m.Earliest)
	w.stats.Readings++
	w.noteAnswered(formReading)
}

// use has u make a timestamp and wait it out, or only read, for ever.
func (w *world) use(u *user) {
	v := &w.interval
	w.act(u, time.Duration(v.rng.Int64N(int64(2*w.cfg.tick))), func() {
		if w.closing || !w.quiet && len(w.history) >= operationsMax {
			return
		}
		if v.rng.IntN(3) == 0 {
			w.read(u, func(interval.Reading, bool) { w.use(u) })
			return
		}
		began := w.now
		w.read(u, func(m interval.Reading, good bool) {
			t, ok := isotone.Timestamp{}, false
			if good {
				t, ok = u.generator.Next(m, 1)
			}
			if !ok || u.wrong || v.wrong == wrongNode {
				w.use(u)
				return
			}
			op := len(w.history)
			w.history = append(w.history, lincheck.Operation{Client: u.id, Invocation: int64(began)})
			w.checkMade(u, t)
			if v.rng.IntN(4) == 0 {
				if o, ok := u.generator.Next(m, 1); ok {
					w.checkMade(u, o)
				}
			}
			w.await(u, op, t, 200)
		})
	})
}

// checkMade checks that a timestamp is new.
func (w *world) checkMade(u *user, t isotone.Timestamp) {
	if v := &w.interval; v.made[t] {
		w.fail("I14: process %d makes %v, which exists", u.id, t)
	} else {
		v.made[t] = true
	}
}

// await completes an operation when its timestamp is past, or gives up after some reads.
func (w *world) await(u *user, op int, t isotone.Timestamp, tries int) {
	if tries == 0 || w.closing {
		w.use(u)
		return
	}
	w.read(u, func(m interval.Reading, good bool) {
		if good && interval.IsPast(t, m) || mutant.On(mutant.NoCommitWait) {
			o := &w.history[op]
			o.Completion, o.Range, o.Answered = int64(w.now), isotone.Range{First: t, Count: 1}, true
			w.stats.Waited++
			w.use(u)
			return
		}
		in := w.cfg.tick / 2
		if good {
			in = max(20*time.Microsecond, min(in, time.Duration(t.Time-min(t.Time, m.Earliest))))
		}
		w.act(u, in, func() { w.await(u, op, t, tries-1) })
	})
}

// noteClusterClock notes the clock that n runs, and what its process knows, after a turn.
func (w *world) noteClusterClock(n *node, e *replica.Effects) {
	v := &w.interval
	if v.length == 0 {
		return
	}
	cluster := n.replica.Brief().ClusterID
	if c, ok := n.replica.ClusterClock(); ok && cluster == w.cluster {
		v.clocks[c.Term] = termClock{c, n.steady}
		if c.Term > v.opened {
			w.trace("the clock of term %d runs on node %d", c.Term, n.id)
		}
		v.opened = max(v.opened, c.Term)
	}
	if e.ClockChanged {
		n.published, n.publishedBy = *n.replica.ClockEstimate(), cluster
	}
	for _, q := range e.AskClock {
		w.sendClockMessage(n, q.Peer, func(to *node) {
			to.in.clockAsks = append(to.in.clockAsks, replica.ClockAsk{Peer: n.id, Nonce: w.carryAsk(n, to, q.Nonce)})
		})
	}
	for _, a := range e.TellClock {
		w.sendClockMessage(n, a.Peer, func(to *node) {
			to.in.clockAnswers = append(to.in.clockAnswers, w.carryReading(n, to, a.Nonce, a.Reading))
		})
	}
}

// sendClockMessage sends a question about the cluster clock, or an answer, to a peer.
func (w *world) sendClockMessage(from *node, id uint64, deliver func(to *node)) {
	v, to := &w.interval, w.node(id)
	if to == nil || to == from || !w.connected(from, to) || w.link(from, to).blocked > 0 || v.rng.Float64() < w.weather.loss {
		return
	}
	lives := sessions(from, to)
	for range 1 + v.rng.IntN(20)/19 {
		w.after(v.transit(), func() {
			if w.connected(from, to) && lives == sessions(from, to) {
				deliver(to)
				w.wake(to)
			}
		})
	}
}

// checkAnswer checks an answer of the oracle against what was read before it was asked for, and notes
// it.
func (w *world) checkAnswer(k *call, r isotone.Range) {
	v := &w.interval
	if v.length == 0 {
		return
	}
	if r.First.Time < k.earliest && v.wrong != wrongNode {
		w.fail("I14: the oracle answers %v, and a process had read the earliest bound %d before it was asked", r.First, k.earliest)
	}
	if r.First.Index+r.Count > oracle.IndexMax {
		w.fail("I14: the oracle answers %v, whose index is one of clients", r.First)
	}
	if v.answered.Before(r.Last()) {
		v.answered = r.Last()
	}
}

// forgetClocks forgets what was known of a cluster that is lost.
func (w *world) forgetClocks() {
	v := &w.interval
	v.clocks, v.opened = map[uint64]termClock{}, 0
}

// lead is how much further ahead of the clocks the ceiling may be with a cluster clock: each change of
// leader puts that ahead, up to a bound.
func (v *intervals) lead(w *world) time.Duration {
	if v.length == 0 {
		return 0
	}
	return replica.ClientFloorAheadMax + 2*w.lead()
}
