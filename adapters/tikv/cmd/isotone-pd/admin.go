package main

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isotone/isotone/adapters/tikv/gateway"
	"github.com/isotone/isotone/client"
)

// adminConnectionsMax bounds the connections of operators: a scraper, probes, and a few people.
const adminConnectionsMax = 64

// admin returns the server of operators: metrics, whether the process runs, and whether the cluster
// answers it.
func admin(g *gateway.Server, c *counts, log *slog.Logger) *http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(g, c.retried, c.rejected, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := g.Ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return &http.Server{
		Handler: mux, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: httpHeadTimeout, ReadTimeout: httpHeadTimeout, WriteTimeout: httpHeadTimeout,
		IdleTimeout: httpIdleTimeout, MaxHeaderBytes: httpHeadMax,
	}
}

// counts is what the client of the cluster does beside the requests of the gateway.
type counts struct{ retried, rejected prometheus.Counter }

func newCounts() *counts {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "isotone_pd_" + name, Help: help})
	}
	return &counts{
		retried:  counter("cluster_retries_total", "Requests that were sent to the cluster again, as after an election."),
		rejected: counter("cluster_answers_rejected_total", "Answers of nodes that were not used, as those of another cluster."),
	}
}

func (c *counts) hooks(log *slog.Logger) client.Hooks {
	return client.Hooks{
		Leader: func(addr string) { log.Info("the cluster has a leader", "node", addr) },
		Retried: func(addr string, err error) {
			c.retried.Inc()
			log.Debug("a request is sent again", "node", addr, "err", err)
		},
		Rejected: func(addr string, err error) {
			c.rejected.Inc()
			log.Error("an answer of a node was not used", "node", addr, "err", err)
		},
	}
}
