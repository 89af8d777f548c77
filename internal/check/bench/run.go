package bench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/core/lincheck"
)

const (
	// tick is how often the coordinator empties the shards and looks for silent
	// connections.
	tick = 100 * time.Millisecond
	// progressEvery is how often Options.Progress is called.
	progressEvery = time.Second
	// dialsMax bounds the connections that are being opened at the same time, so that they
	// do not overflow the listen queue of a node.
	dialsMax = 64
	// interruptedWait bounds the wait for outstanding answers after an interruption.
	interruptedWait = time.Second
)

// Progress is what happened in the last second or so.
type Progress struct {
	// Passed is the time since the warm-up ended.
	Passed time.Duration
	// Span is the time that Answers, Errors, P50 and P99 cover.
	Span time.Duration
	// Answers and Errors are counts, P50 and P99 latencies.
	Answers, Errors uint64
	P50, P99        time.Duration
	// Violations is the number since the beginning of the run.
	Violations uint64
}

// run is one load under way.
type run struct {
	options    *Options
	protocol   protocol
	route      *route
	online     *lincheck.Online
	load       load
	sleep      func(time.Duration) // of the pacer
	callers    []*caller
	shards     []*shard
	gap        gap
	total      *total
	violations Violations
	dials      chan struct{} // a token for each dial under way
	made       atomic.Uint64
	told       string // the latest argument of Options.Elsewhere

	start  time.Time
	warmup int64 // when it ends
	// hard is cancelled when the run stops waiting for answers.
	hard    context.Context
	abandon context.CancelFunc
}

// now returns the nanoseconds since the run began.
func (r *run) now() int64 { return int64(time.Since(r.start)) }

// Run puts load on an oracle until the duration or the number of requests is reached, or
// ctx ends, and returns the result. A [TargetError] means that no load was possible. A
// result with violations is not an error. All its goroutines have ended when it returns.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	_, secure := o.targets()
	p := newProtocol(&o, secure)
	defer p.close()
	route, err := probe(ctx, &o, p)
	if err != nil {
		return nil, err
	}
	sleep, release := newSleep()
	defer release()
	return newRun(&o, p, route, sleep).do(ctx)
}

func newRun(o *Options, p protocol, route *route, sleep func(time.Duration)) *run {
	r := &run{
		options: o, protocol: p, route: route, sleep: sleep,
		online: lincheck.NewOnline(o.Window),
		total:  newTotal(),
		dials:  make(chan struct{}, dialsMax),
		start:  time.Now(),
		warmup: int64(o.Warmup),
	}
	r.violations.Name = o.Violations
	callers, depth := p.shape()
	for range min(callers, shardsMax, 2*runtime.GOMAXPROCS(0)) {
		r.shards = append(r.shards, &shard{counts: newCounts()})
	}
	for i := range callers {
		r.callers = append(r.callers, newCaller(i, r, depth))
	}
	return r
}

// do connects, runs the load, and waits for the requests under way.
func (r *run) do(ctx context.Context) (*Result, error) {
	r.hard, r.abandon = context.WithCancel(context.Background())
	defer r.abandon()
	r.tellElsewhere()
	r.connect(ctx)
	began := time.Now()
	r.start = began
	r.gap.open(r.warmup)

	var pacer sync.WaitGroup
	if r.options.Rate > 0 {
		open := newOpenLoop(r)
		r.load = open
		pacer.Go(func() { open.pace(r.sleep) })
	} else {
		r.load = newClosedLoop(r)
	}
	var callers sync.WaitGroup
	for _, c := range r.callers {
		callers.Go(c.work)
	}
	done := make(chan struct{})
	go func() {
		callers.Wait()
		pacer.Wait()
		close(done)
	}()
	r.coordinate(ctx, done)
	r.tellElsewhere() // a short run may have ended before the first tick
	end := r.now()
	r.settle(end)
	result := r.result(began, end, ctx.Err() != nil)
	return result, errors.Join(r.violations.Close(), r.silence(result))
}

