package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// failuresMax is how many errors of calls a result has.
const failuresMax = 5

// latencyMax is the longest time of a call that is told from longer ones.
const latencyMax = time.Minute

// tally is what was measured until now. Its methods may be called concurrently. Times are since the
// load began.
type tally struct {
	mu       sync.Mutex
	bins     []uint32 // answers in each millisecond
	answers  uint64
	failed   uint64
	failures []string
	latency  *hdrhistogram.Histogram // in microseconds
	last     time.Duration           // when the latest answer came
	longest  time.Duration           // without an answer
	kills    []*window
	turns    []turn
}

// windowMax bounds the time after a kill in which a silence may begin that is said to be its
// consequence. It is at most the time between kills.
const windowMax = everyMin

// window is what a kill led to.
type window struct {
	at        time.Duration
	node      uint64
	successor uint64
	led       time.Duration // since when the successor does
	gap       time.Duration
	gapAt     time.Duration
	closed    bool
}

// has reports whether a silence from one time until another is one of the kill's.
func (w *window) has(from, until time.Duration) bool {
	return !w.closed && until > w.at && from < w.at+windowMax
}

// turn is when a node was first known to lead; node 0: none is known.
type turn struct {
	at   time.Duration
	node uint64
}

func newTally() *tally {
	return &tally{latency: hdrhistogram.New(1, latencyMax.Microseconds(), 3)}
}

// answered counts a call that was sent and answered at these times.
func (t *tally) answered(sent, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers++
	_ = t.latency.RecordValue(min(max((now-sent).Microseconds(), 1), latencyMax.Microseconds()))
	// The load stops at durationMax; a call that hangs may end later.
	if ms := int(now / time.Millisecond); ms < int(2*durationMax/time.Millisecond) {
		for len(t.bins) <= ms {
			t.bins = append(t.bins, 0)
		}
		t.bins[ms]++
	}
	t.silence(now)
	t.last = max(t.last, now)
}

// silence notes the time from the latest answer until now.
func (t *tally) silence(now time.Duration) {
	gap := now - t.last
	t.longest = max(t.longest, gap)
	if n := len(t.kills); n > 0 && t.kills[n-1].has(t.last, now) && gap > t.kills[n-1].gap {
		t.kills[n-1].gap, t.kills[n-1].gapAt = gap, t.last
	}
}

// failure counts a call without an answer.
func (t *tally) failure(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	if len(t.failures) < failuresMax {
		t.failures = append(t.failures, err.Error())
	}
}

// killed opens the window of a leader that is about to end, and closes the one before.
func (t *tally) killed(node uint64, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close()
	t.kills = append(t.kills, &window{at: now, node: node})
}

// close closes the latest window. t.mu must be held.
func (t *tally) close() {
	if n := len(t.kills); n > 0 {
		t.kills[n-1].closed = true
	}
}

// end closes what is open at the end of the load.
func (t *tally) end(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silence(now)
	t.close()
}

// leads notes which node leads now; 0: none.
func (t *tally) leads(node uint64, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.turns); n > 0 && t.turns[n-1].node == node {
		return
	}
	if len(t.turns) == 0 {
		now = 0 // it led when the load began
	}
	t.turns = append(t.turns, turn{at: now, node: node})
	if n := len(t.kills); n > 0 && node != 0 && node != t.kills[n-1].node && t.kills[n-1].successor == 0 {
		t.kills[n-1].successor, t.kills[n-1].led = node, now
	}
}

// succeeded reports whether a successor of the latest leader that has ended leads, and a call was answered since.
func (t *tally) succeeded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.kills)
	return n == 0 || t.kills[n-1].successor != 0 && t.last > t.kills[n-1].led
}

// fill puts what was measured until now into r.
func (t *tally) fill(r *Result, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Seconds, r.ColumnMS = now.Seconds(), columnMS
	r.Answers, r.Failed, r.Failures = t.answers, t.failed, slices.Clone(t.failures)
	r.P50MS, r.P99MS, r.MaxMS = t.quantile(50), t.quantile(99), float64(t.latency.Max())/1000
	r.LongestMS = millis(max(t.longest, now-t.last))
	ms := int(now / time.Millisecond)
	for from := 0; from == 0 || from+columnMS <= ms; from += columnMS {
		r.Columns = append(r.Columns, Column{
			Answers: sum(t.between(from, from+columnMS)),
			Leader:  t.leaderAt(time.Duration(from+columnMS/2) * time.Millisecond),
		})
	}
	for i, w := range t.kills {
		k := Kill{AtS: secondsOf(w.at), Node: w.node, Successor: w.successor, GapMS: millis(w.gap), GapAtS: secondsOf(w.gapAt), Closed: w.closed, AroundMS: aroundBefore}
		if silent := now - t.last; i == len(t.kills)-1 && w.has(t.last, now) && silent > w.gap {
			k.GapMS, k.GapAtS = millis(silent), secondsOf(t.last)
		}
		at := int(w.at / time.Millisecond)
		k.AroundMS = min(at, aroundBefore)
		k.Around = slices.Clone(t.between(at-k.AroundMS, min(ms, at+aroundAfter)))
		r.Kills = append(r.Kills, k)
	}
}

func (t *tally) quantile(percent float64) float64 {
	return float64(t.latency.ValueAtPercentile(percent)) / 1000
}

// between returns the bins from one millisecond to before another. Later ones than the latest answer
// are missing.
func (t *tally) between(from, to int) []uint32 {
	return t.bins[min(from, len(t.bins)):min(to, len(t.bins))]
}

// leaderAt returns the node that led at a time.
func (t *tally) leaderAt(at time.Duration) (node uint64) {
	for _, turn := range t.turns {
		if turn.at <= at {
			node = turn.node
		}
	}
	return node
}

func sum(bins []uint32) (n uint32) {
	for _, b := range bins {
		n += b
	}
	return n
}

// A result has times in steps of 10 µs.

func secondsOf(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond).Microseconds()) / 1e6
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond).Microseconds()) / 1e3
}
