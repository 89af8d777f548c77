package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are those of a server. Durations are in seconds.
type metrics struct {
	streams    prometheus.Gauge
	requests   prometheus.Counter
	timestamps prometheus.Counter
	ended      *prometheus.CounterVec
	asked      prometheus.Histogram
	failed     prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "isotone_pd_" + name, Help: help})
	}
	return &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "isotone_pd_streams",
			Help: "Streams on which clients of PD request timestamps."}),
		requests:   counter("requests_total", "Tso requests that were answered."),
		timestamps: counter("timestamps_total", "Timestamps in these answers."),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "isotone_pd_streams_ended_total",
			Help: "Streams that have ended, by the code of gRPC; OK when the client closed it or the gateway stopped."}, []string{"code"}),
		asked: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "isotone_pd_cluster_request_seconds",
			Help:    "Time that a batch of requests, or a probe of GetMembers, waited for the cluster, failures included.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 17)}), // 50 µs to 3.3 s
		failed: counter("cluster_failures_total", "Batches and probes that the cluster did not answer."),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.streams, m.requests, m.timestamps, m.ended, m.asked, m.failed}
}

func (m *metrics) answered(count uint64) {
	m.requests.Inc()
	m.timestamps.Add(float64(count))
}

func (m *metrics) streamEnded(err error) {
	m.streams.Dec()
	code := codes.OK
	if err != nil {
		code = status.Code(err)
	}
	m.ended.WithLabelValues(code.String()).Inc()
}

func (m *metrics) clusterAsked(began time.Time, err error) {
	m.asked.Observe(time.Since(began).Seconds())
	if err != nil {
		m.failed.Inc()
	}
}

// Describe and Collect make a server a [prometheus.Collector], so that the metrics of several servers
// of one process can have labels of their own.
func (s *Server) Describe(out chan<- *prometheus.Desc) {
	for _, c := range s.metrics.collectors() {
		c.Describe(out)
	}
}

// Collect is part of [prometheus.Collector]; see Describe.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	for _, c := range s.metrics.collectors() {
		c.Collect(out)
	}
}
