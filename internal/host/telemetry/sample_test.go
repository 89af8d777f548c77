package telemetry

import (
	"math"
	"testing"
	"time"
)

func TestLatencies_BucketsAreInOrderAndNarrow(t *testing.T) {
	for _, d := range []time.Duration{-5, 0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 100, 999, 60_000, 1e6, 1e9, 1e12, math.MaxInt64} {
		b := latencyBucket(d)
		most := latencyMost(b)
		if d > most || b > 0 && max(d, 0) <= latencyMost(b-1) || float64(most) > 1.125*float64(max(d, 0))+1 {
			t.Errorf("%d: bucket %d, up to %d; the one before up to %d", d, b, most, latencyMost(b-1))
		}
	}
	for b := 1; b < latencyBuckets; b++ {
		if latencyMost(b) >= 0 && latencyMost(b) <= latencyMost(b-1) {
			t.Fatalf("bucket %d ends at %d, the one before at %d", b, latencyMost(b), latencyMost(b-1))
		}
	}
}

func TestSampler_TellsOneIntervalFromTheNext(t *testing.T) {
	m := NewMetrics("")
	m.ObserveRequest("http1", "ok", time.Hour) // before
	now := time.Unix(100, 0)
	s := m.NewSampler(now)
	for i := range 1000 {
		m.ObserveRequest("http1", "ok", time.Duration(i+1)*time.Microsecond)
	}
	m.ObserveRequests("resp", "overloaded", 3, 0)
	m.AddTimestamps(7)
	m.AddIDs(5)
	got := s.Next(now.Add(time.Second))
	if got.Took != time.Second || got.Requests != 1003 || got.Errors != 3 || got.Timestamps != 7 || got.IDs != 5 {
		t.Errorf("%+v", got)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: 1000 * time.Microsecond} {
		if d, ok := got.Latency.Quantile(q); !ok || d < want*98/100 || d > want*9/8 {
			t.Errorf("quantile %v: %v, %v, want about %v", q, d, ok, want)
		}
	}
	got = s.Next(now.Add(3 * time.Second))
	if _, ok := got.Latency.Quantile(0.5); ok || got.Requests != 0 || got.Took != 2*time.Second {
		t.Errorf("nothing happened, but %+v", got)
	}
	if all := m.Totals(); all != (Totals{7, 1004, 5, 3}) {
		t.Errorf("%+v", all)
	}
}
