package telemetry

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// ANSI colours of the pretty handler.
const (
	colourReset  = "\x1b[0m"
	colourFaint  = "\x1b[2m"
	colourRed    = "\x1b[31m"
	colourGreen  = "\x1b[32m"
	colourYellow = "\x1b[33m"
)

// prettyHandler is an [slog.Handler] for people: time, level, message, then
// key=value with groups as dotted prefixes. What is not plain text is quoted, so
// that a record is always one line.
type prettyHandler struct {
	mu     *sync.Mutex // one line at a time, over all handlers of one writer
	w      io.Writer
	level  slog.Level
	timeMS bool
	colour bool

	prefix string // open groups, each with a dot
	attrs  []byte // what WithAttrs gave, already written out
}

func newPrettyHandler(w io.Writer, level slog.Level, timeMS, colour bool) *prettyHandler {
	return &prettyHandler{mu: new(sync.Mutex), w: w, level: level, timeMS: timeMS, colour: colour}
}

// Enabled implements [slog.Handler].
func (h *prettyHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level
}

// WithGroup implements [slog.Handler].
func (h *prettyHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	clone := *h
	clone.prefix += name + "."
	return &clone
}

// WithAttrs implements [slog.Handler].
func (h *prettyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clone := *h
	clone.attrs = slices.Clip(h.attrs)
	for _, a := range attrs {
		clone.attrs = h.appendAttr(clone.attrs, h.prefix, a)
	}
	return &clone
}

// Handle implements [slog.Handler].
func (h *prettyHandler) Handle(_ context.Context, r slog.Record) error {
	line := make([]byte, 0, 256)
	if !r.Time.IsZero() {
		line = h.appendColoured(line, colourFaint, h.timeText(r.Time))
		line = append(line, ' ')
	}
	name, colour := levelText(r.Level)
	line = h.appendColoured(line, colour, name)
	line = append(line, ' ')
	if strings.ContainsFunc(r.Message, unprintable) {
		line = strconv.AppendQuote(line, r.Message)
	} else {
		line = append(line, r.Message...)
	}
	line = append(line, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		line = h.appendAttr(line, h.prefix, a)
		return true
	})
	line = append(line, '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.w.Write(line)
	return err
}

func (h *prettyHandler) timeText(t time.Time) string {
	if h.timeMS {
		return strconv.FormatInt(t.UnixMilli(), 10)
	}
	return t.Format("15:04:05.000")
}

func (h *prettyHandler) appendColoured(b []byte, colour, text string) []byte {
	if !h.colour || colour == "" {
		return append(b, text...)
	}
	b = append(b, colour...)
	b = append(b, text...)
	return append(b, colourReset...)
}

// appendAttr appends " prefix.key=value", once for each member of a group.
func (h *prettyHandler) appendAttr(b []byte, prefix string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			b = h.appendAttr(b, prefix, member)
		}
		return b
	}
	if a.Equal(slog.Attr{}) {
		return b
	}
	b = append(b, ' ')
	b = h.appendColoured(b, colourFaint, quoted(prefix+a.Key)+"=")
	switch value.Kind() {
	case slog.KindTime:
		return value.Time().AppendFormat(b, time.RFC3339Nano)
	case slog.KindFloat64: // without an exponent
		return strconv.AppendFloat(b, value.Float64(), 'f', -1, 64)
	}
	return append(b, quoted(value.String())...)
}

// levelText returns three letters, and the distance to the named level if any,
// as in WRN+1.
func levelText(level slog.Level) (name, colour string) {
	base := slog.LevelDebug
	switch {
	case level >= slog.LevelError:
		name, colour, base = "ERR", colourRed, slog.LevelError
	case level >= slog.LevelWarn:
		name, colour, base = "WRN", colourYellow, slog.LevelWarn
	case level >= slog.LevelInfo:
		name, colour, base = "INF", colourGreen, slog.LevelInfo
	default:
		name = "DBG"
	}
	if level > base {
		name += "+"
	}
	if level != base {
		name += strconv.Itoa(int(level - base))
	}
	return name, colour
}

// quoted returns s as it is if it is one word, else in Go's quotes.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return r == ' ' || r == '"' || r == '=' || unprintable(r)
	}) {
		return strconv.Quote(s)
	}
	return s
}

// unprintable finds what could break a line or drive a terminal.
func unprintable(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }
