package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/telemetry"
)

func TestSetNode_IntervalsAreAbsentWhileUnknown(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	stats := telemetry.NodeStats{Interval: telemetry.IntervalStats{
		Max: 100 * time.Millisecond, Running: true, Known: true, Width: 250 * time.Microsecond, Limit: 50 * time.Millisecond, Age: 2 * time.Second,
	}}
	m.SetNode(stats)
	text := scrape(t, m)
	for _, want := range []string{
		"isotone_interval_max_seconds 0.1\n", "isotone_interval_running 1\n", "isotone_interval_broken 0\n", "isotone_interval_blamed 0\n",
		"isotone_interval_width_seconds 0.00025\n", "isotone_interval_limit_seconds 0.05\n", "isotone_interval_age_seconds 2\n",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %q", want)
		}
	}
	stats.Interval = telemetry.IntervalStats{Broken: true, Blamed: true, Waiting: true, Width: time.Second}
	m.SetNode(stats)
	text = scrape(t, m)
	for _, want := range []string{"isotone_interval_max_seconds 0\n", "isotone_interval_running 0\n", "isotone_interval_broken 1\n", "isotone_interval_blamed 1\n", "isotone_interval_waiting 1\n"} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %q", want)
		}
	}
	for _, name := range []string{"width", "limit", "age"} {
		if strings.Contains(text, "\nisotone_interval_"+name+"_seconds ") {
			t.Errorf("%s is told though nothing is known", name)
		}
	}
}
