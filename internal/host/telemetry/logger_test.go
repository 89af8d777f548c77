package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"
)

func TestNewLogger_WritesJSONLines(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, LogOptions{})
	log.Debug("unseen")
	log.Info("leader\nelected", "term", 3)
	var line struct {
		Time  time.Time
		Level string
		Msg   string
		Term  int
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if line.Level != "INFO" || line.Msg != "leader\nelected" || line.Term != 3 || time.Since(line.Time) > time.Minute {
		t.Errorf("got %s", out.String())
	}
}

func TestNewLogger_WritesTimeInMilliseconds(t *testing.T) {
	for _, pretty := range []bool{false, true} {
		var out bytes.Buffer
		before := time.Now().UnixMilli()
		NewLogger(&out, LogOptions{TimeMS: true, Pretty: pretty}).Info("m", slog.Group("g", "time", time.UnixMilli(5).UTC()))
		var ms int64
		format := `{"time":%d,`
		if pretty {
			format = "%d INF m "
		}
		if _, err := fmt.Sscanf(out.String(), format, &ms); err != nil || ms < before || ms > time.Now().UnixMilli() {
			t.Errorf("got %s, %v", out.String(), err)
		}
		if !strings.Contains(out.String(), "1970-01-01T00:00:00.005Z") {
			t.Errorf("a time of the caller's is changed: %s", out.String())
		}
	}
}

func TestNewLogger_DebugLetsDebugThrough(t *testing.T) {
	for _, o := range []LogOptions{{Debug: true}, {Debug: true, Pretty: true}} {
		var out bytes.Buffer
		NewLogger(&out, o).Debug("seen")
		if !strings.Contains(out.String(), "seen") {
			t.Errorf("%+v: got %q", o, out.String())
		}
	}
}

func TestPretty_ReadsWell(t *testing.T) {
	for _, tt := range []struct {
		log  func(*slog.Logger)
		want string
	}{
		{func(l *slog.Logger) { l.Info("up", "addr", "localhost:1", "n", 3) }, "INF up addr=localhost:1 n=3"},
		{func(l *slog.Logger) { l.Warn("two words", "err", errors.New("a b")) }, `WRN two words err="a b"`},
		{func(l *slog.Logger) { l.Error("x\ny", "k\n", "\x1b[31m") }, `ERR "x\ny" "k\n"="\x1b[31m"`},
		{func(l *slog.Logger) { l.With("a", 1).WithGroup("g").With("b", 2).Info("m", "c", "") }, `INF m a=1 g.b=2 g.c=""`},
		{func(l *slog.Logger) { l.Info("m", "d", 1500*time.Millisecond) }, "INF m d=1.5s"},
		{func(l *slog.Logger) { l.Info("m", "wall_us", 3000961.934, "ratio", 0.00001, "n", 2e21) }, "INF m wall_us=3000961.934 ratio=0.00001 n=2000000000000000000000"},
		{func(l *slog.Logger) { l.Log(t.Context(), slog.LevelError+2, "m") }, "ERR+2 m"},
		{func(l *slog.Logger) { l.Debug("unseen") }, ""},
	} {
		var out bytes.Buffer
		tt.log(NewLogger(&out, LogOptions{Pretty: true}))
		got := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d\d\d `).ReplaceAllString(out.String(), "")
		if got != tt.want && got != tt.want+"\n" || strings.Count(out.String(), "\n") > 1 {
			t.Errorf("got %q, want %q", out.String(), tt.want)
		}
	}
}

func TestPretty_BelowDebugIsOneLine(t *testing.T) {
	if name, _ := levelText(slog.LevelDebug - 2); name != "DBG-2" {
		t.Errorf("got %s", name)
	}
	if name, _ := levelText(slog.LevelDebug + 1); name != "DBG+1" {
		t.Errorf("got %s", name)
	}
}

// TestPretty_IsASlogHandler runs the standard conformance test over the lines,
// read back.
func TestPretty_IsASlogHandler(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return newPrettyHandler(&out, slog.LevelInfo, false, false)
	}, func(t *testing.T) map[string]any {
		fields := strings.Fields(out.String())
		record := map[string]any{}
		if regexp.MustCompile(`^\d\d:`).MatchString(fields[0]) {
			record[slog.TimeKey] = fields[0]
			fields = fields[1:]
		}
		record[slog.LevelKey] = fields[0]
		for i, field := range fields[1:] {
			path, value, isAttr := strings.Cut(field, "=")
			if !isAttr {
				if i == 0 {
					record[slog.MessageKey] = field
				}
				continue
			}
			group := record
			keys := strings.Split(path, ".")
			for _, key := range keys[:len(keys)-1] {
				inner, ok := group[key].(map[string]any)
				if !ok {
					inner = map[string]any{}
					group[key] = inner
				}
				group = inner
			}
			group[keys[len(keys)-1]] = value
		}
		return record
	})
}

func TestPretty_ColoursOnlyOnDemand(t *testing.T) {
	var out bytes.Buffer
	slog.New(newPrettyHandler(&out, slog.LevelInfo, false, true)).Error("m", "k", 1)
	if !strings.Contains(out.String(), colourRed+"ERR"+colourReset) || !strings.Contains(out.String(), colourFaint+"k="+colourReset+"1") {
		t.Errorf("got %q", out.String())
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if isTerminal(f) || isTerminal(&out) {
		t.Error("neither a file nor a buffer is a terminal")
	}
}

func TestPretty_LinesOfManyWritersDoNotMix(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, LogOptions{Pretty: true})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				log.With("a", 1).Info("m")
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 400 {
		t.Errorf("got %d lines, want 400", len(lines))
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, " INF m a=1") {
			t.Fatalf("got %q", line)
		}
	}
}
