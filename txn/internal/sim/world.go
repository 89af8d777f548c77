package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/check"
	"github.com/isotone/isotone/txn/internal/volatile"
)

// Options says what to simulate.
type Options struct {
	Seed uint64
	// Trace has every step logged.
	Trace bool
	// Frontier has commit timestamps be stamps of a group, and clients read at its frontier.
	Frontier bool
}

// Result is what a run gave.
type Result struct {
	// Violation is what is wrong, or nil.
	Violation error
	// Steps is the number of calls that were carried out. The others count transactions by their
	// status, and what happened to them.
	Steps, Committed, Aborted, Unknown, Crashes, Late, Cleaned, Collected, Restarts int
	// Fenced is the number of commits that a fence has refused, AtFrontier that of reads of everything at a frontier, and Again how many of them were of one that was read before.
	Fenced, AtFrontier, Again int
	// Fingerprint is a hash of all steps.
	Fingerprint uint64
}

const (
	stepsMax      = 4000 // of a run, far above what one takes without a livelock
	finalStepsMax = 4000 // after the last fault
	finalClient   = 1000 // the client that reads everything at the end
)

// spaces are the names of the stores.
var spaces = []string{"a", "b"}

// faults are the probabilities of one run. Each run draws its own: faults that are always there hide
// what only happens without them.
type faults struct {
	drop, lose, late, slow               float64 // of a call
	crash, stall, cut, tick, fail, stray float64 // of a step
	steady                               float64 // of a step, for each client's clock
	collect                              int     // one of so many transactions collects garbage; 0 for none
}

// world is one run.
type world struct {
	t      *testing.T
	opts   Options
	rng    *rand.Rand
	faults faults
	disks  map[string]*disk
	oracle oracle
	group  group

	// The stores have chances of their own, so that without their faults a seed means what it has always meant.
	diskRNG    *rand.Rand
	diskFaults diskFaults

	mu      sync.Mutex
	pending []*request
	late    []*request // writes that were reported as failed and are still to come
	closing bool
	step    int
	dead    map[int]bool
	stalled map[int]int // by client: until which step
	cut     map[int]int // the same; a client that is cut off gets no answers
	clocks  map[int]time.Duration
	running int // clients that have not finished
	clients int
	entries []*entry
	result  Result
}

// request is a call that waits for the scheduler.
type request struct {
	client   int
	name     string
	isWrite  bool
	isSleep  bool
	exec     func() (any, error)
	disk     *disk // nil if it is not about a store
	life     int   // of the disk, and how many changes it had, when exec was called
	seen     int
	executed bool
	gone     bool // nobody waits for the answer
	answer   answer
	reply    chan answer
}

type answer struct {
	value any
	err   error
}

// execute carries out the call. Of a write that was refused there is nothing to be synced.
func (r *request) execute() {
	if r.disk != nil {
		r.life = r.disk.life
	}
	r.answer.value, r.answer.err = r.exec()
	if done, isWrite := r.answer.value.(bool); r.disk != nil && (done || !isWrite || r.answer.err != nil) {
		r.seen = r.disk.Written()
	}
	r.executed = true
}

// isLost reports whether the store has restarted, or failed, before it could answer.
func (r *request) isLost() bool { return r.disk != nil && (r.disk.life != r.life || r.disk.broken) }

// mayFinish reports whether a call has not been carried out, or may be answered.
func (r *request) mayFinish() bool {
	return !r.executed || r.disk == nil || r.isLost() || r.disk.mayAnswer(r.seen, r.isWrite)
}

var (
	errLost   = errors.New("no answer")
	errClosed = errors.New("the simulation is over")
)

// Run runs one simulation. It has to be called outside of a bubble of synctest.
func Run(t *testing.T, opts Options) (result Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 7)), disks: map[string]*disk{},
			diskRNG: rand.New(rand.NewPCG(opts.Seed, 8)), diskFaults: diskFaults{sync: 1}, group: newGroup(),
			dead: map[int]bool{}, stalled: map[int]int{}, cut: map[int]int{}, clocks: map[int]time.Duration{},
		}
		w.drawFaults()
		for _, space := range spaces {
			w.disks[space] = &disk{Store: volatile.New()}
		}
		w.oracle.milli = 1000
		w.run()
		result = w.result
	})
	return result
}

func (w *world) drawFaults() {
	some := func(p float64) float64 {
		if w.rng.IntN(2) == 0 {
			return 0
		}
		return p * w.rng.Float64()
	}
	w.faults = faults{
		drop: some(0.2), lose: some(0.2), late: some(0.3), slow: some(0.6),
		crash: some(0.02), stall: some(0.1), tick: some(0.4), fail: some(0.01), stray: some(0.2),
		cut: some(0.02), collect: []int{0, 4, 12}[w.rng.IntN(3)],
	}
}

