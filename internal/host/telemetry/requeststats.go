package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sectionBuckets: from a handler that has the answer at hand to one that hangs.
var sectionBuckets = []float64{
	1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// RequestStats are the times of requests that are measured one by one. Its methods are safe
// for concurrent use and do not allocate.
type RequestStats struct {
	wall, user, system, stall prometheus.Histogram
}

// NewRequestStats returns statistics at zero in the registry r. It can be called once for
// each registry.
func NewRequestStats(r *Registry) *RequestStats {
	return &RequestStats{
		wall:   r.Histogram("request_wall_seconds", "Time in the handler of a request, in seconds.", sectionBuckets),
		user:   r.Histogram("request_user_seconds", "CPU time of the handler of a request in user mode, in seconds.", sectionBuckets),
		system: r.Histogram("request_system_seconds", "CPU time of the handler of a request in the kernel, in seconds.", sectionBuckets),
		stall:  r.Histogram("request_stall_seconds", "Time in the handler of a request in which no CPU worked for it, in seconds.", sectionBuckets),
	}
}

// NewRequestStats returns the statistics of single requests, in the registry of m. Call it at
// most once; without it there are no such series.
func (m *Metrics) NewRequestStats() *RequestStats { return NewRequestStats(m.registry) }

// Observe counts one request. If its CPU time is not known, only wall is counted.
func (s *RequestStats) Observe(wall, user, system, stall time.Duration, measured bool) {
	s.wall.Observe(wall.Seconds())
	if measured {
		s.user.Observe(user.Seconds())
		s.system.Observe(system.Seconds())
		s.stall.Observe(stall.Seconds())
	}
}
