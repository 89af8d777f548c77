package stats

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// sectionMax is the longest time in a histogram; longer ones count as this.
	sectionMax = time.Hour
	// digits is the precision of the histograms of a log (0.1 %, 270 KiB each),
	// groupDigits that of a group (1 %, 40 KiB).
	digits, groupDigits = 3, 2
)

// times is a histogram with an exact sum.
type times struct {
	histogram *hdrhistogram.Histogram
	sum       time.Duration
}

func newTimes(digits int) times {
	return times{histogram: hdrhistogram.New(1, int64(sectionMax), digits)}
}

func (t *times) add(d time.Duration) {
	t.sum = plus(t.sum, d)
	if t.histogram.RecordValue(int64(max(0, min(d, sectionMax)))) != nil {
		panic("stats: a time is out of the range it was limited to")
	}
}

// plus adds, up to the largest duration: 292 years.
func plus(sum, d time.Duration) time.Duration {
	if sum > math.MaxInt64-d {
		return math.MaxInt64
	}
	return sum + d
}

// Times sums up durations, in nanoseconds.
type Times struct {
	Sum  time.Duration `json:"sum"`
	Mean time.Duration `json:"mean"`
	P50  time.Duration `json:"p50"`
	P90  time.Duration `json:"p90"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
	Max  time.Duration `json:"max"`
}

func (t *times) result() Times {
	n := t.histogram.TotalCount()
	if n == 0 {
		return Times{}
	}
	at := t.histogram.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
	return Times{
		Sum: t.sum, Mean: t.sum / time.Duration(n), P50: time.Duration(at[0]), P90: time.Duration(at[1]),
		P99: time.Duration(at[2]), P999: time.Duration(at[3]), Max: time.Duration(t.histogram.Max()),
	}
}

// tally counts the requests of a log, in about a megabyte however long the log is.
type tally struct {
	requests, errors, measured uint64
	wall                       times // of all
	user, system, stall        times // of those that were measured
	measuredWall               time.Duration
	from, to                   time.Time
	rate                       series
	slowest                    slowest
}

func newTally(top int) *tally {
	return &tally{wall: newTimes(digits), user: newTimes(digits), system: newTimes(digits), stall: newTimes(digits), slowest: slowest{most: top}}
}

func (t *tally) add(e *entry) {
	t.requests++
	if e.Code != codeOK {
		t.errors++
	}
	t.wall.add(e.Wall)
	if e.Measured {
		t.measured++
		t.measuredWall = plus(t.measuredWall, e.Wall)
		t.user.add(e.User)
		t.system.add(e.System)
		t.stall.add(e.Stall())
	}
	if t.from.IsZero() || e.Time.Before(t.from) {
		t.from = e.Time
	}
	if e.Time.After(t.to) {
		t.to = e.Time
	}
	t.rate.add(e.Time)
	t.slowest.add(e)
}

// group counts the requests with something in common.
type group struct {
	name              string
	requests          uint64
	wall              times
	measuredWall, cpu time.Duration
}

func (g *group) add(e *entry) {
	g.requests++
	g.wall.add(e.Wall)
	if e.Measured {
		g.measuredWall = plus(g.measuredWall, e.Wall)
		g.cpu = plus(g.cpu, e.CPU())
	}
}

// groupsMax bounds the groups, since clients choose paths; groupOther has the rest.
const (
	groupsMax  = 200
	groupOther = "(other)"
)

// groups are groups by name.
type groups map[string]*group

func (g groups) add(name string, e *entry) {
	if g[name] == nil {
		if len(g) >= groupsMax {
			name = groupOther
		}
		if g[name] == nil {
			g[name] = &group{name: name, wall: newTimes(groupDigits)}
		}
	}
	g[name].add(e)
}

// list returns the groups, those with most wall time first.
func (g groups) list() []*group {
	all := make([]*group, 0, len(g))
	for _, one := range g {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *group) int { return cmp.Or(cmp.Compare(b.wall.sum, a.wall.sum), cmp.Compare(a.name, b.name)) })
	return all
}

// series counts requests in a bounded number of intervals of equal length: when they become
// too many, neighbors are merged.
type series struct {
	width  time.Duration
	first  int64 // number of the interval counts[0], counted from 1970
	counts []uint64
}

// seriesMax is about the number of columns of a chart.
const seriesMax = 240

func (s *series) add(at time.Time) {
	if s.width == 0 {
		s.width = time.Second
	}
	i := floorDiv(at.UnixNano(), int64(s.width))
	if len(s.counts) == 0 {
		s.first = i
	}
	for max(i, s.first+int64(len(s.counts))-1)-min(i, s.first) >= seriesMax {
		s.halve()
		i = floorDiv(i, 2)
	}
	if i < s.first { // files that overlap, clocks that differ
		s.counts = slices.Insert(s.counts, 0, make([]uint64, s.first-i)...)
		s.first = i
	}
	for int64(len(s.counts)) <= i-s.first {
		s.counts = append(s.counts, 0)
	}
	s.counts[i-s.first]++
}

func (s *series) halve() {
	first := floorDiv(s.first, 2)
	var counts []uint64
	for i, n := range s.counts {
		at := int(floorDiv(s.first+int64(i), 2) - first)
		if at == len(counts) {
			counts = append(counts, 0)
		}
		counts[at] += n
	}
	s.width, s.first, s.counts = 2*s.width, first, counts
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// slowest keeps the requests with the longest wall, the longest first.
type slowest struct {
	most int
	list []entry
}

func (s *slowest) add(e *entry) {
	if len(s.list) >= s.most && (s.most == 0 || e.Wall <= s.list[s.most-1].Wall) {
		return
	}
	at, _ := slices.BinarySearchFunc(s.list, e.Wall, func(o entry, wall time.Duration) int {
		if o.Wall >= wall {
			return -1
		}
		return 1
	})
	s.list = slices.Insert(s.list, at, *e)
	s.list = s.list[:min(len(s.list), s.most)]
}
