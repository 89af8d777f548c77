package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/telemetry"
)

func TestMetrics_OfSessions(t *testing.T) {
	m := telemetry.NewMetrics("")
	m.SetNode(telemetry.NodeStats{Sessions: telemetry.SessionStats{Sessions: 5, Held: 4, Waiting: 3, Lags: map[string]time.Duration{"orders": 2 * time.Millisecond}}})
	m.AddSessionsEnded(1, 2, 3)
	m.AddSeals(7)
	m.ObserveGrant(20*time.Millisecond, time.Millisecond)
	wantLines(t, m,
		"isotone_sessions 5", `isotone_locks{state="held"} 4`, `isotone_locks{state="waiting"} 3`, `isotone_frontier_lag_seconds{group="orders"} 0.002`,
		`isotone_sessions_ended_total{why="closed"} 1`, `isotone_sessions_ended_total{why="lost"} 2`, `isotone_sessions_ended_total{why="broken"} 3`,
		"isotone_frontier_seals_total 7", "isotone_lock_wait_seconds_sum 0.02", "isotone_lock_commit_seconds_sum 0.001",
	)
	m.SetNode(telemetry.NodeStats{})
	wantLines(t, m, "isotone_sessions 0")
	if strings.Contains(scrape(t, m), `group="orders"`) {
		t.Error("a group of a former leader keeps its series")
	}
}
