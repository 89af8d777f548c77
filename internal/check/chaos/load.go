//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// operationsMax bounds the history of one load, some 60 bytes for each operation. A test that
// reaches it is too long for an exact check, and fails.
const operationsMax = 1 << 20

// The pause of a caller that got no answer before it tries the next node: short compared with
// an election, so that it hardly shows in a measured failover.
const (
	backoffMin = time.Millisecond
	backoffMax = 4 * time.Millisecond
)

// LoadOptions describe a load. The zero value of each field but Addrs has a
// default.
type LoadOptions struct {
	// Addrs are the client addresses of the nodes.
	Addrs []string
	// Callers is how many requests are open at a time; default 8.
	Callers int
	// Pause is the wait between a caller's requests; default 5 ms. It leaves processor time
	// for the nodes, and in go test for other tests, on a small machine.
	Pause time.Duration
	// Timeout bounds one request; default 500 ms.
	Timeout time.Duration
	// ShortTimeout, if not 0, is the timeout of callers 4 to 7, 12 to 15 and so on: they leave
	// a frozen leader early, and reach its successor within its first epoch.
	ShortTimeout time.Duration
	// Queries are appended to the path, as in "&mode=lease": the callers use them in turn, two callers each. Default is "".
	Queries []string
	// Intervals is how many callers besides take timestamps of the cluster clock, of any node, and
	// wait for them at any node. The nodes need INTERVAL_MS.
	Intervals int
	// NoIDs asks for no IDs beside the timestamps.
	NoIDs bool
	// NodesMayFail accepts the code internal from a node that the test breaks for good; the
	// caller goes on with the next node. Otherwise that code is a fault.
	NodesMayFail bool
}

// Load requests timestamps from several callers until [Load.Stop], follows the leader, and
// checks the order of all answers.
type Load struct {
	opt     LoadOptions
	epoch   time.Time
	online  *lincheck.Online
	quit    chan struct{}
	done    sync.WaitGroup
	callers []*caller
	ids     idSet

	mu       sync.Mutex
	last     time.Duration // when the latest successful answer came
	gap      time.Duration
	leader   string             // the node that gave it
	queries  map[string]Answers // by query
	outcomes map[string]int
	faults   []string
	sent     map[string]time.Duration // when the latest request was sent that a node answered, by its address
}

// Answers is how many requests with one query were answered.
type Answers struct {
	Count int
	// Sent is when the last one of them was sent.
	Sent time.Time
}

// faultsMax bounds the faults that a report describes.
const faultsMax = 10

// StartLoad starts a load. It fails the test if it is not stopped.
func StartLoad(t testing.TB, o LoadOptions) *Load {
	t.Helper()
	if o.Callers == 0 {
		o.Callers = 8
	}
	if o.Pause == 0 {
		o.Pause = 5 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 500 * time.Millisecond
	}
	if len(o.Queries) == 0 {
		o.Queries = []string{""}
	}
	l := &Load{
		opt:      o,
		epoch:    time.Now(),
		online:   lincheck.NewOnline(0),
		quit:     make(chan struct{}),
		outcomes: map[string]int{},
		queries:  map[string]Answers{},
		sent:     map[string]time.Duration{},
	}
	for i := range o.Callers + o.Intervals { // all of them before the first one runs: they read the list
		l.callers = append(l.callers, &caller{load: l, id: i, addr: o.Addrs[i%len(o.Addrs)], conns: conns{}})
	}
	for i, c := range l.callers {
		once := c.request
		if i >= o.Callers {
			once = c.interval
		}
		l.done.Go(func() { c.run(once) })
	}
	l.ids.from = map[int64]string{}
	for _, addr := range o.Addrs {
		if o.NoIDs {
			break
		}
		l.done.Go(func() { l.askIDs(addr) })
	}
	t.Cleanup(func() {
		if !l.stopped() {
			l.stop()
			if !t.Failed() {
				t.Error("the load was never stopped, so its answers were not checked")
			}
		}
	})
	return l
}

func (l *Load) now() time.Duration { return time.Since(l.epoch) }

func (l *Load) stopped() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

func (l *Load) stop() {
	close(l.quit)
	l.done.Wait()
}

