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

// NewLogger returns a logger that writes one line per record to w, each with a
// single Write. It is safe for concurrent use if nothing else writes to w. Pretty
// lines are coloured only when w is a terminal and NO_COLOR is not set.
func NewLogger(w io.Writer, o LogOptions) *slog.Logger {
	level := slog.LevelInfo
	if o.Debug {
		level = slog.LevelDebug
	}
	if o.Pretty {
		return slog.New(newPrettyHandler(w, level, o.TimeMS, isTerminal(w) && os.Getenv("NO_COLOR") == ""))
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

// isTerminal reports whether w is a character device. /dev/null is one too, and
// does not mind colours.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