func (w *world) run() {
	w.setUp()
	if w.opts.Frontier {
		w.startSealer()
	}
	for range 2 + w.rng.IntN(4) {
		w.spawn()
	}
	for w.step < stepsMax && w.alive() && w.next() {
	}
	w.finale()
	w.close()
	w.judge()
}

// alive reports whether a client still works.
func (w *world) alive() bool {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running > 0
}

// finale stops all clients, and has a last one read everything without faults.
func (w *world) finale() {
	for client := range w.clients {
		w.kill(client)
	}
	w.faults = faults{tick: 0.2, stray: w.faults.stray}
	if w.diskRNG.IntN(2) == 0 { // the oracle's time holds: the last client has only its own clock
		w.faults.tick, w.faults.steady = 0, 0.2
	}
	w.mu.Lock()
	for _, space := range spaces {
		w.disks[space].restart(w.diskRNG)
	}
	w.diskFaults = diskFaults{sync: 1}
	w.mu.Unlock()
	clear(w.cut)
	w.oracle.failing = 0
	w.running = 1
	go w.readAll()
	for end := w.step + finalStepsMax; w.alive(); {
		if w.step >= end || !w.next() {
			w.report(errors.New("liveness: the last client could not read everything"))
			return
		}
	}
}

// close lets all goroutines end.
func (w *world) close() {
	synctest.Wait()
	w.mu.Lock()
	w.closing = true
	w.result.Steps = w.step
	for _, r := range w.pending {
		r.reply <- answer{err: errClosed} // in any order, so not traced
	}
	w.pending = nil
	w.mu.Unlock()
	synctest.Wait()
}

func (w *world) report(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.Violation == nil && !w.closing {
		w.result.Violation = err
	}
}

// call has the scheduler carry out exec.
func (w *world) call(ctx context.Context, r *request) (any, error) {
	r.reply = make(chan answer, 1)
	w.mu.Lock()
	if w.closing || ctx.Err() != nil {
		w.mu.Unlock()
		return nil, cmp.Or(ctx.Err(), errClosed)
	}
	w.pending = append(w.pending, r)
	w.mu.Unlock()
	select {
	case a := <-r.reply:
		return a.value, a.err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		r.gone = true
		return nil, ctx.Err()
	}
}

func (w *world) reply(r *request, a answer) {
	w.trace(r, "answered", a)
	r.reply <- a
}

func (w *world) trace(r *request, what string, a answer) {
	line := fmt.Sprintf("%d client %d %s %s %v", w.step, r.client, r.name, what, a.err)
	for i := range len(line) {
		w.result.Fingerprint = (w.result.Fingerprint ^ uint64(line[i])) * 1099511628211
	}
	if w.opts.Trace {
		w.t.Log(line)
	}
}

// next takes one step. It returns false if nothing can happen any more.
func (w *world) next() bool {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step++
	w.trouble()
	w.mishap()
	ready := w.ready()
	if len(ready) == 0 {
		if len(w.pending) > 0 && w.diskFaults.sync < 1 {
			clear(w.stalled)
			w.syncAll()
			return len(w.ready()) > 0
		}
		if len(w.stalled) == 0 {
			return false
		}
		clear(w.stalled)
		return true
	}
	r := ready[w.rng.IntN(len(ready))]
	if r.isSleep && w.rng.IntN(2) == 0 { // most calls are faster than timers
		r = ready[w.rng.IntN(len(ready))]
	}
	w.carryOut(r)
	return true
}

// ready returns the requests of clients that do not stall, in an order that depends on nothing but
// what they are.
func (w *world) ready() (list []*request) {
	w.pending = slices.DeleteFunc(w.pending, func(r *request) bool { return r.gone && (!r.isWrite || r.executed) })
	for _, r := range w.pending {
		if !w.dead[r.client] && w.stalled[r.client] <= w.step && r.mayFinish() {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.client, b.client), strings.Compare(a.name, b.name))
	})
	return list
}

