package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/isotone/isotone/internal/front/transaction"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
)

// startTracing sends traces to endpoint, and counts them in r. Without an endpoint it returns
// nil, which traces nothing.
func startTracing(endpoint string, sample int, service, instance string, r *telemetry.Registry, log *slog.Logger) *trace.Exporter {
	if endpoint == "" {
		return nil
	}
	e := trace.Start(trace.Config{Endpoint: endpoint, Sample: sample, Service: service, Version: version, Instance: instance, Log: log})
	telemetry.WatchSpans(r, func() telemetry.Spans {
		c := e.Counts()
		queued, limit := e.Queue()
		return telemetry.Spans{Sent: c.Sent, Dropped: c.Dropped, Failed: c.Failed, Queued: queued, QueueLimit: limit}
	})
	return e
}

// startTracing does so for a proxy. checkTracing has checked the flags.
func (c *proxyCmd) startTracing(r *telemetry.Registry, log *telemetry.Log) *trace.Exporter {
	return startTracing(c.TraceEndpoint, c.TraceSample, "isotone-proxy", "", r, log.Logger)
}

// checkTracing checks the flags about traces, and completes the endpoint.
func (c *proxyCmd) checkTracing(found *flagErrors) {
	if c.TraceSample < 0 || c.TraceSample > config.TraceSampleMax {
		found.add(fmt.Errorf("--trace-sample %d: want 0 to %d", c.TraceSample, config.TraceSampleMax))
	}
	if c.TraceEndpoint == "" {
		return
	}
	endpoint, err := config.ParseTraceEndpoint(c.TraceEndpoint)
	found.note("trace-endpoint", err)
	c.TraceEndpoint = endpoint
}

// traceparent returns the trace context of the span in ctx, for package client, or "".
func traceparent(ctx context.Context) string {
	c := trace.Of(ctx)
	if c == nil {
		return ""
	}
	return transaction.Trace{ID: c.Trace, Span: c.Span, Flags: 1}.String()
}

// routes are the paths that a span may be named after.
var routes = []string{"/timestamp", "/api/snowflake", "/interval", "/state", "/", "/up", "/ready", "/members", "/membership", "/metrics", "/upgrade"}

// route returns path if it is one of routes.
func route(path string) string {
	if slices.Contains(routes, path) {
		return path
	}
	return ""
}
