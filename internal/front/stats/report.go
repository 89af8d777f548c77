package stats

import "time"

// Report is the evaluation of logs. All times are in nanoseconds.
type Report struct {
	Unit  string `json:"unit"` // of times: ns
	Files []File `json:"files"`
	// Total is about all files; a request that is in several counts in each.
	Total Summary `json:"total"`
	// By is the criterion of the Groups; those with most time come first.
	By     string  `json:"by,omitempty"`
	Groups []Group `json:"groups,omitempty"`
	// Joins are the pairs of files that have requests in common.
	Joins []Join `json:"joins,omitempty"`
	// Cores is the number of cores that Capacity.Workers is for.
	Cores int `json:"cores"`
	// Interrupted says that the logs were not read to their end.
	Interrupted bool `json:"interrupted"`
}

// File is one log.
type File struct {
	Name   string `json:"name"`
	Lines  uint64 `json:"lines"`
	Others uint64 `json:"others"` // about something else
	Broken uint64 `json:"broken"`
	// FirstBroken has the first broken lines.
	FirstBroken []BrokenLine `json:"firstBroken,omitempty"`
	// Summary is nil if there is only one file: see Report.Total.
	Summary *Summary `json:"summary,omitempty"`
}

// BrokenLine is a line that cannot be parsed.
type BrokenLine struct {
	Line uint64 `json:"line"`
	Why  string `json:"why"`
}

// Summary sums up the requests of one log, or of all.
type Summary struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
	// Measured is the number of requests whose CPU time is known. All figures but Wall are
	// about those.
	Measured uint64    `json:"measured"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	// Rate and RatePeak are requests a second, on average and in the busiest interval. Both
	// are 0, and not in the JSON, if all requests have the same time.
	Rate     float64  `json:"rate,omitempty"`
	RatePeak float64  `json:"ratePeak,omitempty"`
	RateOver RateOver `json:"rateOver"`

	Wall   Times `json:"wall"`
	User   Times `json:"user"`
	System Times `json:"system"`
	Stall  Times `json:"stall"`
	// Curve has the times at many percentiles, for charts.
	Curve []CurvePoint `json:"curve,omitempty"`

	Capacity Capacity `json:"capacity"`
	Slowest  []Slow   `json:"slowest,omitempty"`
}

// RateOver has the number of requests in intervals of equal length.
type RateOver struct {
	From     time.Time     `json:"from"`
	Interval time.Duration `json:"interval"`
	Requests []uint64      `json:"requests"`
}

// CurvePoint is one percentile.
type CurvePoint struct {
	Percentile float64       `json:"percentile"`
	Wall       time.Duration `json:"wall"`
	User       time.Duration `json:"user"`
	System     time.Duration `json:"system"`
	Stall      time.Duration `json:"stall"`
}

// Capacity is how many requests cores can process. It is all 0 without measured requests.
type Capacity struct {
	// Wall and CPU are means over the measured requests; User, System and Stall are shares
	// of their wall.
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	User   float64       `json:"user"`
	System float64       `json:"system"`
	Stall  float64       `json:"stall"`
	// WorkersPerCore is the sum of wall divided by the sum of CPU: the number of concurrent
	// requests that keep one core busy, since a stalled request does not use it.
	WorkersPerCore float64 `json:"workersPerCore"`
	// Workers is WorkersPerCore times Report.Cores.
	Workers int `json:"workers"`
	// PerCore is the most requests a second that one core can process.
	PerCore float64 `json:"perCore"`
}

// Group sums up the requests with the same path, code or protocol.
type Group struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"`
	Wall     Times  `json:"wall"`
	// WallShare and CPUShare are its shares of the totals.
	WallShare      float64 `json:"wallShare"`
	CPUShare       float64 `json:"cpuShare"`
	WorkersPerCore float64 `json:"workersPerCore"`
}

// Slow is one of the slowest requests.
type Slow struct {
	Time     time.Time     `json:"time"`
	ID       string        `json:"id"`
	Protocol string        `json:"protocol,omitempty"`
	Method   string        `json:"method,omitempty"`
	Path     string        `json:"path,omitempty"`
	Status   int           `json:"status"`
	Code     string        `json:"code"`
	Backend  string        `json:"backend,omitempty"`
	Wall     time.Duration `json:"wall"`
	User     time.Duration `json:"user"`
	System   time.Duration `json:"system"`
	Stall    time.Duration `json:"stall"`
	Measured bool          `json:"measured"`
}