// mishap has faults happen that are not about one call.
func (w *world) mishap() {
	happens := func(p float64) bool { return p > 0 && w.rng.Float64() < p }
	if happens(w.faults.tick) {
		w.oracle.milli += w.rng.Uint64N(12)
	}
	if p := w.faults.steady; p > 0 && w.diskRNG.Float64() < p { // clocks need not agree, nor with the oracle's time
		client := w.diskRNG.IntN(w.clients)
		if w.dead[client] {
			client = finalClient
		}
		w.clocks[client] += time.Duration(w.diskRNG.IntN(12)) * time.Millisecond
	}
	if w.opts.Frontier {
		w.endSession()
	}
	if happens(w.faults.fail) {
		w.oracle.failOver(w.rng)
	}
	if len(w.late) > 0 && happens(w.faults.stray) {
		i := w.rng.IntN(len(w.late))
		r := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		value, err := r.exec()
		w.result.Late++
		w.trace(r, "arrived late: "+describe(value), answer{err: err})
	}
	if happens(w.faults.stall) {
		w.stalled[w.rng.IntN(w.clients)] = w.step + w.rng.IntN(300)
	}
	if happens(w.faults.cut) {
		w.cut[w.rng.IntN(w.clients)] = w.step + w.rng.IntN(400)
	}
	if happens(w.faults.crash) {
		if client := w.rng.IntN(w.clients); !w.dead[client] && w.result.Crashes < 6 {
			w.result.Crashes++
			w.killLocked(client)
			w.running--
			w.spawn()
		}
	}
}

// carryOut carries out one call, or fails to.
func (w *world) carryOut(r *request) {
	if r.executed || r.isSleep {
		if r.isLost() {
			r.answer = answer{err: errLost}
		}
		w.finish(r, r.answer)
		return
	}
	p := w.rng.Float64()
	f := w.faults
	if w.cut[r.client] > w.step {
		f = faults{drop: 0.5, lose: 1}
	}
	switch {
	case p < f.drop:
		w.finish(r, answer{err: errLost})
		return
	case p < f.drop+f.late && r.isWrite:
		w.late = append(w.late, r)
		w.finish(r, answer{err: errLost})
		return
	}
	r.execute()
	w.trace(r, "done: "+describe(r.answer.value), r.answer)
	switch p = w.rng.Float64(); {
	case p < f.lose:
		w.finish(r, answer{err: errLost})
	case p >= f.lose+f.slow && r.mayFinish():
		w.finish(r, r.answer)
	}
}

func (w *world) finish(r *request, a answer) {
	w.pending = slices.DeleteFunc(w.pending, func(other *request) bool { return other == r })
	w.reply(r, a)
}

func (w *world) kill(client int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killLocked(client)
}

// killLocked crashes a client: nothing is answered to it any more. What it has sent may have been lost,
// or arrives.
func (w *world) killLocked(client int) {
	if w.dead[client] {
		return
	}
	w.dead[client] = true
	list := slices.Clone(w.pending)
	slices.SortStableFunc(list, func(a, b *request) int { return strings.Compare(a.name, b.name) })
	for _, r := range list {
		if r.client == client && r.isWrite && !r.executed {
			switch w.rng.IntN(3) {
			case 0:
				_, _ = r.exec()
			case 1:
				w.late = append(w.late, r)
			}
			r.executed = true
		}
	}
}

// judge checks the history.
func (w *world) judge() {
	var history []check.Txn
	for _, e := range w.entries {
		t := e.txn
		if e.tx != nil {
			t.Commit = uint64(e.tx.CommitTimestamp())
		}
		switch t.Status {
		case check.Committed:
			w.result.Committed++
		case check.Aborted:
			w.result.Aborted++
		case check.Unknown:
			w.result.Unknown++
		}
		history = append(history, t)
		if t.Status != check.Committed && len(e.reads) > 0 {
			// What it has read is as good as that of a transaction that only reads.
			history = append(history, check.Txn{Name: t.Name + "-reads", Status: check.Committed, Ops: e.reads, Begin: t.Begin})
		}
	}
	if w.opts.Trace {
		for i := range history {
			w.t.Log(history[i].String())
		}
	}
	if w.result.Violation == nil {
		w.result.Violation = check.Check(history)
	}
}

// database returns a DB as a client has it.
func (w *world) database(client int, rng *rand.Rand) *txn.DB {
	stores := map[string]txn.Store{}
	for _, space := range spaces {
		stores[space] = &remote{w: w, client: client, space: space}
	}
	opts := txn.Options{
		Stores: stores, LockTTL: lockTTL, BackgroundMax: -1, Sleep: w.sleeper(client), Now: w.clock(client),
		Hooks: txn.Hooks{Cleaned: func(txn.Cleaned) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.result.Cleaned++
		}},
	}
	if rng.IntN(2) == 0 {
		opts.BackgroundMax = 2
	}
	opts.Parallel = []int{1, 2, 16}[rng.IntN(3)]
	if w.opts.Frontier {
		opts.Frontier = w.takeStamp(client)
	}
	db, err := txn.New(&remoteOracle{w: w, client: client}, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return db
}
