package proxy

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/front/transaction"
)

// record is one request as the log has it.
type record struct {
	time           time.Time // when it was answered; by report
	id             string
	trace          transaction.Trace
	method, target string
	client         string
	status         int // 0: given up by the client
	backend        int
	section        stats.Section // what it has cost; only Wall, unless requests are measured
	sampled        bool          // it is one of those that are measured
	tries          int           // that have failed
	fault          *fault
	cause          error // of the latest try that has failed; nil if there is none
}

const (
	// linesMax bounds the lines about single requests in a second, unless all are to be
	// logged: who sends nonsense must not fill the disk.
	linesMax = 20
	// targetLogMax and methodLogMax bound what a line says of a target and a method.
	targetLogMax = 256
	methodLogMax = 32
	// causeLogMax bounds what it says of an error, which may quote a backend.
	causeLogMax = 512
)

// clip returns the first bytes of s.
func clip(s string, most int) string { return s[:min(len(s), most)] }

// recorder writes records. It is safe for concurrent use.
type recorder struct {
	log     *slog.Logger
	targets []target
	all     bool // no bound: every request is logged

	mu     sync.Mutex
	second int64
	lines  int // in it, with those that were left out
}

// report writes a line, if one may be written.
func (w *recorder) report(r *record) {
	r.time, r.method, r.target = time.Now(), clip(r.method, methodLogMax), clip(r.target, targetLogMax)
	if !w.all && !r.sampled {
		ok, over := w.admit(r.time.Unix())
		w.confess(over)
		if !ok {
			return
		}
	}
	w.write(r)
}

// stop says how many lines there are not of the latest second.
func (w *recorder) stop() {
	_, over := w.admit(math.MaxInt64)
	w.confess(over)
}

// confess says how many lines there are not.
func (w *recorder) confess(over int) {
	if over > 0 {
		w.log.Warn("requests that failed were not logged: too many in a second", "requests", over)
	}
}

// write writes one line.
func (w *recorder) write(r *record) {
	attrs := make([]slog.Attr, 0, 15)
	attrs = append(attrs, slog.String("request_id", r.id), slog.String("trace_id", r.trace.String()[3:35]),
		slog.String("client", r.client), slog.Int("status", r.status))
	attrs = r.section.AppendAttrs(attrs)
	if r.method != "" {
		attrs = append(attrs, slog.String("method", r.method), slog.String("target", r.target))
	}
	if r.backend != balance.None {
		attrs = append(attrs, slog.String("backend", w.targets[r.backend].name))
	}
	if r.tries > 0 {
		attrs = append(attrs, slog.Int("tries_failed", r.tries))
	}
	if r.cause != nil {
		attrs = append(attrs, slog.String("cause", clip(r.cause.Error(), causeLogMax)))
	}
	level, message := slog.LevelInfo, "request"
	if r.fault != nil {
		attrs = append(attrs, slog.String("code", string(r.fault.code())), slog.String("err", r.fault.message))
		if message = "request failed"; r.fault.status >= 500 {
			level = slog.LevelWarn
		}
	}
	if ctx, handler := context.Background(), w.log.Handler(); handler.Enabled(ctx, level) {
		line := slog.NewRecord(r.time, level, message, 0)
		line.AddAttrs(attrs...)
		_ = handler.Handle(ctx, line) // as slog itself has it: a log that fails is not told to anybody
	}
}

// admit reports whether one more line may be written in this second, and how many were
// left out in an earlier one, once.
func (w *recorder) admit(second int64) (ok bool, over int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if second != w.second {
		over = max(0, w.lines-linesMax)
		w.second, w.lines = second, 0
	}
	w.lines++
	return w.lines <= linesMax, over
}
