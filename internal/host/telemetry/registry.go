package telemetry

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "isotone"

// Registry is a Prometheus registry that remembers what its metrics mean. All its metrics are
// named isotone_…; names in the methods are without that. A name given twice is a defect and
// panics. Metrics are added by one goroutine, before the registry is used.
type Registry struct {
	*prometheus.Registry
	described []Description
}

// Description is what there is to know of a metric before it has a value.
type Description struct {
	Name string
	// Type is counter, gauge or histogram.
	Type   string
	Labels []string // nil for none
	Help   string
}

// NewRegistry returns a registry that has the metrics of the Go runtime and of the process.
func NewRegistry() *Registry {
	r := &Registry{Registry: prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Descriptions returns the metrics, without those of the Go runtime and of the process, by
// name.
func (r *Registry) Descriptions() []Description {
	return slices.SortedFunc(slices.Values(r.described), func(a, b Description) int { return cmp.Compare(a.Name, b.Name) })
}

// Handler serves the metrics as Prometheus text.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{})
}

// Desc describes a metric of a collector that the caller registers itself.
func (r *Registry) Desc(kind, name, help string, labels ...string) *prometheus.Desc {
	full := r.describe(kind, name, help, labels)
	return prometheus.NewDesc(full, help, labels, nil)
}

func (r *Registry) describe(kind, name, help string, labels []string) (full string) {
	full = namespace + "_" + name
	r.described = append(r.described, Description{Name: full, Type: kind, Labels: labels, Help: help})
	return full
}

// Counter adds a counter.
func (r *Registry) Counter(name, help string) prometheus.Counter {
	return registered(r, prometheus.NewCounter(prometheus.CounterOpts{Name: r.describe("counter", name, help, nil), Help: help}))
}

// CounterVec adds a counter with labels.
func (r *Registry) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.describe("counter", name, help, labels), Help: help}, labels))
}

// CounterFunc adds a counter that f returns. f must be safe for concurrent use.
func (r *Registry) CounterFunc(name, help string, f func() float64) {
	registered(r, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: r.describe("counter", name, help, nil), Help: help}, f))
}

// Gauge adds a gauge.
func (r *Registry) Gauge(name, help string) prometheus.Gauge {
	return registered(r, prometheus.NewGauge(prometheus.GaugeOpts{Name: r.describe("gauge", name, help, nil), Help: help}))
}

// GaugeVec adds a gauge with labels.
func (r *Registry) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return registered(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: r.describe("gauge", name, help, labels), Help: help}, labels))
}

// GaugeFunc adds a gauge that f returns. f must be safe for concurrent use.
func (r *Registry) GaugeFunc(name, help string, f func() float64) {
	registered(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: r.describe("gauge", name, help, nil), Help: help}, f))
}

// Histogram adds a histogram with the upper bounds of its buckets.
func (r *Registry) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return registered(r, prometheus.NewHistogram(prometheus.HistogramOpts{Name: r.describe("histogram", name, help, nil), Help: help, Buckets: buckets}))
}

// HistogramVec adds a histogram with labels.
func (r *Registry) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registered(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: r.describe("histogram", name, help, labels), Help: help, Buckets: buckets}, labels))
}

func registered[C prometheus.Collector](r *Registry, c C) C {
	r.MustRegister(c)
	return c
}
