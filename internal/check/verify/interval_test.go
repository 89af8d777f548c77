//go:build linux

package verify_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/verify"
)

// TestRun_ChecksIntervals: clocks that say how far off they may be are right, and those that are off by more are found out.
func TestRun_ChecksIntervals(t *testing.T) {
	t.Parallel()
	r := run(t, options(t, truthful, verify.Kill), hasAll(verify.Kill))
	if want := []verify.Verdict{{Order: verify.Intervals, Promised: true}}; r.Broken() || r.Held() != verify.Intervals || !slices.Equal(r.Verdicts, want) || r.Numbers > 0 {
		t.Errorf("%+v", r)
	}
	r = run(t, options(t, lying, "none"), (*verify.Result).Broken)
	if r.Held() != "" || len(r.Anomalies) == 0 {
		t.Fatalf("%+v", r)
	}
	a := r.Anomalies[0]
	if a.Order != verify.Intervals || !a.Earlier.Known || a.Earlier.Node <= a.Later.Node || a.Earlier.Count != uint64(2*time.Millisecond+1) {
		t.Errorf("%+v: want a node that is behind one that was asked before", a)
	}
}
