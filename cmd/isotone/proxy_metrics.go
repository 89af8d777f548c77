package main

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/proxy"
)

// proxyMetrics has the metrics of a proxy of either kind, in a registry of their own.
type proxyMetrics struct {
	registry *prometheus.Registry
	latency  prometheus.Histogram

	// With --backend.
	requests [6]prometheus.Counter // by the first digit of the status; 0: the client has disconnected
	server   *proxy.Server

	// With --node.
	asked    *prometheus.CounterVec // by protocol and code
	bundles  prometheus.Counter
	gathered prometheus.Histogram
	repeated prometheus.Counter
	rejected *prometheus.CounterVec // by code
}

// proxyBuckets are in seconds, from a hop on one machine to an overloaded backend.
var proxyBuckets = []float64{100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

const proxyPrefix = "isotone_proxy_"

func newProxyMetrics(log *telemetry.Log) *proxyMetrics {
	m := &proxyMetrics{registry: prometheus.NewRegistry()}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "isotone_build_info", Help: "Always 1; the labels say what runs."}, []string{"version", "goversion"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{Name: proxyPrefix + "request_duration_seconds", Help: "Time from a request's arrival to its answer, in seconds.", Buckets: proxyBuckets})
	m.registry.MustRegister(build, m.latency, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	log.CountDropped(m.registry)
	return m
}

func (m *proxyMetrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// watch adds the metrics of a proxy for HTTP backends.
func (m *proxyMetrics) watch(s *proxy.Server) {
	m.server = s
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: proxyPrefix + "requests_total", Help: "Requests, by the class of the status; left: the client disconnected before the answer."}, []string{"status"})
	for i := range m.requests {
		class := strconv.Itoa(i) + "xx"
		if i == 0 {
			class = "left"
		}
		m.requests[i] = requests.WithLabelValues(class)
	}
	m.registry.MustRegister(requests, m)
}

// observe is for proxy.Config.Observe.
func (m *proxyMetrics) observe(_, status int, wall time.Duration) {
	m.requests[min(status/100, len(m.requests)-1)].Inc()
	m.latency.Observe(wall.Seconds())
}

// The series of each backend, and those of the whole proxy.
var (
	descRequests  = backendDesc("requests_total", "Requests sent to a backend, each try counted.")
	descFailures  = backendDesc("failures_total", "Requests to a backend without a valid answer, or with a 502, 503 or 504.")
	descRetries   = backendDesc("retries_total", "Requests sent to a backend after they had failed elsewhere.")
	descEjections = backendDesc("ejections_total", "Times that a backend was ejected.")
	descUp        = backendDesc("up", "Whether a backend is up according to its health check: 1 or 0.")
	descEjected   = backendDesc("ejected", "Whether a backend is ejected: 1 or 0.")
	descLoad      = backendDesc("load", "Requests in progress at a backend.")
	descConns     = prometheus.NewDesc(proxyPrefix+"connections", "Connections of clients.", nil, nil)
	descRefused   = prometheus.NewDesc(proxyPrefix+"retries_refused_total", "Retries that the budget refused.", nil, nil)
)

func backendDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(proxyPrefix+"backend_"+name, help, []string{"backend"}, nil)
}

// Describe implements prometheus.Collector.
func (m *proxyMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRequests, descFailures, descRetries, descEjections, descUp, descEjected, descLoad, descConns, descRefused} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *proxyMetrics) Collect(to chan<- prometheus.Metric) {
	st := m.server.Status()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	oneIf := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	for _, b := range st.Backends {
		count(descRequests, b.Requests, b.URL)
		count(descFailures, b.Failures, b.URL)
		count(descRetries, b.Retries, b.URL)
		count(descEjections, b.Ejections, b.URL)
		gauge(descUp, oneIf(!b.Down), b.URL)
		gauge(descEjected, oneIf(b.Ejected), b.URL)
		gauge(descLoad, b.Load, b.URL)
	}
	gauge(descConns, st.Connections)
	count(descRefused, st.RetriesRefused)
}

// watchCluster adds what a proxy for timestamps has to tell.
func (m *proxyMetrics) watchCluster() {
	m.asked = prometheus.NewCounterVec(prometheus.CounterOpts{Name: proxyPrefix + "oracle_requests_total", Help: "Requests of clients for timestamps and ids, by protocol and by code: ok or an error code."}, []string{"protocol", "code"})
	m.bundles = prometheus.NewCounter(prometheus.CounterOpts{Name: proxyPrefix + "cluster_requests_total", Help: "Requests to the cluster that were answered."})
	m.gathered = prometheus.NewHistogram(prometheus.HistogramOpts{Name: proxyPrefix + "cluster_request_timestamps", Help: "Timestamps in one request to the cluster.", Buckets: prometheus.ExponentialBuckets(1, 4, 10)})
	m.repeated = prometheus.NewCounter(prometheus.CounterOpts{Name: proxyPrefix + "cluster_retries_total", Help: "Requests to the cluster that were retried."})
	m.rejected = prometheus.NewCounterVec(prometheus.CounterOpts{Name: proxyPrefix + "cluster_rejected_total", Help: "Answers that were not used: wrong_cluster, connections to nodes of another cluster; internal, timestamps that were out of order."}, []string{"code"})
	for _, code := range []isotone.Code{isotone.CodeWrongCluster, isotone.CodeInternal} {
		m.rejected.WithLabelValues(string(code))
	}
	m.registry.MustRegister(m.asked, m.bundles, m.gathered, m.repeated, m.rejected)
}

func (m *proxyMetrics) observeMany(protocol, code string, n int, wall time.Duration) {
	m.asked.WithLabelValues(protocol, code).Add(float64(n))
	m.latency.Observe(wall.Seconds())
}

func (m *proxyMetrics) observeOne(protocol, code string, wall time.Duration) {
	m.observeMany(protocol, code, 1, wall)
}

// hooks are for client.Options.Hooks.
func (m *proxyMetrics) hooks(log *slog.Logger) client.Hooks {
	return client.Hooks{
		Answered: func(a client.Answer) {
			if !a.IDs {
				m.bundles.Inc()
				m.gathered.Observe(float64(a.Count))
			}
		},
		Retried: func(string, error) { m.repeated.Inc() },
		Rejected: func(addr string, err error) {
			code := isotone.CodeInternal
			if errors.Is(err, isotone.ErrWrongCluster) {
				code = isotone.CodeWrongCluster
			}
			m.rejected.WithLabelValues(string(code)).Inc()
			logRejected(log, addr, err)
		},
	}
}

// logRejected logs an answer that was not used. Nodes of another cluster are retried all the time
// and reported to clients, so they only get a debug line; a broken order is an error.
func logRejected(log *slog.Logger, addr string, err error) {
	if errors.Is(err, isotone.ErrWrongCluster) {
		log.Debug("a node of another cluster is not used", "addr", addr, "err", err)
		return
	}
	log.Error("a timestamp was out of order and is not used", "addr", addr, "err", err)
}
