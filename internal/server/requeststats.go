package server

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
)

// requestStats measures each HTTP request. Nil measures none.
type requestStats struct{ recorder *stats.Recorder }

// newRequestStats measures one in sample requests.
func newRequestStats(sample int, seen *telemetry.RequestStats, log *slog.Logger) *requestStats {
	return &requestStats{stats.New(stats.Config{
		Log: log, Sample: sample,
		Observe: func(r *stats.Record) { observeSection(seen, r.Section) },
	})}
}

func observeSection(seen *telemetry.RequestStats, s stats.Section) {
	seen.Observe(s.Wall, s.User, s.System, s.Stall(), s.Measured)
}

// wrap is web.Config.Wrap, with tracing unless e is nil.
func (s *requestStats) wrap(e *trace.Exporter) func(http.Handler) http.Handler {
	if s == nil && e == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return stats.Handler(next, stats.Options{Recorder: s.fastPath(), Trace: e, Route: route, Skip: isStream})
	}
}

// isStream reports whether r is for a stream, which lasts as long as its client likes.
func isStream(r *http.Request) bool {
	return grpc.IsStream(r.URL.Path) || strings.HasPrefix(r.URL.Path, "/live/") && strings.HasSuffix(r.URL.Path, "/stream") || web.IsEventStream(r)
}

// fastPath is http1.Config.Stats.
func (s *requestStats) fastPath() *stats.Recorder {
	if s == nil {
		return nil
	}
	return s.recorder
}
