package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/transaction"
)

// record is one request as the log has it.
type record struct {
	id             string
	trace          transaction.Trace
	method, target string
	client         string
	status         int // 0: given up by the client
	backend        int
	wall           time.Duration
	tries          int // that have failed
	fault          *fault
	cause          error // of the latest try that has failed; nil if there is none
}

const (
	// linesMax bounds the lines about single requests in a second, unless all are to be
	// logged: who sends nonsense must not fill the disk.
	linesMax = 20
	// targetLogMax bounds what a line says of a target.
	targetLogMax = 256
)

// recorder writes records. It is safe for concurrent use.
type recorder struct {
	log     *slog.Logger
	targets []target
	all     bool // no bound: every request is logged

	mu     sync.Mutex
	second int64
	lines  int // in it, with those that were left out
}

// write writes one line.
func (w *recorder) write(r *record) {
	if !w.all {
		ok, dropped := w.admit(time.Now().Unix())
		if dropped > 0 {
			w.log.Warn("requests that failed were not logged: too many in a second", "requests", dropped)
		}
		if !ok {
			return
		}
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("request_id", r.id), slog.String("trace_id", r.trace.String()[3:35]),
		slog.String("client", r.client), slog.Int("status", r.status), slog.Int64("wall_us", r.wall.Microseconds()))
	if r.method != "" {
		attrs = append(attrs, slog.String("method", r.method), slog.String("target", r.target[:min(len(r.target), targetLogMax)]))
	}
	if r.backend != balance.None {
		attrs = append(attrs, slog.String("backend", w.targets[r.backend].name))
	}
	if r.tries > 0 {
		attrs = append(attrs, slog.Int("tries_failed", r.tries))
	}
	if r.cause != nil {
		attrs = append(attrs, slog.String("cause", r.cause.Error()))
	}
	level, message := slog.LevelInfo, "request"
	if r.fault != nil {
		attrs = append(attrs, slog.String("code", string(r.fault.code())), slog.String("err", r.fault.message))
		if message = "request failed"; r.fault.status >= 500 {
			level = slog.LevelWarn
		}
	}
	w.log.LogAttrs(context.Background(), level, message, attrs...)
}

// admit reports whether one more line may be written in this second, and how many were
// left out in an earlier one, once.
func (w *recorder) admit(second int64) (ok bool, dropped int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if second != w.second {
		dropped = max(0, w.lines-linesMax)
		w.second, w.lines = second, 0
	}
	w.lines++
	return w.lines <= linesMax, dropped
}
