package sim

import (
	cryptorand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/replica"
)

// Options configure a run.
type Options struct {
	Seed uint64
	// Duration is how long faults go on, in simulated time. 0: the seed decides.
	Duration time.Duration
	// Lease allows requests in lease mode.
	Lease bool
	// Trace, if not nil, receives a line for each event.
	Trace io.Writer
	// Observe, if not nil, returns who sees the steps of a process that begins.
	Observe func(replica.Config) replica.Observer
}

// Result is the outcome of a run.
type Result struct {
	// Hash is a hash of all events: equal for equal options and code.
	Hash     uint64
	Stats    Stats
	Coverage *Coverage
	// Violation is nil if every promise was kept.
	Violation error
}

// Stats counts what happened in one or more runs.
type Stats struct {
	Runs       uint64
	Simulated  time.Duration
	Operations uint64 // requests sent, answered or not
	Answered   uint64
	Turns      uint64 // steps of replicas
	Terms      uint64 // terms in which someone served
	Followed   uint64 // leaders that searching clients went to
	IDs        uint64 // ids made
	// Readings are bounds of the cluster clock that were read, Waited the timestamps that were made of
	// them and waited out.
	Readings, Waited uint64
	// Timelines are answers on timelines, TimelineChanges changes of them that operators have made.
	Timelines, TimelineChanges uint64
	// SessionAnswers are answers by which a session was alive, SessionsExpired the sessions that have ended, LocksGranted the locks. Of writes under tokens and
	// with stamps, those that a store has refused are fenced. Seals were carried out by users.
	SessionAnswers, SessionsExpired, LocksGranted, LockedWrites, LockedFenced, StampedWrites, StampedFenced, Seals, OverQuota uint64
	// RedisAnswers are answers to users of Redis libraries, RedisLocks the locks that they took.
	RedisAnswers, RedisLocks uint64
	// Contradictions are readings that contradicted others, because a steady clock had a wrong rate.
	Contradictions uint64
	// BrokenLinks is in how many runs links stayed broken after the other faults.
	BrokenLinks uint64
	// Worker leases: grants that a process began to use; renewals; grants taken over from
	// another holder whose lease had ended, and regained by a restarted node with a fixed
	// worker; releases; refused requests; and revocations by operators.
	WorkerGrants, WorkerRenewals, WorkerTakeovers, WorkerRestarts, WorkerReleases, WorkerRefusals, WorkerRevocations uint64
}

// Add adds the counts of another run.
func (s *Stats) Add(o Stats) {
	s.Runs += o.Runs
	s.Simulated += o.Simulated
	s.Operations += o.Operations
	s.Answered += o.Answered
	s.Turns += o.Turns
	s.Terms += o.Terms
	s.Followed += o.Followed
	s.IDs += o.IDs
	s.Readings += o.Readings
	s.Waited += o.Waited
	s.Timelines += o.Timelines
	s.TimelineChanges += o.TimelineChanges
	s.SessionAnswers += o.SessionAnswers
	s.SessionsExpired += o.SessionsExpired
	s.LocksGranted += o.LocksGranted
	s.RedisAnswers += o.RedisAnswers
	s.RedisLocks += o.RedisLocks
	s.LockedWrites += o.LockedWrites
	s.LockedFenced += o.LockedFenced
	s.StampedWrites += o.StampedWrites
	s.StampedFenced += o.StampedFenced
	s.OverQuota += o.OverQuota
	s.Seals += o.Seals
	s.Contradictions += o.Contradictions
	s.BrokenLinks += o.BrokenLinks
	s.WorkerGrants += o.WorkerGrants
	s.WorkerRenewals += o.WorkerRenewals
	s.WorkerTakeovers += o.WorkerTakeovers
	s.WorkerRestarts += o.WorkerRestarts
	s.WorkerReleases += o.WorkerReleases
	s.WorkerRefusals += o.WorkerRefusals
	s.WorkerRevocations += o.WorkerRevocations
}

// healTicks is how soon, in ticks, the cluster must answer after the last fault: ten of the
// longest election timeouts, for repeated split votes and for nodes that have to catch up.
const healTicks = 400

