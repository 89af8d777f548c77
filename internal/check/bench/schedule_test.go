package bench

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone"
)

// fakeOracle answers each request a millisecond after it was sent, except when it stalls.
// It is for tests with a fake clock.
type fakeOracle struct {
	callers, depth int
	// stalls are times since the first dial; answers due within a stall come at its end.
	stalls []stall
	// refusals is how many dials fail before the first succeeds.
	refusals int

	mu      sync.Mutex
	began   time.Time
	next    uint64
	answers int
}

type stall struct{ from, to time.Duration }

func (o *fakeOracle) shape() (callers, depth int) { return o.callers, o.depth }

func (o *fakeOracle) client() http.RoundTripper { return nil }

func (o *fakeOracle) close() {}

func (o *fakeOracle) dial(context.Context, int, string) (conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		o.began = time.Now()
	}
	if o.refusals > 0 {
		o.refusals--
		return nil, errors.New("refused")
	}
	return &fakeConn{oracle: o, broken: make(chan struct{})}, nil
}

// wait returns how long the answer to a request sent now takes.
func (o *fakeOracle) wait() time.Duration {
	at := time.Since(o.began) + time.Millisecond
	for _, s := range o.stalls {
		if at >= s.from && at < s.to {
			at = s.to
		}
	}
	return at - time.Since(o.began)
}

type fakeConn struct {
	oracle *fakeOracle
	due    []time.Time
	once   sync.Once
	broken chan struct{}
}

func (c *fakeConn) send(n int) error {
	for range n {
		c.due = append(c.due, time.Now().Add(c.oracle.wait()))
	}
	return nil
}

func (c *fakeConn) receive(a *answer) error {
	select {
	case <-time.After(time.Until(c.due[0])):
	case <-c.broken:
		return errors.New("broken")
	}
	c.due = c.due[1:]
	c.oracle.mu.Lock()
	defer c.oracle.mu.Unlock()
	c.oracle.next++
	c.oracle.answers++
	*a = answer{issued: isotone.Range{First: isotone.Timestamp{Time: 1, Index: c.oracle.next}, Count: 1}}
	return nil
}

func (c *fakeConn) buffered() bool { return len(c.due) > 0 && !time.Now().Before(c.due[0]) }

func (c *fakeConn) abort() { c.once.Do(func() { close(c.broken) }) }

func (c *fakeConn) close() {}

