//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/clockbench"
)

// TestBenchInterval_OfARealCluster: processes that measure and check the clock of three nodes, by each
// protocol, and after an interruption.
func TestBenchInterval_OfARealCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	binary, err := chaos.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := chaos.StartCluster(t, chaos.Options{Binary: binary, Env: map[string]string{"INTERVAL_MS": "100"}})
	c.Settle()
	var measure func(interrupt time.Duration, args string) clockbench.Result
	measure = func(interrupt time.Duration, args string) clockbench.Result {
		t.Helper()
		violations := filepath.Join(t.TempDir(), "violations")
		cmd := reexec(t, nil, append(strings.Fields("bench --interval -c 4 -P 2 --json - -t "+strings.Join(c.Addrs(), ",")+" "+args), "--violations", violations)...)
		var stdout bytes.Buffer
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &text
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if interrupt > 0 {
			timer := time.AfterFunc(interrupt, func() { _ = cmd.Process.Signal(syscall.SIGINT) })
			defer timer.Stop()
		}
		err := cmd.Wait()
		out := stdout.Bytes()
		if strings.Contains(text.String(), "interrupted before there was an answer") {
			return measure(2*interrupt, args)
		}
		var r clockbench.Result
		if wrong := json.Unmarshal(out, &r); wrong != nil || err != nil || !r.Verdict.OK {
			found, _ := os.ReadFile(violations)
			t.Fatalf("%s: %v, %v\n%s%s%.2000s", args, err, wrong, text.String(), out, found)
		}
		return r
	}
	for _, protocol := range []string{"http1", "resp"} {
		var r clockbench.Result
		for took := time.Second; took < time.Minute && !isComplete(&r); took *= 2 { // a busy machine does not get to everything in a second
			r = measure(0, fmt.Sprintf("--processes 3 -d %v -p %s", took, protocol))
		}
		o, v := &r.Result, &r.Verdict
		if v.Operations == 0 || v.Reads == 0 || v.Generators == 0 || o.Width.P50 <= 0 || o.Commit.P50 <= 0 || o.Oracle.P50 <= 0 || o.Left.Max > 100_000 {
			t.Errorf("%s: %+v\n%+v", protocol, o, v)
		}
		for _, perSecond := range []float64{o.PerSecond.One, o.PerSecond.OneInBatches, o.PerSecond.All, o.PerSecond.AllInBatches, o.Readings.AnswersPerS} {
			if perSecond <= 0 {
				t.Errorf("%s: %+v, %+v", protocol, o.PerSecond, o.Readings)
			}
		}
		if o.Interrupted || o.Errors["clock"] > 0 || o.Readings.Errors["malformed"] > 0 {
			t.Errorf("%s: errors %v, %v", protocol, o.Errors, o.Readings.Errors)
		}
	}
	// An interruption that comes before the clock is read at all is tried again, later.
	for wait := time.Second; ; wait *= 2 {
		r := measure(wait, "-d 10m")
		if !r.Result.Interrupted || r.Result.Elapsed > 60 || r.Verdict.Reads == 0 && wait > 10*time.Second {
			t.Errorf("after an interruption: %+v", r.Result)
		}
		if r.Verdict.Reads > 0 || t.Failed() {
			break
		}
	}
}

// isComplete reports whether each part of a benchmark had an answer.
func isComplete(r *clockbench.Result) bool {
	o, v := &r.Result, &r.Verdict
	return min(o.PerSecond.One, o.PerSecond.OneInBatches, o.PerSecond.All, o.PerSecond.AllInBatches, o.Readings.AnswersPerS) > 0 &&
		min(o.Width.P50, o.Commit.P50, o.Oracle.P50) > 0 && v.Operations > 0 && v.Reads > 0 && v.Generators > 0
}

func TestBenchInterval_SaysThatThereIsNoClusterClock(t *testing.T) {
	addr := startInterval(t, 0, false)
	code, out, err := command("bench", "--interval", "-t", addr, "-d", "1s")
	if code != exitUsage || out != "" || strings.Count(err, "\n") != 1 ||
		!strings.Contains(err, addr) || !strings.Contains(err, "INTERVAL_MS is 0") || !strings.Contains(err, "start every node") {
		t.Errorf("exit code %d\n%s%s", code, out, err)
	}
}

// TestBenchInterval_ProcessesGetTheFlagsForNodes, and no secret in their command lines.
func TestBenchInterval_ProcessesGetTheFlagsForNodes(t *testing.T) {
	t.Setenv(passwordVariable, "xyzzy")
	c := benchCmd{Target: []string{"a:1"}, Timeout: 3 * time.Second}
	c.CA, c.Cert, c.Key, c.ServerName, c.User, c.PasswordFile, c.Insecure = "ca.pem", "cert.pem", "key.pem", "n", "u", "f", true
	o := bench.Default()
	o.Targets, o.Threads = []string{"https://a:1", "https://b:2"}, 2
	cmd, err := c.processCommand(&o)
	if err != nil {
		t.Fatal(err)
	}
	want := "bench --interval-process --timeout 3s --threads 2 --target=https://a:1 --target=https://b:2 " +
		"--ca=ca.pem --cert=cert.pem --key=key.pem --server-name=n --user=u --password-file=f --insecure"
	if got := strings.Join(cmd.Args[1:], " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestBenchInterval_FlagsWithoutMeaningAreRefused(t *testing.T) {
	args := "bench --interval --rate 5 --count 7 --mode lease --requests 5 --warmup 1s --html x.html --processes 0 --generators 0 -p h2c -d 1ms"
	code, out, err := command(strings.Fields(args)...)
	if code != exitUsage || out != "" || strings.Count(err, "\n") != 1 {
		t.Errorf("exit code %d\n%s%s", code, out, err)
	}
	for _, want := range []string{"--rate", "--count", "--mode", "--requests", "--warmup", "--html", "--processes", "--generators", "--protocol", "--duration"} {
		if !strings.Contains(err, want) {
			t.Errorf("%q is missing in: %s", want, err)
		}
	}
	if _, err := os.Stat("x.html"); err == nil {
		t.Error("a file was made")
	}
}
