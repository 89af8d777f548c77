package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/telemetry"
)

func TestRequestStats_AreThereOnlyIfAskedFor(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	if text := scrape(t, m); strings.Contains(text, "isotone_request_wall_seconds") {
		t.Error("there are series of what is not measured")
	}
	m.NewRequestStats()
	wantLines(t, m, "isotone_request_wall_seconds_count 0", "isotone_request_stall_seconds_count 0")
}

func TestRequestStats_CountsCPUOnlyWhereItIsKnown(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	s := m.NewRequestStats()
	s.Observe(3*time.Millisecond, time.Millisecond, 500*time.Microsecond, 1500*time.Microsecond, true)
	s.Observe(time.Second, 0, 0, 0, false)
	wantLines(t, m, "isotone_request_wall_seconds_count 2", `isotone_request_wall_seconds_bucket{le="0.005"} 1`,
		"isotone_request_user_seconds_count 1", "isotone_request_user_seconds_sum 0.001",
		"isotone_request_system_seconds_sum 0.0005", "isotone_request_stall_seconds_sum 0.0015")
	if n := testing.AllocsPerRun(100, func() { s.Observe(1, 1, 1, 1, true) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