// connect has every caller try to connect once before the clock starts.
func (r *run) connect(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.abandon)
	var dials sync.WaitGroup
	for _, c := range r.callers {
		dials.Go(func() { c.connect() })
	}
	dials.Wait()
	stop()
	for _, c := range r.callers {
		c.resting = false
	}
	r.total.collect(r.shards) // discard these failures: they recur in the run
}

// dial connects a caller, at most dialsMax at a time.
func (r *run) dial(id int, addr string) (conn, error) {
	select {
	case r.dials <- struct{}{}:
		defer func() { <-r.dials }()
	case <-r.hard.Done():
		return nil, r.hard.Err()
	}
	ctx, cancel := context.WithTimeout(r.hard, r.options.Timeout)
	defer cancel()
	return r.protocol.dial(ctx, id, addr)
}

// coordinate ends the load and supervises the callers until done is closed.
func (r *run) coordinate(ctx context.Context, done <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var over, patience <-chan time.Time
	if r.options.Duration > 0 && r.options.Rate == 0 {
		over = time.After(time.Duration(r.warmup) + r.options.Duration)
	}
	interrupted := ctx.Done()
	stop := sync.OnceFunc(r.load.stop)
	defer stop()
	shown := r.warmup
	for {
		select {
		case <-done:
			return
		case <-over:
			stop()
		case <-interrupted:
			interrupted = nil
			stop()
			patience = time.After(min(interruptedWait, r.options.Timeout))
		case <-patience:
			stop()
			r.abandon()
			r.expire()
		case <-ticker.C:
			if patience == nil && r.load.ended() {
				patience = time.After(r.options.Timeout)
			}
			shown = r.turn(shown)
		}
	}
}

// tellElsewhere calls Options.Elsewhere if the node under load is new and not a target.
func (r *run) tellElsewhere() {
	addr := r.route.elsewhere()
	if addr == "" || addr == r.told || r.options.Elsewhere == nil {
		return
	}
	r.told = addr
	r.options.Elsewhere(addr)
}

// expire closes connections that have waited too long for an answer and, after hard is
// cancelled, all that wait for one.
func (r *run) expire() {
	before := r.now()
	if r.hard.Err() == nil {
		before -= int64(r.options.Timeout)
	}
	for _, c := range r.callers {
		c.expire(before)
	}
}

// turn runs at every tick. It takes and returns the time of the last progress report.
func (r *run) turn(shown int64) int64 {
	r.expire()
	r.tellElsewhere()
	now := r.now()
	if now < r.warmup {
		return shown
	}
	r.total.sweep(r.shards, r.warmup, now)
	if r.options.Progress == nil || now-shown < int64(progressEvery) {
		return shown
	}
	s := &r.total.second
	r.options.Progress(Progress{
		Passed:     time.Duration(now - r.warmup),
		Span:       time.Duration(now - shown),
		Answers:    s.answers,
		Errors:     sum(s.errors),
		P50:        time.Duration(s.latency.ValueAtQuantile(50)),
		P99:        time.Duration(s.latency.ValueAtQuantile(99)),
		Violations: r.online.Stats().Violations,
	})
	s.reset()
	return now
}

// settle counts unanswered and dropped arrivals after all callers have ended.
func (r *run) settle(end int64) {
	unanswered := func(due int64) {
		if due >= r.warmup {
			r.shards[0].unanswered(end - due)
		}
	}
	for _, c := range r.callers {
		for _, due := range c.overdue {
			unanswered(due)
		}
	}
	if open, ok := r.load.(*openLoop); ok {
		for due := range open.arrivals { // closed by the pacer
			unanswered(due)
		}
		if n := open.dropped.Load(); n > 0 {
			r.shards[0].failed(codeDropped, int(n))
		}
	}
	r.gap.note(end)
	r.total.sweep(r.shards, r.warmup, max(end, r.warmup))
}

// silence returns an error if no request was answered.
func (r *run) silence(result *Result) error {
	if result.Verdict.Checked > 0 {
		return nil
	}
	_, failure := r.route.leaders()
	if failure == "" {
		return targetErrorf("no request was answered before the run ended")
	}
	return targetErrorf("no request was answered; %d failed; the last one: %s", result.Result.ErrorsTotal, failure)
}
