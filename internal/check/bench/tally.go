package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/isotone/isotone"
)

const (
	// latencyMax is the largest latency of the histogram; longer ones count as this much.
	// A request takes no longer than Options.Timeout, but an arrival may wait before it.
	latencyMax = int64(2 * timeoutMax)
	// digits is the precision of the histogram of the run (0.1 %), intervalDigits that
	// of an interval (1 %, 37 KiB).
	digits, intervalDigits = 3, 2
	// recentMax is how many operations each shard remembers, so that a violation can
	// name the earlier operation as well. 64 bytes each.
	recentMax = 1 << 13
	// shardsMax bounds the memory of all shards to about 30 MB.
	shardsMax = 32
	// codesMax bounds the number of error codes, which include HTTP statuses.
	codesMax = 1000
)

func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, latencyMax, digits)
}

// record adds a latency in nanoseconds.
func record(h *hdrhistogram.Histogram, ns int64) {
	if h.RecordValue(max(0, min(ns, latencyMax))) != nil {
		panic("bench: a latency is out of the range it was limited to")
	}
}

// operation is one answered request. Times are in nanoseconds since the run began.
type operation struct {
	seq            uint64 // within the caller
	caller         int
	sent, answered int64
	issued         isotone.Range
}

// shard has the counts of some callers. Callers share shards because a histogram takes a
// quarter of a megabyte.
type shard struct {
	mu sync.Mutex
	counts
	recent [recentMax]operation
	stored uint64
}

// counts has the answers and errors between two collections.
type counts struct {
	latency *hdrhistogram.Histogram
	// late is the delay that the generator itself adds: from the time at which an arrival
	// is due while a caller waits for it, until the caller has it.
	late       *hdrhistogram.Histogram
	answers    uint64
	timestamps uint64
	errors     map[string]uint64
}

func newCounts() counts {
	return counts{latency: newHistogram(digits), late: newHistogram(intervalDigits), errors: map[string]uint64{}}
}

func (c *counts) reset() {
	c.latency.Reset()
	c.late.Reset()
	c.answers, c.timestamps = 0, 0
	clear(c.errors)
}

// answered records a success, and counts it unless it belongs to the warm-up.
func (s *shard) answered(op operation, latency int64, counted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent[s.stored%recentMax] = op
	s.stored++
	if counted {
		s.answers++
		s.timestamps += op.issued.Count
		record(s.latency, latency)
	}
}

// failed records n failures.
func (s *shard) failed(code string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.errors[code]; !known && len(s.errors) >= codesMax {
		code = "other"
	}
	s.errors[code] += uint64(n)
}

// wasLate records that the generator was late.
func (s *shard) wasLate(ns int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record(s.late, ns)
}

// unanswered records an arrival without an answer. Its age counts as a latency, otherwise
// the worst delays would be missing.
func (s *shard) unanswered(age int64) {
	s.failed(codeUnanswered, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	record(s.latency, age)
}

// swap returns the counts since the last swap and replaces them by empty ones.
func (s *shard) swap(empty counts) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := s.counts
	s.counts = empty
	return full
}

// find returns an operation, other than op itself, that got one of the timestamps in r.
func (s *shard) find(r isotone.Range, op operation) (operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range min(s.stored, recentMax) {
		o := s.recent[(s.stored-1-i)%recentMax]
		if (o.caller != op.caller || o.seq != op.seq) && o.issued.Count > 0 &&
			!r.Last().Before(o.issued.First) && !o.issued.Last().Before(r.First) {
			return o, true
		}
	}
	return operation{}, false
}

// gap finds the longest time without an answer, over all callers.
type gap struct {
	last    atomic.Int64
	longest atomic.Int64

	mu    sync.Mutex
	began int64 // of the longest
}

// open sets the time from which gaps count.
func (g *gap) open(from int64) { g.last.Store(from) }

