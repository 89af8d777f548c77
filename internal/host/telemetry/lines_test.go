package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// gate is a writer that keeps what was written to it, and lets writes through one by one
// once there is a let.
type gate struct {
	let    chan struct{} // nil: all may pass
	mu     sync.Mutex
	pieces []string
	err    error
}

func (g *gate) Write(b []byte) (int, error) {
	if g.let != nil {
		<-g.let
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	g.pieces = append(g.pieces, string(b))
	return len(b), nil
}

func (g *gate) all() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.pieces, "")
}

// TestLog_WritesAllInOrderAndInWholeLines, whoever else writes to the same pipe.
func TestLog_WritesAllInOrderAndInWholeLines(t *testing.T) {
	to := &gate{}
	log := StartLog(to, LogOptions{})
	const writers, each = 8, 300
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				log.Info("m", "writer", w, "n", n, "pad", strings.Repeat("x", n))
			}
		})
	}
	wg.Wait()
	log.Info("long", "pad", strings.Repeat("x", 3*pieceMax))
	log.Info("last")
	for range 2 {
		if !log.Close() {
			t.Error("not all is written")
		}
	}
	log.Info("too late")
	for _, p := range to.pieces {
		if !strings.HasSuffix(p, "\n") || len(p) > pieceMax && strings.Count(p, "\n") != 1 {
			t.Fatalf("a piece of %d bytes: %.200q", len(p), p)
		}
	}
	lines := strings.Split(strings.TrimSuffix(to.all(), "\n"), "\n")
	if len(lines) != writers*each+2 || !strings.Contains(lines[len(lines)-1], "last") {
		t.Errorf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	next := map[int]int{}
	for _, line := range lines[:len(lines)-2] {
		var w, n int
		_, text, _ := strings.Cut(line, `"writer":`)
		if _, err := fmt.Sscanf(text, `%d,"n":%d,`, &w, &n); err != nil || n != next[w] {
			t.Fatalf("%v: %s; want %d of its writer", err, line, next[w])
		}
		next[w]++
	}
}

// TestLog_NeverWaits for what it is written to, and reports the dropped lines in the end.
func TestLog_NeverWaits(t *testing.T) {
	to := &gate{let: make(chan struct{})}
	log := StartLog(to, LogOptions{})
	r := NewRegistry()
	log.Watch(r)
	const lines = 30_000
	for n := range lines {
		log.Info("m", "n", n) // hangs if the log does
	}
	log.lines.mu.Lock()
	waiting, dropped := cap(log.lines.waiting), log.lines.dropped
	log.lines.mu.Unlock()
	if waiting > 2*linesBytesMax || dropped == 0 {
		t.Errorf("%d bytes wait, %d lines are dropped", waiting, dropped)
	}
	series := fmt.Sprintf("# HELP isotone_log_lines_dropped_total Lines that the log has dropped, because what it is written to was too slow.\n"+
		"# TYPE isotone_log_lines_dropped_total counter\nisotone_log_lines_dropped_total %d\n", dropped)
	if err := testutil.GatherAndCompare(r, strings.NewReader(series), "isotone_log_lines_dropped_total"); err != nil {
		t.Error(err)
	}
	close(to.let)
	if !log.Close() {
		t.Error("not all is written")
	}
	written, reported := to.all(), fmt.Sprintf(`too slow","lines":%d}`, dropped)
	if n := strings.Count(written, `"msg":"m"`); n+dropped != lines || strings.Count(written, reported) != 1 {
		t.Errorf("%d written, %d dropped of %d, and reported %d times", n, dropped, lines, strings.Count(written, reported))
	}
}

func TestLog_CloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &gate{let: make(chan struct{})}
		log := StartLog(to, LogOptions{})
		log.Info("m")
		begin := time.Now()
		if log.Close() {
			t.Error("what hangs is said to be written")
		}
		if waited := time.Since(begin); waited != linesCloseTime {
			t.Errorf("it waited for %v", waited)
		}
		close(to.let)
	})
}

// TestLog_WritesThatFailLoseTheirLinesOnly.
func TestLog_WritesThatFailLoseTheirLinesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &gate{err: errors.New("disk full")}
		log := StartLog(to, LogOptions{})
		for range 3 {
			log.Info("lost")
			synctest.Wait()
		}
		to.mu.Lock()
		to.err = nil
		to.mu.Unlock()
		log.Info("kept")
		log.Close()
		if got := to.all(); strings.Contains(got, "lost") || !strings.Contains(got, "kept") || !strings.Contains(got, `"lines":3}`) {
			t.Error(got)
		}
	})
}

// BenchmarkLog is what a line costs the one who has it written.
func BenchmarkLog(b *testing.B) {
	log := StartLog(new(bytes.Buffer), LogOptions{})
	b.ReportAllocs()
	for b.Loop() {
		log.Info("request", "request_id", "0123456789abcdef", "status", 200, "wall", time.Millisecond)
	}
	log.Close()
}
