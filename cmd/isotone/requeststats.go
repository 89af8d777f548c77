package main

import (
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// requestStats measures HTTP requests, one by one. Nil measures none.
type requestStats struct{ recorder *stats.Recorder }

// newRequestStats measures one of sample requests.
func newRequestStats(sample int, seen *telemetry.RequestStats, log *slog.Logger) *requestStats {
	return &requestStats{stats.New(stats.Config{
		Log: log, Sample: sample,
		Observe: func(r *stats.Record) { observeSection(seen, r.Section) },
	})}
}

func observeSection(seen *telemetry.RequestStats, s stats.Section) {
	seen.Observe(s.Wall, s.User, s.System, s.Stall(), s.Measured)
}

// wrap is web.Config.Wrap.
func (s *requestStats) wrap() func(http.Handler) http.Handler {
	if s == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return stats.Handler(next, stats.Options{Recorder: s.recorder, Skip: isStream})
	}
}

// isStream finds what lasts as long as its client likes.
func isStream(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/live/") && strings.HasSuffix(r.URL.Path, "/stream")
}

// open returns what opens a connection that speaks HTTP/1.1: the lane, or, if requests are
// measured, what gives it to the standard servers at once. In the lane a request has no
// stretch of a thread's time that is its own: what it costs is a part of a turn.
func (s *requestStats) open(lane func(*loop.Conn) loop.Handler, take func(net.Conn)) func(*loop.Conn) loop.Handler {
	if s == nil {
		return lane
	}
	return func(*loop.Conn) loop.Handler { return aside{take} }
}

// aside is the handler of a connection that has no place in the loop.
type aside struct{ take func(net.Conn) }

// Data gives the connection away with what was read.
func (a aside) Data(c *loop.Conn, b []byte) (int, error) {
	if nc, err := c.Detach(b); err == nil {
		a.take(nc)
	}
	return len(b), nil // after an error the loop has closed it
}

// Closed has nothing to do.
func (aside) Closed(*loop.Conn, error) {}