// note records an answer, or the end of the run.
func (g *gap) note(now int64) {
	last := g.last.Load()
	if now <= last {
		return // during the warm-up, or another caller has noted a later answer
	}
	g.last.Store(now)
	if now-last <= g.longest.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now-last > g.longest.Load() {
		g.longest.Store(now - last)
		g.began = last
	}
}

// series is the run over time, in a bounded number of intervals: when there are too
// many, pairs of them are merged.
type series struct {
	list []interval
	// turns is the number of collections per interval; filled, how many the last
	// interval has.
	turns, filled int
}

// intervalsMax is about the number of points that fit in a plot.
const intervalsMax = 600

// interval is what happened between two moments, in nanoseconds since the run began.
type interval struct {
	from, to   int64
	latency    *hdrhistogram.Histogram
	answers    uint64
	timestamps uint64
	errors     uint64
}

// add appends the counts of the time from from to to. The remainder at the end of a run
// becomes part of the last interval: by itself it would look like a drop in a plot.
func (s *series) add(from, to int64, c *counts) {
	if len(s.list) > 0 && (s.filled < s.turns || to-from < int64(tick)/2) {
		s.list[len(s.list)-1].merge(to, c.latency, c.answers, c.timestamps, sum(c.errors))
		s.filled++
		return
	}
	if len(s.list) == intervalsMax {
		for i := range len(s.list) / 2 {
			first, second := s.list[2*i], s.list[2*i+1]
			first.merge(second.to, second.latency, second.answers, second.timestamps, second.errors)
			s.list[i] = first
		}
		clear(s.list[intervalsMax/2:])
		s.list = s.list[:intervalsMax/2]
		s.turns *= 2
	}
	i := interval{from: from, latency: newHistogram(intervalDigits)}
	i.merge(to, c.latency, c.answers, c.timestamps, sum(c.errors))
	s.list = append(s.list, i)
	s.filled = 1
}

func (i *interval) merge(to int64, latency *hdrhistogram.Histogram, answers, timestamps, errors uint64) {
	i.to = to
	i.latency.Merge(latency)
	i.answers += answers
	i.timestamps += timestamps
	i.errors += errors
}

func sum(errors map[string]uint64) (n uint64) {
	for _, each := range errors {
		n += each
	}
	return n
}

// total is everything that was collected since the end of the warm-up.
type total struct {
	counts
	series series
	// second is what the next progress line shows.
	second counts
	swept  int64 // when the shards were last emptied
	// turn and spare are reused.
	turn, spare counts
}

func newTotal() *total {
	return &total{
		counts: newCounts(), second: newCounts(), turn: newCounts(), spare: newCounts(),
		series: series{turns: 1},
	}
}

// sweep empties the shards. Only the coordinator calls it. Merging takes long, so it yields
// the processor in between.
func (t *total) sweep(shards []*shard, warmup, now int64) {
	t.collect(shards)
	if t.swept < warmup {
		clear(t.turn.errors) // almost all belong to the warm-up
		t.swept = warmup
	}
	t.counts.add(&t.turn)
	runtime.Gosched()
	t.second.add(&t.turn)
	runtime.Gosched()
	t.series.add(t.swept, now, &t.turn)
	t.swept = now
}

// collect empties the shards into t.turn.
func (t *total) collect(shards []*shard) {
	t.turn.reset()
	for _, s := range shards {
		t.spare.reset()
		t.spare = s.swap(t.spare)
		t.turn.add(&t.spare)
		runtime.Gosched()
	}
}

func (c *counts) add(d *counts) {
	c.latency.Merge(d.latency)
	c.late.Merge(d.late)
	c.answers += d.answers
	c.timestamps += d.timestamps
	for code, n := range d.errors {
		c.errors[code] += n
	}
}

// Seconds is a time or a duration, in seconds.
type Seconds float64

func seconds(ns int64) Seconds { return Seconds(time.Duration(ns).Round(time.Microsecond).Seconds()) }
