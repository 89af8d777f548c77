package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/utc"
)

func TestSetUTC_ShowsOnlyWhatIsKnown(t *testing.T) {
	m := telemetry.NewMetrics("v1")
	for _, tt := range []struct {
		status utc.Status
		known  bool
		want   []string
	}{
		{utc.Status{Source: utc.Kernel, Synchronized: true, Known: true, Error: 2 * time.Millisecond}, true,
			[]string{`isotone_clock_utc_synchronized{source="kernel"} 1`, `isotone_clock_utc_error_seconds{source="kernel"} 0.002`}},
		{utc.Status{Source: utc.ClockBound}, true, []string{`isotone_clock_utc_synchronized{source="clockbound"} 0`}},
		{utc.Status{}, false, nil},
	} {
		m.SetUTC(tt.status, tt.known)
		var got []string
		for line := range strings.Lines(scrape(t, m)) {
			if strings.HasPrefix(line, "isotone_clock_utc_") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		for _, want := range tt.want {
			if !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("%+v: %q, want %q", tt.status, got, want)
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%+v: %q", tt.status, got)
		}
	}
}
