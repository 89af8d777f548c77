package proxy

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/stats"
	"github.com/isotone/isotone/internal/transaction"
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
	// queueMax bounds the records that wait for the log, at some 600 bytes each.
	queueMax = 4096
)

// clip returns the first bytes of s, in memory of their own: s may be a part of something
// larger.
func clip(s string, most int) string { return strings.Clone(s[:min(len(s), most)]) }

// recorder writes records, beside the requests that they are of: a log that hangs delays
// no answer. It is safe for concurrent use.
type recorder struct {
	log     *slog.Logger
	targets []target
	all     bool                 // no bound: every request is logged
	dropped func()               // Config.Dropped
	queue   *stats.Aside[record] // from start on

	mu     sync.Mutex
	second int64
	lines  int // in it, with those that were left out
	over   int // left out since the latest line, in earlier seconds
	lost   int // left out since then because the log was too slow
}

// start begins to write; stop ends it.
func (w *recorder) start() {
	w.queue = stats.NewAside(queueMax, func(r record) {
		w.confess()
		w.write(&r)
	})
}

// report has a record written, if there is room.
func (w *recorder) report(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.time, r.method, r.target = time.Now(), clip(r.method, methodLogMax), clip(r.target, targetLogMax)
	if !w.all && !r.sampled {
		ok, dropped := w.admit(r.time.Unix())
		w.over += dropped
		if !ok {
			return
		}
	}
	if !w.queue.Put(*r) {
		if w.lost++; r.sampled && w.dropped != nil {
			w.dropped()
		}
	}
}

// stop has what waits written, and nothing more. A log that hangs holds it for as long as
// [stats.Aside.Close] allows.
func (w *recorder) stop() {
	if !w.queue.Close() {
		return
	}
	w.mu.Lock()
	w.over += max(0, w.lines-linesMax) // of the latest second
	w.lines = 0
	w.mu.Unlock()
	w.confess()
}

// confess says how many lines there are not.
func (w *recorder) confess() {
	w.mu.Lock()
	over, lost := w.over, w.lost
	w.over, w.lost = 0, 0
	w.mu.Unlock()
	if over > 0 {
		w.log.Warn("requests that failed were not logged: too many in a second", "requests", over)
	}
	if lost > 0 {
		w.log.Warn("requests were not logged: the log is too slow", "requests", lost)
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
// left out in an earlier one, once. By mu.
func (w *recorder) admit(second int64) (ok bool, dropped int) {
	if second != w.second {
		dropped = max(0, w.lines-linesMax)
		w.second, w.lines = second, 0
	}
	w.lines++
	return w.lines <= linesMax, dropped
}
