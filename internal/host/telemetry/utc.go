package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isotone/isotone/internal/host/utc"
)

// utcGauges are the gauges of the wall clock against UTC. Each has one series at most, of the source
// that was read last.
type utcGauges struct{ synchronized, bound *prometheus.GaugeVec }

func newUTCGauges(r *Registry) utcGauges {
	return utcGauges{
		synchronized: r.GaugeVec("clock_utc_synchronized", "Whether this machine says that its wall clock is being synchronized, by source: clockbound or kernel: 1 or 0. Absent if no source answers.", "source"),
		bound:        r.GaugeVec("clock_utc_error_seconds", "How far this node's wall clock may be from UTC, as its machine says, in seconds, by source: clockbound or kernel. Nothing rests on it. Absent while no source has a bound.", "source"),
	}
}

// SetUTC sets what the machine says about its wall clock; known is false if it says nothing.
func (m *Metrics) SetUTC(s utc.Status, known bool) {
	m.utc.synchronized.Reset()
	m.utc.bound.Reset()
	if known {
		m.utc.synchronized.WithLabelValues(string(s.Source)).Set(oneIf(s.Synchronized))
	}
	if known && s.Known {
		m.utc.bound.WithLabelValues(string(s.Source)).Set(s.Error.Seconds())
	}
}
