package proxy

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// record describes one request for the log and the metrics.
type record struct {
	time           time.Time // of the log line; set by report
	id             string
	trace          requestid.Trace
	method, target string
	client         string
	status         int // 0: given up by the client
	backend        int
	section        stats.Section // its cost; only Wall, unless it is sampled
	sampled        bool          // it is measured
	tries          int           // that failed
	err            *httpError
	cause          error // of the latest try that failed, or nil
}

const (
	// linesMax bounds the lines about failed requests in a second, unless all requests are
	// logged, so that invalid requests cannot fill the disk.
	linesMax = 20
	// targetLogMax and methodLogMax bound the target and the method in a line, in bytes.
	targetLogMax = 256
	methodLogMax = 32
	// causeLogMax bounds an error's text, which may quote a backend.
	causeLogMax = 512
)

// clip returns at most the first most bytes of s.
func clip(s string, most int) string { return s[:min(len(s), most)] }

// requestLog writes log lines about requests. It is safe for concurrent use.
type requestLog struct {
	log     *slog.Logger
	targets []target
	all     bool // no bound: every request is logged
	lineLimit
}

// lineLimit bounds log lines to linesMax a second. It is safe for concurrent use.
type lineLimit struct {
	mu     sync.Mutex
	second int64
	lines  int // in this second, including dropped ones
}

// report writes a line about r, unless there are too many in this second.
func (l *requestLog) report(r *record) {
	r.time, r.method, r.target = time.Now(), clip(r.method, methodLogMax), clip(r.target, targetLogMax)
	if !l.all && !r.sampled {
		ok, over := l.admit(r.time.Unix())
		l.reportDropped(over)
		if !ok {
			return
		}
	}
	l.write(r)
}

// stop reports the lines dropped in the latest second.
func (l *requestLog) stop() {
	_, over := l.admit(math.MaxInt64)
	l.reportDropped(over)
}

// reportDropped logs that n lines were dropped, if any.
func (l *requestLog) reportDropped(n int) {
	if n > 0 {
		l.log.Warn("requests that failed were not logged: too many in a second", "requests", n)
	}
}

// write writes one line.
func (l *requestLog) write(r *record) {
	attrs := make([]slog.Attr, 0, 15)
	attrs = append(attrs, slog.String("request_id", r.id), slog.String("trace_id", r.trace.String()[3:35]),
		slog.String("client", r.client), slog.Int("status", r.status))
	attrs = r.section.AppendAttrs(attrs)
	if r.method != "" {
		attrs = append(attrs, slog.String("method", r.method), slog.String("target", r.target))
	}
	if r.backend != balance.None {
		attrs = append(attrs, slog.String("backend", l.targets[r.backend].name))
	}
	if r.tries > 0 {
		attrs = append(attrs, slog.Int("tries_failed", r.tries))
	}
	if r.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(r.cause.Error(), causeLogMax)))
	}
	level, message := slog.LevelInfo, "request"
	if r.err != nil {
		attrs = append(attrs, slog.String("code", string(r.err.code())), slog.String("err", r.err.message))
		if message = "request failed"; r.err.status >= 500 {
			level = slog.LevelWarn
		}
	}
	if ctx, handler := context.Background(), l.log.Handler(); handler.Enabled(ctx, level) {
		line := slog.NewRecord(r.time, level, message, 0)
		line.AddAttrs(attrs...)
		_ = handler.Handle(ctx, line) // like slog itself: a failing log is ignored
	}
}

// admit reports whether one more line may be written in this second, and once how many were
// dropped in an earlier one.
func (l *lineLimit) admit(second int64) (ok bool, over int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second != l.second {
		over = max(0, l.lines-linesMax)
		l.second, l.lines = second, 0
	}
	l.lines++
	return l.lines <= linesMax, over
}
