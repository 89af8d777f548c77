package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Use is what one user has used since the start, and was refused.
type Use struct {
	User                  string
	Requests, Timestamps  uint64
	LackedRole, OverQuota uint64
}

// userMetrics asks for the numbers when they are wanted.
type userMetrics struct {
	uses                          func() []Use
	requests, timestamps, refused *prometheus.Desc
}

// WatchUsers adds what users have used to the metrics. Any goroutine may call uses, which bounds how many users there are. It is
// called at most once.
func WatchUsers(r *Registry, uses func() []Use) {
	r.MustRegister(&userMetrics{
		uses: uses,
		requests: r.Desc("counter", "user_requests_total", "Requests of a user that were answered. Users are those of the list (at most 10000) that have asked for anything, "+
			"(anonymous) for clients without credentials, and (others).", "user"),
		timestamps: r.Desc("counter", "user_timestamps_total", "Timestamps and ids that a user was given.", "user"),
		refused:    r.Desc("counter", "user_refusals_total", "Requests of a user that were refused, by reason: role (it lacks the role) or quota (a limit was reached).", "user", "reason"),
	})
}

// Describe implements prometheus.Collector.
func (m *userMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.requests
	to <- m.timestamps
	to <- m.refused
}

// Collect implements prometheus.Collector.
func (m *userMetrics) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, u := range m.uses() {
		count(m.requests, u.Requests, u.User)
		count(m.timestamps, u.Timestamps, u.User)
		count(m.refused, u.LackedRole, u.User, "role")
		count(m.refused, u.OverQuota, u.User, "quota")
	}
}
