package telemetry

import (
	"io"
	"log/slog"
	"os"
)

// LogOptions says how log lines look. The zero value is JSON from level info up
// with the time in RFC 3339.
type LogOptions struct {
	// Debug lets level debug through.
	Debug bool
	// Pretty writes lines for people: 15:04:05.000 INF message key=value.
	Pretty bool
	// TimeMS writes the time as a number, milliseconds since 1970-01-01 UTC.
	TimeMS bool
}

// Log is a logger that never blocks: a goroutine writes the lines. If the reader is too slow
// or hangs, lines are dropped and counted, and a later line gives their number. Make it with
// [StartLog]. All methods are safe for concurrent use.
type Log struct {
	*slog.Logger
	lines *lines
}

// StartLog returns a log with the line format of [NewLogger]. [Log.Close] ends it.
func StartLog(w io.Writer, o LogOptions) *Log {
	direct := NewLogger(w, o) // of the goroutine that writes
	l := startLines(w, func(dropped int) {
		direct.Warn("lines of this log were dropped: what it is written to is too slow", "lines", dropped)
	})
	return &Log{newLogger(l, isTerminal(w), o), l}
}

// Watch adds the queue of lines, and the number of those that were dropped, to the metrics of r.
func (l *Log) Watch(r *Registry) {
	r.CounterFunc("log_lines_dropped_total", "Lines that the log has dropped, because what it is written to was too slow.",
		func() float64 { return float64(l.lines.lost()) })
	r.GaugeFunc("log_queue_bytes", "Bytes of lines that wait to be written to the log.",
		func() float64 { return float64(l.lines.queued()) })
	r.Gauge("log_queue_limit_bytes", "Bytes of lines that may wait to be written to the log; further lines are dropped.").Set(linesBytesMax)
}

// Close writes the queued lines and refuses further ones. It returns after five seconds at
// the latest, and reports whether all was written. It may be called again.
func (l *Log) Close() (written bool) { return l.lines.close() }

// NewLogger returns a logger that writes one line per record to w, each with a
// single Write. It is safe for concurrent use if nothing else writes to w. Pretty
// lines are coloured only when w is a terminal and NO_COLOR is not set.
func NewLogger(w io.Writer, o LogOptions) *slog.Logger { return newLogger(w, isTerminal(w), o) }

func newLogger(w io.Writer, terminal bool, o LogOptions) *slog.Logger {
	level := slog.LevelInfo
	if o.Debug {
		level = slog.LevelDebug
	}
	if o.Pretty {
		return slog.New(newPrettyHandler(w, level, o.TimeMS, terminal && os.Getenv("NO_COLOR") == ""))
	}
	options := &slog.HandlerOptions{Level: level}
	if o.TimeMS {
		options.ReplaceAttr = timeAsMilliseconds
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func timeAsMilliseconds(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.Int64Value(a.Value.Time().UnixMilli())
	}
	return a
}

// isTerminal reports whether w is a character device. So is /dev/null, harmlessly.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
