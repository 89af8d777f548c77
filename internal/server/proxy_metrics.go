package server

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/proxy"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// proxyMetrics has the metrics of a proxy of either kind, in a registry of their own.
type proxyMetrics struct {
	registry *telemetry.Registry
	latency  prometheus.Histogram

	// With --backend.
	requests [6]prometheus.Counter // by the first digit of the status; 0: the client has disconnected
	source   func() proxySums
	backends backendDescs

	// With --tcp.
	ends      map[proxy.TCPOutcome]prometheus.Counter
	waits     prometheus.Histogram
	durations prometheus.Histogram

	// With --node.
	asked    *prometheus.CounterVec // by protocol and code
	bundles  prometheus.Counter
	gathered prometheus.Histogram
	repeated prometheus.Counter
	rejected *prometheus.CounterVec // by code
}

// proxyBuckets are in seconds, from a hop on one machine to an overloaded backend.
var proxyBuckets = []float64{100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

const proxyPrefix = "proxy_"

func newProxyMetrics(version string) *proxyMetrics {
	m := &proxyMetrics{registry: telemetry.NewRegistry()}
	m.registry.GaugeVec("build_info", "Always 1; the labels say what runs.", "version", "goversion").WithLabelValues(version, runtime.Version()).Set(1)
	m.latency = m.registry.Histogram(proxyPrefix+"request_duration_seconds", "Time from a request's arrival to its answer, in seconds.", proxyBuckets)
	return m
}

// ProxyMetrics describes all metrics that a proxy of any kind can have.
func ProxyMetrics() []telemetry.Description {
	m := newProxyMetrics("")
	m.watch(nil)
	m.describeTCP(nil)
	m.watchCluster()
	telemetry.NewRequestStats(m.registry)
	telemetry.WatchConnections(m.registry, 1, 0, nil)
	telemetry.WatchSpans(m.registry, nil)
	(&telemetry.Log{}).Watch(m.registry)
	return m.registry.Descriptions()
}

func (m *proxyMetrics) handler() http.Handler { return m.registry.Handler() }

// watch adds the metrics of a proxy for HTTP backends.
func (m *proxyMetrics) watch(s *proxy.Server) {
	requests := m.registry.CounterVec(proxyPrefix+"requests_total", "Requests, by the class of the status; left: the client disconnected before the answer.", "status")
	for i := range m.requests {
		class := strconv.Itoa(i) + "xx"
		if i == 0 {
			class = "left"
		}
		m.requests[i] = requests.WithLabelValues(class)
	}
	m.collect(func() float64 { return float64(s.ConnectionsMax()) }, func() proxySums {
		st := s.Status()
		return proxySums{st.Backends, st.Connections, st.RetriesRefused}
	})
}

// proxySums are what a server with backends counts itself.
type proxySums struct {
	backends       []proxy.BackendStatus
	connections    int
	retriesRefused uint64
}

// collect adds the metrics of a server with backends, of either kind.
func (m *proxyMetrics) collect(limit func() float64, source func() proxySums) {
	m.registry.GaugeFunc(proxyPrefix+"connections_limit", "Connections of clients that may be open; further ones are answered with 503, with --tcp reset.", limit)
	m.source, m.backends = source, newBackendDescs(m.registry)
	m.registry.MustRegister(m)
}

// tcpBuckets are the durations of connections, in seconds, from one request to some hours.
var tcpBuckets = []float64{1e-3, 10e-3, 0.1, 1, 10, 60, 600, 3600, 6 * 3600}

// describeTCP adds the metrics that only --tcp has.
func (m *proxyMetrics) describeTCP(bytes func() (up, down uint64)) {
	ends := m.registry.CounterVec(proxyPrefix+"tcp_connections_total", "With --tcp: connections that have ended, by outcome: closed (in order), reset (by one side, or it died), idle, cut (at the end of draining), refused (too many) or no_backend (none was up and not full, or accepted it).", "outcome")
	m.ends = map[proxy.TCPOutcome]prometheus.Counter{}
	for _, o := range proxy.TCPOutcomes() {
		m.ends[o] = ends.WithLabelValues(string(o))
	}
	m.waits = m.registry.Histogram(proxyPrefix+"tcp_connect_duration_seconds", "With --tcp: time from a client's connection to that to a backend, in seconds.", proxyBuckets)
	m.durations = m.registry.Histogram(proxyPrefix+"tcp_connection_duration_seconds", "With --tcp: duration of connections that were forwarded, in seconds.", tcpBuckets)
	m.registry.CounterFunc(proxyPrefix+"tcp_up_bytes_total", "With --tcp: bytes carried to backends.", func() float64 { up, _ := bytes(); return float64(up) })
	m.registry.CounterFunc(proxyPrefix+"tcp_down_bytes_total", "With --tcp: bytes carried to clients.", func() float64 { _, down := bytes(); return float64(down) })
}

// watchTCP adds the metrics of a proxy for TCP connections.
func (m *proxyMetrics) watchTCP(s *proxy.TCPServer) {
	m.describeTCP(func() (up, down uint64) {
		st := s.Status()
		return st.BytesUp, st.BytesDown
	})
	m.collect(func() float64 { return float64(s.ConnectionsMax()) }, func() proxySums {
		st := s.Status()
		return proxySums{st.Backends, st.Connections, st.RetriesRefused}
	})
}

// observeTCP is for proxy.TCPConfig.Observe.
func (m *proxyMetrics) observeTCP(e proxy.TCPEnd) {
	m.ends[e.Outcome].Inc()
	if e.Backend != balance.None {
		m.waits.Observe(e.Wait.Seconds())
		m.durations.Observe(e.Wall.Seconds())
	}
}

// observe is for proxy.Config.Observe.
func (m *proxyMetrics) observe(_, status int, wall time.Duration) {
	m.requests[min(status/100, len(m.requests)-1)].Inc()
	m.latency.Observe(wall.Seconds())
}

// backendDescs are the series of each backend, and those of the whole proxy that it counts
// itself.
type backendDescs struct {
	requests, failures, retries, ejections, up, ejected, load *prometheus.Desc
	conns, refused                                            *prometheus.Desc
}

func newBackendDescs(r *telemetry.Registry) backendDescs {
	of := func(kind, name, help string) *prometheus.Desc {
		return r.Desc(kind, proxyPrefix+"backend_"+name, help, "backend")
	}
	return backendDescs{
		requests:  of("counter", "requests_total", "Requests sent to a backend, each try counted; with --tcp, connections, here and below."),
		failures:  of("counter", "failures_total", "Requests to a backend without a valid answer, or with a 502, 503 or 504."),
		retries:   of("counter", "retries_total", "Requests sent to a backend after they had failed elsewhere."),
		ejections: of("counter", "ejections_total", "Times that a backend was ejected."),
		up:        of("gauge", "up", "Whether a backend is up according to its health check: 1 or 0."),
		ejected:   of("gauge", "ejected", "Whether a backend is ejected: 1 or 0."),
		load:      of("gauge", "load", "Requests in progress at a backend."),
		conns:     r.Desc("gauge", proxyPrefix+"connections", "Connections of clients."),
		refused:   r.Desc("counter", proxyPrefix+"retries_refused_total", "Retries that the budget refused."),
	}
}

// Describe implements prometheus.Collector.
func (m *proxyMetrics) Describe(to chan<- *prometheus.Desc) {
	d := &m.backends
	for _, d := range []*prometheus.Desc{d.requests, d.failures, d.retries, d.ejections, d.up, d.ejected, d.load, d.conns, d.refused} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *proxyMetrics) Collect(to chan<- prometheus.Metric) {
	st, d := m.source(), &m.backends
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
	for _, b := range st.backends {
		count(d.requests, b.Requests, b.URL)
		count(d.failures, b.Failures, b.URL)
		count(d.retries, b.Retries, b.URL)
		count(d.ejections, b.Ejections, b.URL)
		gauge(d.up, oneIf(!b.Down), b.URL)
		gauge(d.ejected, oneIf(b.Ejected), b.URL)
		gauge(d.load, b.Load, b.URL)
	}
	gauge(d.conns, st.connections)
	count(d.refused, st.retriesRefused)
}

// watchCluster adds what a proxy for timestamps has to tell.
func (m *proxyMetrics) watchCluster() {
	r := m.registry
	m.asked = r.CounterVec(proxyPrefix+"oracle_requests_total", "Requests of clients for timestamps and ids, by protocol and by code: ok or an error code.", "protocol", "code")
	m.bundles = r.Counter(proxyPrefix+"cluster_requests_total", "Requests to the cluster that were answered.")
	m.gathered = r.Histogram(proxyPrefix+"cluster_request_timestamps", "Timestamps in one request to the cluster.", prometheus.ExponentialBuckets(1, 4, 10))
	m.repeated = r.Counter(proxyPrefix+"cluster_retries_total", "Requests to the cluster that were retried.")
	m.rejected = r.CounterVec(proxyPrefix+"cluster_rejected_total", "Answers that were not used: wrong_cluster, connections to nodes of another cluster; internal, timestamps that were out of order.", "code")
	for _, code := range []isotone.Code{isotone.CodeWrongCluster, isotone.CodeInternal} {
		m.rejected.WithLabelValues(string(code))
	}
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
