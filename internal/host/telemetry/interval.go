package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IntervalStats is what a node knows of the cluster clock.
type IntervalStats struct {
	// Max is INTERVAL_MS; 0: the node reads no cluster clock.
	Max time.Duration
	// Running is whether the cluster's log says that readings may be told.
	Running bool
	// Broken is whether the node's steady clock, or the leader's, has a wrong rate.
	Broken bool
	// Blamed is whether the node leads and most of the others find that its steady clock has a wrong
	// rate, so that it hands over the leadership.
	Blamed bool
	// Waiting is whether the node leads and answers nothing yet, because limits of an earlier leader
	// may not have passed.
	Waiting bool
	// Width is how uncertain the clock is, Limit for how long it may still be used, Age the time
	// since the latest reading, if Known: a reading is valid.
	Known             bool
	Width, Limit, Age time.Duration
}

// intervalGauges are the gauges of the cluster clock. The vectors have their one series while a
// reading is valid.
type intervalGauges struct {
	max, running, broken, blamed, waiting prometheus.Gauge
	width, limit, age                     *prometheus.GaugeVec
}

func newIntervalGauges(r *Registry) intervalGauges {
	return intervalGauges{
		max:     r.Gauge("interval_max_seconds", "How long an interval of the cluster clock may be used after the leader was last confirmed, in seconds (INTERVAL_MS); 0: there are no intervals."),
		running: r.Gauge("interval_running", "Whether the log of the cluster says that its leader tells readings of the cluster clock: 1 or 0."),
		broken:  r.Gauge("interval_broken", "Whether this node answers no intervals because its steady clock, or the leader's, has a wrong rate: 1 or 0."),
		blamed:  r.Gauge("interval_blamed", "Whether this node leads and most of the others find that its steady clock has a wrong rate: 1 or 0. It hands over the leadership then."),
		waiting: r.Gauge("interval_waiting", "Whether this node leads and answers nothing yet, because intervals of an earlier leader may still be in use: 1 or 0."),
		width:   r.GaugeVec("interval_width_seconds", "Width of the interval of the cluster clock that this node tells, in seconds. Absent while no reading is valid."),
		limit:   r.GaugeVec("interval_limit_seconds", "For how long this node may still use what it knows of the cluster clock, in seconds. Absent while no reading is valid."),
		age:     r.GaugeVec("interval_age_seconds", "Time since this node received its latest reading of the cluster clock, in seconds. Absent while no reading is valid."),
	}
}

func (g *intervalGauges) set(s *IntervalStats) {
	g.max.Set(s.Max.Seconds())
	g.running.Set(oneIf(s.Running))
	g.broken.Set(oneIf(s.Broken))
	g.blamed.Set(oneIf(s.Blamed))
	g.waiting.Set(oneIf(s.Waiting))
	for _, each := range []struct {
		gauge *prometheus.GaugeVec
		value time.Duration
	}{{g.width, s.Width}, {g.limit, s.Limit}, {g.age, s.Age}} {
		if s.Known {
			each.gauge.WithLabelValues().Set(each.value.Seconds())
		} else {
			each.gauge.DeleteLabelValues()
		}
	}
}
