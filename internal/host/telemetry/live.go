package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// liveMetrics is about live documents, by name; the settings bound how many there are.
type liveMetrics struct {
	loads   *prometheus.CounterVec
	took    *prometheus.HistogramVec
	failing *prometheus.GaugeVec
	streams *prometheus.GaugeVec
	cut     *prometheus.CounterVec
}

func newLiveMetrics(r *Registry) liveMetrics {
	return liveMetrics{
		loads:   r.CounterVec("live_loads_total", "Loads of live documents, by code: ok for a change, unchanged, or an error code.", "document", "code"),
		took:    r.HistogramVec("live_load_seconds", "Time to load a live document, in seconds.", storageBuckets, "document"),
		failing: r.GaugeVec("live_failing", "Whether the source of a live document fails, and the last good one is served: 1 or 0.", "document"),
		streams: r.GaugeVec("live_streams", "Open streams of a live document.", "document"),
		cut:     r.CounterVec("live_streams_cut_total", "Streams of a live document that were cut because their reader did not read.", "document"),
	}
}

// ObserveLiveLoad counts a load of a live document.
func (m *Metrics) ObserveLiveLoad(document, code string, took time.Duration) {
	m.live.loads.WithLabelValues(document, code).Inc()
	m.live.took.WithLabelValues(document).Observe(took.Seconds())
	m.live.failing.WithLabelValues(document) // there from the first load on
}

// SetLiveFailing notes that the source of a document begins or ceases to fail.
func (m *Metrics) SetLiveFailing(document string, failing bool) {
	m.live.failing.WithLabelValues(document).Set(oneIf(failing))
}

// AddLiveStreams adds to how many streams of a document are open.
func (m *Metrics) AddLiveStreams(document string, change int) {
	m.live.streams.WithLabelValues(document).Add(float64(change))
}

// CountLiveCut counts a stream that was cut.
func (m *Metrics) CountLiveCut(document string) { m.live.cut.WithLabelValues(document).Inc() }
