package server

import (
	"context"
	"log/slog"
	"slices"

	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
)

// startTracing sends traces to endpoint, and counts them in r. Without an endpoint it returns
// nil, which traces nothing.
func startTracing(endpoint string, sample int, service, version, instance string, r *telemetry.Registry, log *slog.Logger) *trace.Exporter {
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

// traceparent returns the trace context of the span in ctx, for package client, or "".
func traceparent(ctx context.Context) string {
	c := trace.Of(ctx)
	if c == nil {
		return ""
	}
	return requestid.Trace{ID: c.Trace, Span: c.Span, Flags: 1}.String()
}

// routes are the paths that a span may be named after.
var routes = []string{"/timestamp", "/oracle", "/api/snowflake", "/interval", "/state", "/", "/up", "/ready", "/members", "/membership", "/metrics", "/upgrade",
	grpc.PathTimestampsGet, grpc.PathIDsGet, grpc.PathIntervalGet, grpc.PathIntervalStamp, grpc.PathIntervalWait, grpc.PathLocksGet, grpc.PathFrontiersGet}

// route returns path if it is one of routes.
func route(path string) string {
	if slices.Contains(routes, path) {
		return path
	}
	return ""
}