// End waits until there were answersMin answers, and idsMin IDs, ends the load and verifies its report.
func (l *Load) End(t testing.TB, answersMin, idsMin int) *Report {
	t.Helper()
	await.Done(t, ReadyTimeout, func() (bool, string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		ok, ids := l.outcomes["ok"], l.ids.len()
		return ok >= answersMin && ids >= idsMin, fmt.Sprintf("%d answers and %d IDs, want at least %d and %d", ok, ids, answersMin, idsMin)
	})
	r := l.Stop()
	r.Verify(t, answersMin)
	return r
}

// Stop ends the load and returns its report.
func (l *Load) Stop() *Report {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Report{
		Outcomes: l.outcomes,
		Gap:      max(l.gap, l.now()-l.last),
		Online:   l.online.Stats(),
		Faults:   l.faults,
		Took:     l.now(),
		IDs:      l.ids.len(),
	}
	r.History, r.Truncated = l.TakeHistory()
	return r
}

// TakeHistory returns the operations since the previous call, so that a load of any length
// can be checked exactly, part by part. The online check covers the order between parts.
func (l *Load) TakeHistory() (history []lincheck.Operation, truncated bool) {
	for _, c := range l.callers {
		c.mu.Lock()
		history = append(history, c.history...)
		truncated = truncated || c.truncated
		c.history, c.truncated = nil, false
		c.mu.Unlock()
	}
	return history, truncated
}

// Answered returns the number of answers to each query.
func (l *Load) Answered() map[string]Answers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.queries)
}

// Leader returns the address that gave the latest successful answer.
func (l *Load) Leader() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// Faults returns the answers so far that no node may ever give.
func (l *Load) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

// count records the outcome of a request that got no timestamps.
func (l *Load) count(outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[outcome]++
}

// fault records an answer that no node may ever give.
func (l *Load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes["fault"]++
	if len(l.faults) < faultsMax {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// succeeded records a successful answer.
func (l *Load) succeeded(addr, query string, invocation, completion time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := l.queries[query]
	l.queries[query] = Answers{Count: answers.Count + 1, Sent: l.epoch.Add(invocation)}
	l.leader = addr
	l.sent[addr] = max(l.sent[addr], invocation)
	l.outcomes["ok"]++
	l.gap = max(l.gap, completion-l.last)
	l.last = max(l.last, completion)
}

// WaitAnswer waits for the success of a request that is sent from now on, by any node but those at the addresses in except.
func (l *Load) WaitAnswer(t testing.TB, except ...string) {
	t.Helper()
	from := l.now()
	await.Done(t, ReadyTimeout, func() (bool, string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for addr, sent := range l.sent {
			if sent >= from && !slices.Contains(except, addr) {
				return true, ""
			}
		}
		return false, "no answer"
	})
}

// Report is what a load saw.
type Report struct {
	// Outcomes counts requests: "ok", an error code, "connection", "timeout", "fault".
	Outcomes map[string]int
	// Gap is the longest time without a successful answer.
	Gap, Took time.Duration
	// History holds all requests; Truncated says that there were too many.
	History   []lincheck.Operation
	Truncated bool
	Online    lincheck.Stats
	// Faults describes the first answers that no node may ever give.
	Faults []string
	// IDs is how many snowflake IDs were received, all of them different.
	IDs int
}

// Verify fails the test unless every answer was valid and in order, and there were at least
// answersMin.
func (r *Report) Verify(t testing.TB, answersMin int) {
	t.Helper()
	t.Logf("load: %s", r)
	for _, fault := range r.Faults {
		t.Error(fault)
	}
	if r.Truncated {
		t.Errorf("more than %d requests: no exact check; make the test shorter", operationsMax)
	}
	if err := lincheck.Check(r.History); err != nil {
		t.Errorf("exact check: %v", err)
	}
	if r.Online.Violations > 0 || r.Online.Unverified > 0 {
		t.Errorf("online check: %+v", r.Online)
	}
	if ok := r.Outcomes["ok"]; ok < answersMin {
		t.Errorf("%d answers, want at least %d", ok, answersMin)
	}
}

// String returns one line.
func (r *Report) String() string {
	s := fmt.Sprintf("%.1f s, longest gap %v;", r.Took.Seconds(), r.Gap.Round(time.Millisecond))
	for _, outcome := range slices.Sorted(maps.Keys(r.Outcomes)) {
		s += fmt.Sprintf(" %s %d", outcome, r.Outcomes[outcome])
	}
	return s
}

func jitter() time.Duration { return backoffMin + rand.N(backoffMax-backoffMin) }
