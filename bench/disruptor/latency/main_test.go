package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func TestPaths_DeliverEveryMessageInOrder(t *testing.T) {
	for _, p := range paths {
		t.Run(p.name, func(t *testing.T) {
			next := 0
			send, end, err := p.open(func(seq int) {
				if seq != next {
					t.Errorf("message %d, want %d", seq, next)
				}
				next++
			})
			if err != nil {
				t.Fatal(err)
			}
			for seq := range 3 * capacity {
				send(seq)
			}
			if end(); next != 3*capacity {
				t.Fatalf("%d messages of %d", next, 3*capacity)
			}
		})
	}
}

// TestCourse_CountsFromWhenAMessageWasDue has a sender that is an hour late.
func TestCourse_CountsFromWhenAMessageWasDue(t *testing.T) {
	const n, warm = 100, 10
	c := &course{start: time.Now().Add(-time.Hour), gap: float64(time.Second), warm: warm, latencies: make([]time.Duration, n-warm)}
	if err := c.send(t.Context(), n, c.receive); err != nil {
		t.Fatal(err)
	}
	for i, l := range c.latencies {
		due := c.due(i + warm)
		if least, most := time.Hour-due, c.last-due; l < least || l > most {
			t.Fatalf("message %d: %v, want %v to %v", i+warm, l, least, most)
		}
	}
}

func TestCourse_SendsNothingBeforeItIsDue(t *testing.T) {
	const n = 100
	c := &course{start: time.Now(), gap: 1e5, latencies: make([]time.Duration, n)}
	if err := c.send(t.Context(), n, c.receive); err != nil {
		t.Fatal(err)
	}
	for i, l := range c.latencies {
		if l < 0 {
			t.Fatalf("message %d was sent %v early", i, -l)
		}
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range pathNames() {
		err := run(ctx, []string{"--rate", "1", "--time", "1h", "--pin", "no", "--paths", p}, io.Discard, io.Discard)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestRun_PrintsEveryCase(t *testing.T) {
	args := []string{"--rate", "100000", "--time", "10ms", "--procs", "1,2"}
	pins := 2
	if _, err := cpus(); err != nil {
		pins = 1
	}
	cases := 2 * pins * len(paths)
	var out bytes.Buffer
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), "\n| "); rows != 1+cases {
		t.Errorf("%d rows, want a head and %d:\n%s", rows, cases, &out)
	}
	out.Reset()
	if err := run(t.Context(), append(args, "--json"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Cases) != cases {
		t.Fatalf("%v, %d cases, want %d:\n%s", err, len(r.Cases), cases, &out)
	}
	seen := make(map[result]bool)
	for _, c := range r.Cases {
		if c.P50 <= 0 || c.P99 < c.P50 || c.P999 < c.P99 || c.Max < c.P999 || c.PerSecond <= 0 {
			t.Errorf("%+v", c)
		}
		seen[result{Path: c.Path, Procs: c.Procs, Pinned: c.Pinned}] = true
	}
	if len(seen) != cases {
		t.Errorf("%d different cases, want %d", len(seen), cases)
	}
}

func TestParse_RefusesWhatCannotBeUsed(t *testing.T) {
	for _, args := range []string{
		"--rate 0", "--rate -1", "--rate 10000001", "--rate x", "--time 0s", "--time 100h", "--time 1ns", "--procs 0", "--procs 1,", "--procs x",
		"--pin maybe", "--paths pipe", "--paths ring,", "more", "--unknown",
	} {
		var usage usageError
		if _, err := parse(strings.Fields(args), io.Discard); !errors.As(err, &usage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	_, err := parse([]string{"--rate", "0", "--procs", "0"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--rate") || !strings.Contains(err.Error(), "--procs") {
		t.Errorf("not all faults: %v", err)
	}
	if _, err := parse([]string{"--help"}, io.Discard); err != flag.ErrHelp {
		t.Errorf("--help: %v", err)
	}
}

func TestResult_HasThePercentiles(t *testing.T) {
	var latencies []time.Duration
	for i := range 1000 {
		latencies = append(latencies, time.Duration(1000-i)*time.Microsecond)
	}
	want := result{PerSecond: 500, P50: 501, P99: 991, P999: 1000, Max: 1000}
	if got := newResult(latencies, 2*time.Second); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want = result{PerSecond: 1, P50: 1, P99: 1, P999: 1, Max: 1}
	if got := newResult([]time.Duration{time.Microsecond}, time.Second); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
