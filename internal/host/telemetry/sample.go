package telemetry

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Sample is what a node did in an interval.
type Sample struct {
	// Took is the length of the interval.
	Took time.Duration
	// Timestamps, Requests, IDs and Errors are how many there were; Requests counts all
	// that were answered, Errors those of them that failed.
	Timestamps, Requests, IDs, Errors uint64
	// Latency has the time from arrival to answer of the requests.
	Latency Latencies
}

// Totals are Sample's figures since the start.
type Totals struct{ Timestamps, Requests, IDs, Errors uint64 }

// totals are counted separately, because the metrics cannot be read back.
type totals struct {
	timestamps, requests, ids, errors atomic.Uint64
	latency                           [latencyBuckets]atomic.Uint64
}

// Latencies is a histogram with exponential buckets: each is an eighth of a power of two of
// nanoseconds wide, so a percentile is at most 12.5 % too large.
type Latencies [latencyBuckets]uint64

const (
	latencyParts   = 8
	latencyBuckets = (63 - 3 + 2) * latencyParts
)

func latencyBucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < latencyParts {
		return int(n)
	}
	exponent := bits.Len64(n) - 4 // n>>exponent is from 8 to 15
	return exponent*latencyParts + int(n>>exponent)
}

// latencyMost is the largest time in a bucket.
func latencyMost(bucket int) time.Duration {
	if bucket < 2*latencyParts {
		return time.Duration(bucket)
	}
	exponent := bucket/latencyParts - 1
	return time.Duration((uint64(bucket%latencyParts)+latencyParts+1)<<exponent - 1)
}

// Quantile returns an upper bound of the quantile q, 0 < q ≤ 1, and false if there are no
// values.
func (l *Latencies) Quantile(q float64) (time.Duration, bool) {
	sum := uint64(0)
	for _, n := range l {
		sum += n
	}
	if sum == 0 {
		return 0, false
	}
	rank, seen := max(1, uint64(q*float64(sum)+0.5)), uint64(0)
	for i, n := range l {
		if seen += n; seen >= rank {
			return latencyMost(i), true
		}
	}
	return latencyMost(latencyBuckets - 1), true
}

// Sampler returns what happened between two calls of Next. It belongs to one goroutine.
type Sampler struct {
	metrics *Metrics
	at      time.Time
	last    Totals
	latency Latencies
}

// NewSampler returns a sampler whose first interval begins now.
func (m *Metrics) NewSampler(now time.Time) *Sampler {
	s := &Sampler{metrics: m, at: now}
	s.Next(now)
	return s
}

// Next ends an interval.
func (s *Sampler) Next(now time.Time) Sample {
	all := s.metrics.Totals()
	sample := Sample{
		Took: now.Sub(s.at), Timestamps: all.Timestamps - s.last.Timestamps, Requests: all.Requests - s.last.Requests,
		IDs: all.IDs - s.last.IDs, Errors: all.Errors - s.last.Errors,
	}
	for i := range s.latency {
		n := s.metrics.totals.latency[i].Load()
		sample.Latency[i] = n - s.latency[i]
		s.latency[i] = n
	}
	s.at, s.last = now, all
	return sample
}

// Totals returns what was counted since the start.
func (m *Metrics) Totals() Totals {
	t := &m.totals
	return Totals{t.timestamps.Load(), t.requests.Load(), t.ids.Load(), t.errors.Load()}
}

func (t *totals) observe(code string, n int, wall time.Duration) {
	t.requests.Add(uint64(n))
	if code != requestCodes[0] {
		t.errors.Add(uint64(n))
	}
	if wall > 0 { // what was answered in the turn that read it was not measured
		t.latency[latencyBucket(wall)].Add(uint64(n))
	}
}
