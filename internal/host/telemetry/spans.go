package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Spans are those of an exporter since its start, and its queue.
type Spans struct {
	Sent, Dropped, Failed uint64
	Queued, QueueLimit    int
}

// spanMetrics asks for the numbers when they are wanted.
type spanMetrics struct {
	count                func() Spans
	spans, queued, limit *prometheus.Desc
}

// WatchSpans adds what became of spans to the metrics. Any goroutine may call count. It is
// called at most once.
func WatchSpans(r *Registry, count func() Spans) {
	r.MustRegister(&spanMetrics{
		count:  count,
		spans:  r.Desc("counter", "trace_spans_total", "Spans of traces, by outcome: sent, dropped (the queue was full) or failed (the collector did not take them).", "outcome"),
		queued: r.Desc("gauge", "trace_queue_spans", "Spans that wait to be sent to the collector."),
		limit:  r.Desc("gauge", "trace_queue_limit_spans", "Spans that may wait to be sent to the collector."),
	})
}

// Describe implements prometheus.Collector.
func (m *spanMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.spans
	to <- m.queued
	to <- m.limit
}

// Collect implements prometheus.Collector.
func (m *spanMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.count()
	for outcome, n := range map[string]uint64{"sent": s.Sent, "dropped": s.Dropped, "failed": s.Failed} {
		to <- prometheus.MustNewConstMetric(m.spans, prometheus.CounterValue, float64(n), outcome)
	}
	to <- prometheus.MustNewConstMetric(m.queued, prometheus.GaugeValue, float64(s.Queued))
	to <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(s.QueueLimit))
}
