package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// QueueStats is a queue of a node, its length, and its bound; 0: there is no fixed one.
type QueueStats struct {
	// Name is one of a fixed set.
	Name        string
	Length, Max int
}

type queueGauges struct{ items, limit *prometheus.GaugeVec }

func newQueueGauges(r *Registry) queueGauges {
	return queueGauges{
		items: r.GaugeVec("queue_items", "Length of a queue of the core. rounds, the confirmation rounds in flight, is often full; the others are not.", "queue"),
		limit: r.GaugeVec("queue_items_limit", "Bound on the length of a queue of the core.", "queue"),
	}
}

func (g *queueGauges) set(queues []QueueStats) {
	for _, q := range queues {
		name := strings.ReplaceAll(q.Name, " ", "_")
		g.items.WithLabelValues(name).Set(float64(q.Length))
		if q.Max > 0 {
			g.limit.WithLabelValues(name).Set(float64(q.Max))
		}
	}
}
