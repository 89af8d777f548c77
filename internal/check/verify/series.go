package verify

import (
	"math"
	"time"
)

const (
	// columnMin is the width of a column at first. With more than columnsMax of them, two become one.
	columnMin  = 50 * time.Millisecond
	columnsMax = 1200
)

// series counts what ends, by the time at which it ends, in bounded memory.
type series struct {
	width   int64 // of a column, in nanoseconds
	columns []column
	all     histogram
}

// column is what has ended within a span of time.
type column struct {
	answers, failed uint32
	latency         histogram
}

func newSeries() *series { return &series{width: columnMin.Nanoseconds()} }

// at returns the column of a time, in nanoseconds since the run began.
func (s *series) at(t int64) *column {
	t = max(t, 0)
	for t/s.width >= columnsMax {
		s.merge()
	}
	for int64(len(s.columns)) <= t/s.width {
		s.columns = append(s.columns, column{})
	}
	return &s.columns[t/s.width]
}

// merge makes columns twice as wide.
func (s *series) merge() {
	for i := range s.columns {
		if i%2 == 0 {
			s.columns[i/2] = s.columns[i]
			continue
		}
		into, c := &s.columns[i/2], &s.columns[i]
		into.answers += c.answers
		into.failed += c.failed
		into.latency.add(&c.latency)
	}
	s.columns = s.columns[:(len(s.columns)+1)/2]
	s.width *= 2
}

func (s *series) answered(ended, took int64) {
	c := s.at(ended)
	c.answers++
	c.latency.record(took)
	s.all.record(took)
}

func (s *series) failed(ended int64) { s.at(ended).failed++ }

// fill puts the columns into a result.
func (s *series) fill(r *Result) {
	r.ColumnMS = int(s.width / 1e6)
	for i := range s.columns {
		c := &s.columns[i]
		r.Columns = append(r.Columns, Column{
			Answers: c.answers, Failed: c.failed, P50MS: c.latency.quantile(0.5), P99MS: c.latency.quantile(0.99), MaxMS: c.latency.max(),
		})
	}
	r.P50MS, r.P99MS, r.MaxMS = s.all.quantile(0.5), s.all.quantile(0.99), s.all.max()
}

// histogram counts times in buckets, each wider than the one before by a sixth: from a microsecond on, to an hour.
type histogram struct {
	buckets [bucketsMax]uint64
	count   uint64
	largest int64 // in nanoseconds
}

const (
	bucketsMax  = 143
	bucketWidth = 7.0 / 6
)

func (h *histogram) record(ns int64) {
	i := int(math.Log(float64(max(ns, 1000))/1000) / math.Log(bucketWidth))
	h.buckets[min(i, bucketsMax-1)]++
	h.count++
	h.largest = max(h.largest, ns)
}

func (h *histogram) add(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.largest = max(h.largest, other.largest)
}

// quantile returns a time, in milliseconds, that at least the part q of all times are not above: the upper end of a
// bucket, or the largest of all. 0 if there are none.
func (h *histogram) quantile(q float64) float64 {
	var below uint64
	for i, n := range h.buckets {
		below += n
		if n > 0 && float64(below) >= q*float64(h.count) {
			if i == bucketsMax-1 {
				return h.max()
			}
			return min(math.Pow(bucketWidth, float64(i+1))/1000, h.max())
		}
	}
	return 0
}

// max returns the largest time, in milliseconds.
func (h *histogram) max() float64 { return float64(h.largest) / 1e6 }