// report returns the report on what was read.
func (r *run) report() *Report {
	out := &Report{Unit: "ns", Total: r.total.summary(r.options.Cores), By: r.options.By, Cores: r.options.Cores}
	var names []string
	for _, f := range r.files {
		one := File{Name: f.name, Lines: f.lines, Others: f.others, Broken: f.broken, FirstBroken: f.firstBroken}
		if f.tally != r.total {
			s := f.tally.summary(r.options.Cores)
			one.Summary = &s
		}
		out.Files = append(out.Files, one)
		names = append(names, f.name)
	}
	cpu := plus(r.total.user.sum, r.total.system.sum)
	for _, g := range r.groups.list() {
		out.Groups = append(out.Groups, Group{
			Name: g.name, Requests: g.requests, Wall: g.wall.result(),
			WallShare: ratio(g.wall.sum, r.total.wall.sum), CPUShare: ratio(g.cpu, cpu), WorkersPerCore: workersPerCore(g.measuredWall, g.cpu),
		})
	}
	if r.joiner != nil {
		out.Joins = r.joiner.result(names)
	}
	return out
}

// ratio returns a/b, or 0 where there is no b.
func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// workersPerCore returns how many workers keep a core busy, or 0 if that is not known. The
// clocks may differ, so CPU may exceed wall; the result is at least 1.
func workersPerCore(wall, cpu time.Duration) float64 {
	if cpu == 0 {
		return 0
	}
	return max(1, ratio(wall, cpu))
}

func (t *tally) summary(cores int) Summary {
	s := Summary{
		Requests: t.requests, Errors: t.errors, Measured: t.measured, From: t.from, To: t.to,
		Wall: t.wall.result(), User: t.user.result(), System: t.system.result(), Stall: t.stall.result(),
		Capacity: t.capacity(cores),
		RateOver: RateOver{Interval: t.rate.width, Requests: t.rate.counts},
	}
	if n := len(t.rate.counts); n > 0 {
		s.RateOver.From = time.Unix(0, t.rate.first*int64(t.rate.width)).UTC()
		if span := t.to.Sub(t.from); span > 0 {
			// The first and the last interval are partial, so divide by the span.
			s.Rate = float64(t.requests) / span.Seconds()
			s.RatePeak = s.Rate
			for _, n := range t.rate.counts {
				s.RatePeak = max(s.RatePeak, float64(n)/t.rate.width.Seconds())
			}
		}
	}
	wall, user, system, stall := t.wall.curve(), t.user.curve(), t.system.curve(), t.stall.curve()
	for i, p := range curve {
		s.Curve = append(s.Curve, CurvePoint{
			Percentile: p, Wall: time.Duration(wall[i]), User: time.Duration(user[i]), System: time.Duration(system[i]), Stall: time.Duration(stall[i]),
		})
	}
	for _, e := range t.slowest.list {
		s.Slowest = append(s.Slowest, Slow{
			Time: e.Time, ID: e.ID, Protocol: e.Protocol, Method: e.Method, Path: e.Path, Status: e.Status, Code: e.Code,
			Backend: e.backend, Wall: e.Wall, User: e.User, System: e.System, Stall: e.Stall(), Measured: e.Measured,
		})
	}
	return s
}

// curve has the percentiles of the chart.
var curve = []float64{0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92.5, 95, 96, 97, 98, 99, 99.5, 99.7, 99.9, 99.95, 99.99}

// curve returns the nanoseconds at each percentile of curve.
func (t *times) curve() []int64 { return t.histogram.ValueAtPercentilesSlice(curve) }

func (t *tally) capacity(cores int) Capacity {
	cpu := plus(t.user.sum, t.system.sum)
	if t.measured == 0 || cpu == 0 || t.measuredWall == 0 {
		return Capacity{}
	}
	n := time.Duration(t.measured)
	c := Capacity{
		Wall: t.measuredWall / n, CPU: cpu / n,
		User: ratio(t.user.sum, t.measuredWall), System: ratio(t.system.sum, t.measuredWall), Stall: ratio(t.stall.sum, t.measuredWall),
		WorkersPerCore: workersPerCore(t.measuredWall, cpu),
		PerCore:        float64(t.measured) / cpu.Seconds(),
	}
	c.Workers = int(c.WorkersPerCore*float64(cores) + 0.5)
	return c
}
