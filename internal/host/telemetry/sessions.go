package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SessionStats are the sessions of clients with their locks, and how far frontiers are behind, as the leader sees them.
type SessionStats struct {
	Sessions, Held, Waiting int
	// Lags are by group.
	Lags map[string]time.Duration
}

// sessionMetrics belongs to SetNode, but for its counters and histograms.
type sessionMetrics struct {
	sessions, held, waiting prometheus.Gauge
	lag                     *prometheus.GaugeVec
	ended                   [3]prometheus.Counter // in the order of AddSessionsEnded
	seals                   prometheus.Counter
	wait, commit            prometheus.Histogram
}

func newSessionMetrics(r *Registry) sessionMetrics {
	locks := r.GaugeVec("locks", "Locks that are held, and requests that wait for one, by state: held or waiting. On the leader only.", "state")
	m := sessionMetrics{
		sessions: r.Gauge("sessions", "Sessions of clients. On the leader only."),
		held:     locks.WithLabelValues("held"),
		waiting:  locks.WithLabelValues("waiting"),
		lag:      r.GaugeVec("frontier_lag_seconds", "How far the frontier of a group is behind oracle time, in seconds. On the leader only.", "group"),
		seals:    r.Counter("frontier_seals_total", "Seals that members of groups were asked for."),
		wait:     r.Histogram("lock_wait_seconds", "Time from a request for a lock until it was granted, in seconds.", lockBuckets),
		commit:   r.Histogram("lock_commit_seconds", "Time from the decision to grant a lock until that was committed, in seconds.", roundBuckets),
	}
	ended := r.CounterVec("sessions_ended_total", "Sessions that have ended, by why: closed by the client, lost (the client was silent or had no connection), or broken by an operator.", "why")
	for i, why := range []string{"closed", "lost", "broken"} {
		m.ended[i] = ended.WithLabelValues(why)
	}
	return m
}

func (m *sessionMetrics) set(s *SessionStats) {
	m.sessions.Set(float64(s.Sessions))
	m.held.Set(float64(s.Held))
	m.waiting.Set(float64(s.Waiting))
	m.lag.Reset()
	for group, lag := range s.Lags {
		m.lag.WithLabelValues(group).Set(lag.Seconds())
	}
}

// AddSessionsEnded counts sessions that have ended, by why.
func (m *Metrics) AddSessionsEnded(closed, lost, broken uint64) {
	for i, n := range [...]uint64{closed, lost, broken} {
		m.session.ended[i].Add(float64(n))
	}
}

// AddSeals counts seals that clients were asked for.
func (m *Metrics) AddSeals(n uint64) { m.session.seals.Add(float64(n)) }

// ObserveGrant counts a lock that was granted: waited after it was asked for, and committed after it was decided.
func (m *Metrics) ObserveGrant(waited, committed time.Duration) {
	m.session.wait.Observe(waited.Seconds())
	m.session.commit.Observe(committed.Seconds())
}
