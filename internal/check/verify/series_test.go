package verify

import (
	"math"
	"testing"
	"time"
)

// TestSeries_BecomesCoarserInsteadOfLonger: nothing is lost by it.
func TestSeries_BecomesCoarserInsteadOfLonger(t *testing.T) {
	s := newSeries()
	const calls = 10_000
	for i := range int64(calls) {
		s.answered(i*time.Second.Nanoseconds(), time.Millisecond.Nanoseconds())
		if i%10 == 0 {
			s.failed(i * time.Second.Nanoseconds())
		}
	}
	var r Result
	s.fill(&r)
	var answers, failed uint32
	for _, c := range r.Columns {
		answers += c.Answers
		failed += c.Failed
		if c.Answers > 0 && (c.P50MS != 1 || c.MaxMS != 1) {
			t.Errorf("%+v, want 1 ms", c)
		}
	}
	if answers != calls || failed != calls/10 || len(r.Columns) > columnsMax || len(r.Columns) < columnsMax/2 {
		t.Errorf("%d answers and %d failures in %d columns of %d ms", answers, failed, len(r.Columns), r.ColumnMS)
	}
}

// TestHistogram_IsRightToASixth, from a microsecond to an hour.
func TestHistogram_IsRightToASixth(t *testing.T) {
	for _, want := range []float64{0.001, 0.1, 1, 17, 1000, 3_000_000} {
		var h histogram
		for range 99 {
			h.record(int64(want * 1e6))
		}
		h.record(int64(4e12))
		if got := h.quantile(0.5); got < want || got > want*bucketWidth*1.001 {
			t.Errorf("p50 %v, want %v", got, want)
		}
		if got := h.quantile(1); math.Abs(got-4e6) > 1e-6 {
			t.Errorf("the largest is %v", got)
		}
	}
	if (&histogram{}).quantile(0.5) != 0 {
		t.Error("nothing has a quantile")
	}
}

// TestHistogram_CountsTheCallsOfAWeek: more than 32 bits hold.
func TestHistogram_CountsTheCallsOfAWeek(t *testing.T) {
	var h histogram
	h.record(1e6)
	for range 32 {
		h.add(&h)
	}
	h.record(1e9)
	if p50 := h.quantile(0.5); p50 < 1 || p50 > bucketWidth {
		t.Errorf("the median of 2^32 times of 1 ms and one of 1 s is %g ms", p50)
	}
}
