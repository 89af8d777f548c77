package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Connections is the connections of clients in one protocol.
type Connections struct {
	// Protocol is one of a fixed set.
	Protocol string
	Open     int
	// Refused were closed since the start because there were too many, if Refusable: it is
	// known in this protocol whether a connection is refused.
	Refused   uint64
	Refusable bool
}

// connectionMetrics asks for the numbers when they are wanted.
type connectionMetrics struct {
	count         func() []Connections
	open, refused *prometheus.Desc
}

// WatchConnections adds the connections of clients to the metrics. Any goroutine may call
// count, which returns the same protocols each time. limit bounds the connections of the
// client port, thriftLimit those of the Thrift port. It is called at most once.
func WatchConnections(r *Registry, limit, thriftLimit int, count func() []Connections) {
	limits := r.GaugeVec("client_connections_limit", "Connections of clients that a port may have: client or thrift.", "port")
	limits.WithLabelValues("client").Set(float64(limit))
	if thriftLimit > 0 {
		limits.WithLabelValues("thrift").Set(float64(thriftLimit))
	}
	r.MustRegister(&connectionMetrics{
		count: count,
		open: r.Desc("gauge", "client_connections", "Connections of clients, by protocol: silent (nothing was sent yet), handshake (of TLS), http1 (the fast path), "+
			"http2, resp, web (HTTP/1 on the standard servers), h3, pd or thrift.", "protocol"),
		refused: r.Desc("counter", "client_connections_refused_total", "Connections of clients that were refused because there were too many, by protocol: silent (before it is known), h3, pd or thrift.", "protocol"),
	})
}

// Describe implements prometheus.Collector.
func (m *connectionMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.open
	to <- m.refused
}

// Collect implements prometheus.Collector.
func (m *connectionMetrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.count() {
		to <- prometheus.MustNewConstMetric(m.open, prometheus.GaugeValue, float64(c.Open), c.Protocol)
		if c.Refusable {
			to <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(c.Refused), c.Protocol)
		}
	}
}