// runFake puts load on a fake oracle with a fake clock.
func runFake(t *testing.T, oracle *fakeOracle, change func(*Options)) *Result {
	t.Helper()
	o := testOptions(func(o *Options) {
		o.Duration, o.Requests, o.Timeout = 10*time.Second, 0, 5*time.Second
		o.Connections, o.Pipeline = oracle.callers, oracle.depth
		change(o)
	})
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	var result *Result
	synctest.Test(t, func(t *testing.T) {
		var err error
		if result, err = newRun(o, oracle, newRoute([]string{"a:1"}), time.Sleep).do(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if !result.Verdict.OK || result.Verdict.Checked == 0 {
		t.Errorf("verdict: %+v", result.Verdict)
	}
	return result
}

// within fails unless low <= got <= high.
func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s is %v, want %v to %v", what, got, low, high)
	}
}

func TestOpenLoop_CountsAStallThatAClosedLoopHides(t *testing.T) {
	stalled := func() *fakeOracle {
		return &fakeOracle{callers: 4, depth: 1, stalls: []stall{{4 * time.Second, 5 * time.Second}}}
	}
	open := runFake(t, stalled(), func(o *Options) { o.Rate = 100 })
	closed := runFake(t, stalled(), func(*Options) {})

	// One of ten arrivals falls into the stall; they wait half a second on average.
	if open.Result.Answers != 1000 || open.Result.ErrorsTotal != 0 {
		t.Errorf("open loop: %d answers, %d errors; want 1000 and none", open.Result.Answers, open.Result.ErrorsTotal)
	}
	within(t, "open loop: p50", open.Result.Latency.P50, 990, 1200)
	within(t, "open loop: mean", open.Result.Latency.Mean, 45_000, 60_000)
	within(t, "open loop: p99", open.Result.Latency.P99, 880_000, 930_000)
	within(t, "open loop: max", open.Result.Latency.Max, 995_000, 1_002_000)
	// Four requests of about 36,000 fall into the stall.
	within(t, "closed loop: p99.9", closed.Result.Latency.P999, 990, 1200)
	within(t, "closed loop: max", closed.Result.Latency.Max, 995_000, 1_002_000)
	for name, r := range map[string]*Result{"open": open, "closed": closed} {
		within(t, name+" loop: longest gap", float64(r.Result.LongestGap.Length), 0.99, 1.02)
		within(t, name+" loop: its beginning", float64(r.Result.LongestGap.At), 3.98, 4.01)
	}
}

func TestOpenLoop_TakesWhatIsDueInBatches(t *testing.T) {
	r := runFake(t, &fakeOracle{callers: 2, depth: 8, stalls: []stall{{time.Second, 2 * time.Second}}}, func(o *Options) { o.Rate = 1000 })
	if r.Result.Answers != 10_000 {
		t.Errorf("%d answers, want 10000", r.Result.Answers)
	}
	within(t, "max", r.Result.Latency.Max, 990_000, 1_010_000)
}

func TestOpenLoop_DropsWhatTheBacklogCannotHold(t *testing.T) {
	r := runFake(t, &fakeOracle{callers: 4, depth: 1, stalls: []stall{{4 * time.Second, 5 * time.Second}}}, func(o *Options) {
		o.Rate, o.Backlog = 1000, 100
	})
	// Of the 1,000 arrivals within the stall, 4 are sent and 100 wait.
	within(t, "dropped", float64(r.Result.Errors[codeDropped]), 890, 900)
	if r.Result.Answers+r.Result.ErrorsTotal != 10_000 {
		t.Errorf("%d answers and %d errors are not 10000 arrivals", r.Result.Answers, r.Result.ErrorsTotal)
	}
}

func TestOpenLoop_CountsWhatIsNeverAnswered(t *testing.T) {
	r := runFake(t, &fakeOracle{callers: 4, depth: 1, stalls: []stall{{9 * time.Second, time.Hour}}}, func(o *Options) {
		o.Rate, o.Timeout = 100, 2*time.Second
	})
	// The last second's arrivals have no answer, and have waited 2 s more at the end.
	within(t, "unanswered", float64(r.Result.Errors[codeUnanswered]), 99, 102)
	within(t, "max", r.Result.Latency.Max, 2_900_000, 3_400_000)
	within(t, "p99", r.Result.Latency.P99, 2_500_000, 3_400_000)
	within(t, "longest gap", float64(r.Result.LongestGap.Length), 2.9, 3.4)
}

func TestOpenLoop_EndsAfterTheRequests(t *testing.T) {
	r := runFake(t, &fakeOracle{callers: 4, depth: 1}, func(o *Options) {
		o.Rate, o.Duration, o.Requests, o.Warmup = 100, 0, 50, 1005*time.Millisecond
	})
	if r.Result.Answers != 50 || r.Verdict.Checked != 151 {
		t.Errorf("%d answers counted, %d checked; want 50 and 151", r.Result.Answers, r.Verdict.Checked)
	}
}

func TestClosedLoop_EndsAfterTheRequests(t *testing.T) {
	for _, depth := range []int{1, 7} {
		r := runFake(t, &fakeOracle{callers: 3, depth: depth}, func(o *Options) { o.Duration, o.Requests = 0, 100 })
		if r.Result.Answers != 100 || r.Verdict.Checked != 100 {
			t.Errorf("depth %d: %d answers counted, %d checked; want 100", depth, r.Result.Answers, r.Verdict.Checked)
		}
	}
}

func TestClosedLoop_DoesNotCountTheWarmUp(t *testing.T) {
	stalled := &fakeOracle{callers: 1, depth: 1, stalls: []stall{{time.Second, 2 * time.Second}}}
	r := runFake(t, stalled, func(o *Options) { o.Warmup, o.Duration = 3*time.Second, time.Second })
	within(t, "answers", float64(r.Result.Answers), 990, 1010)
	within(t, "checked", float64(r.Verdict.Checked), 2990, 3010)
	within(t, "max", r.Result.Latency.Max, 990, 1010)
	within(t, "elapsed", float64(r.Result.Elapsed), 0.99, 1.01)
	within(t, "longest gap", float64(r.Result.LongestGap.Length), 0.0009, 0.003)
}

func TestRun_ErrorsOfTheWarmUpDoNotCount(t *testing.T) {
	stalled := func() *fakeOracle {
		return &fakeOracle{callers: 4, depth: 1, stalls: []stall{{0, 2950 * time.Millisecond}}}
	}
	for _, warmup := range []time.Duration{0, 3 * time.Second} {
		r := runFake(t, stalled(), func(o *Options) { o.Warmup, o.Timeout, o.Duration = warmup, time.Second, 4*time.Second-warmup })
		if counted := r.Result.ErrorsTotal > 0; counted != (warmup == 0) {
			t.Errorf("warm-up %v: errors %v", warmup, r.Result.Errors)
		}
	}
}

func TestRun_AFirstAttemptToConnectIsNoError(t *testing.T) {
	few := func(o *Options) { o.Requests, o.Duration = 100, 0 }
	r := runFake(t, &fakeOracle{callers: 4, depth: 1, refusals: 3}, few)
	if r.Result.ErrorsTotal != 0 {
		t.Errorf("errors %v: those before the start do not count", r.Result.Errors)
	}
	r = runFake(t, &fakeOracle{callers: 4, depth: 1, refusals: 9}, few)
	if r.Result.Errors[codeConnection] != 5 {
		t.Errorf("errors %v, want 5 after the 4 before the start", r.Result.Errors)
	}
}

func TestRun_BreaksConnectionsThatAreSilentForTooLong(t *testing.T) {
	stalled := &fakeOracle{callers: 2, depth: 1, stalls: []stall{{time.Second, 4 * time.Second}}}
	r := runFake(t, stalled, func(o *Options) { o.Timeout = time.Second })
	if got := r.Result.Errors[codeTimeout]; got < 4 || got > 6 {
		t.Errorf("%d timeouts, want 4 to 6 in 3 s with 2 connections: %v", got, r.Result.Errors)
	}
	within(t, "longest gap", float64(r.Result.LongestGap.Length), 2.9, 3.2)
}

func TestRun_EndsSoonWhenInterrupted(t *testing.T) {
	o := testOptions(func(o *Options) { o.Duration, o.Requests, o.Rate = time.Hour, 0, 50 })
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		oracle := &fakeOracle{callers: 4, depth: 1, stalls: []stall{{1900 * time.Millisecond, time.Hour}}}
		began := time.Now()
		r, err := newRun(o, oracle, newRoute([]string{"a:1"}), time.Sleep).do(ctx)
		if err != nil || !r.Result.Interrupted || r.Result.Answers < 90 {
			t.Errorf("%v, %+v", err, r)
		}
		within(t, "seconds", time.Since(began).Seconds(), 2, 3.2)
	})
}

func TestRun_ShowsProgress(t *testing.T) {
	var shown []Progress
	runFake(t, &fakeOracle{callers: 1, depth: 1}, func(o *Options) {
		o.Duration, o.Warmup = 3*time.Second, time.Second
		o.Progress = func(p Progress) { shown = append(shown, p) }
	})
	if len(shown) < 2 || len(shown) > 3 {
		t.Fatalf("progress was shown %d times in 3 s", len(shown))
	}
	for _, p := range shown {
		within(t, "answers in a second", float64(p.Answers)/p.Span.Seconds(), 900, 1010)
		within(t, "p50", float64(p.P50.Microseconds()), 990, 1010)
	}
}