// Run makes one run.
func Run(o Options) Result {
	defer func(r io.Reader) { cryptorand.Reader = r }(cryptorand.Reader)
	cryptorand.Reader = jitter{rand.New(rand.NewPCG(o.Seed, 0xe1ec7))}
	w := newWorld(o)
	w.trace("seed %d: %d nodes, tick %v, epoch %v in %d ticks, faults %v every %v for %v", o.Seed, w.cfg.size, w.cfg.tick,
		w.cfg.epochInterval, w.cfg.epochTicks, w.cfg.kinds, w.cfg.faultEvery, w.cfg.duration)
	w.live()
	w.judge()
	w.stats.Runs, w.stats.Simulated, w.stats.Turns = 1, w.now, w.turns
	w.stats.Operations = uint64(len(w.history))
	w.note('e', w.turns, w.stats.Answered)
	return Result{Hash: w.hash.Sum64(), Stats: w.stats, Coverage: w.coverage, Violation: w.violation}
}

// live lets the run happen. A panic is a violation.
func (w *world) live() {
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic: %v", p)
			w.trace("%s", debug.Stack())
		}
	}()
	w.populate()
	w.injectFaults()
	w.advance(w.cfg.duration)
	w.heal()
	w.breakLinks()
	w.advance(w.now + 5*w.cfg.tick)
	w.closing = true
	w.advance(w.now + 2*timeoutMax*w.cfg.tick)
}

// heal ends all faults and waits for an answer.
func (w *world) heal() {
	w.quiet, w.healing = true, true
	w.advance(w.now + refusalTicks*w.cfg.tick) // tampering ends by itself
	w.trace("HEAL")
	w.weather = calm(w.cfg.tick)
	w.mendLinks()
	for _, n := range w.nodes {
		n.disk.mode = diskNormal
		n.clock.settle(w.now)
		n.clock.frozen = false
		n.pauseNext = 0
		if n.up() {
			n.paused = false
			w.sync(n)
			w.wake(n)
		} else if !n.refused {
			w.start(n)
		}
	}
	for _, c := range w.clients {
		if len(w.history) >= operationsMax {
			w.runClient(c)
		}
	}
	if w.cfg.formation.mayFail() {
		w.advance(w.now + healTicks*w.cfg.tick)
		return
	}
	w.awaitAnswers()
	w.awaitWorkers()
}

// hasQuorum reports whether a quorum of the voters has kept its disk: a change of membership
// that was on its way when one lost it may have left two, and the lost one is one of them.
func (w *world) hasQuorum() bool {
	latest := w.latest()
	if latest == nil {
		return false
	}
	var voters []uint64
	for _, m := range latest.replica.Members() {
		if !m.Learner {
			voters = append(voters, m.ID)
		}
	}
	outgoing := latest.replica.OutgoingVoters()
	return w.haveKept(voters) && (len(outgoing) == 0 || w.haveKept(outgoing))
}

// haveKept reports whether a majority of the nodes has kept its disk.
func (w *world) haveKept(ids []uint64) bool {
	kept := 0
	for _, id := range ids {
		if o := w.node(id); o != nil && o.tampered != wipedAmidst {
			kept++
		}
	}
	return kept > len(ids)/2
}

// judge checks the history.
func (w *world) judge() {
	if w.violation != nil {
		return
	}
	if err := lincheck.Check(w.history); err != nil {
		w.fail("%w", err)
	}
	w.judgeTimelines()
}

// jitter is the source of Raft's election timeouts.
type jitter struct{ rng *rand.Rand }

func (j jitter) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(j.rng.Uint64())
	}
	return len(b), nil
}

// raftLog writes Raft's log into the trace.
type raftLog struct {
	w  *world
	id uint64
}

func (l raftLog) line(format string, v []any) {
	if l.w.out != nil {
		l.w.trace("node %d raft: %s", l.id, fmt.Sprintf(format, v...))
	}
}

func (l raftLog) Debug(v ...any)              {}
func (l raftLog) Debugf(f string, v ...any)   {}
func (l raftLog) Info(v ...any)               { l.line("%s", v) }
func (l raftLog) Infof(f string, v ...any)    { l.line(f, v) }
func (l raftLog) Warning(v ...any)            { l.line("%s", v) }
func (l raftLog) Warningf(f string, v ...any) { l.line(f, v) }
func (l raftLog) Error(v ...any)              { l.line("%s", v) }
func (l raftLog) Errorf(f string, v ...any)   { l.line(f, v) }
func (l raftLog) Fatal(v ...any)              { panic(fmt.Sprint(v...)) }
func (l raftLog) Fatalf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
func (l raftLog) Panic(v ...any)              { panic(fmt.Sprint(v...)) }
func (l raftLog) Panicf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
