package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/sim"
	"github.com/isotone/isotone/internal/inspect/protocoltrace"
)

// simulatedTrace returns the path of the protocol trace of a simulated cluster.
func simulatedTrace(t *testing.T) string {
	t.Helper()
	path, now := filepath.Join(t.TempDir(), "trace"), int64(0)
	w, err := protocoltrace.Open(path, func() int64 { now++; return now })
	if err != nil {
		t.Fatal(err)
	}
	r := sim.Run(sim.Options{Seed: 3, Lease: true, Observe: func(cfg replica.Config) replica.Observer {
		return w.Observe(cfg, func(err error) { t.Error(err) })
	}})
	if err := w.Close(); err != nil || r.Violation != nil {
		t.Fatal(err, r.Violation)
	}
	return path
}

// TestVerifyTrace_PermitsWhatHappened, for people and for programs.
func TestVerifyTrace_PermitsWhatHappened(t *testing.T) {
	oneGoroutine(t)
	path := simulatedTrace(t)
	if code, out, errs := command("verify", "trace", path); code != 0 || !strings.Contains(out, "the specification permits all of them") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs := command("verify", "trace", path, "--json")
	var r traceResult
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Answers == 0 || r.Processes < 3 || r.Refused != nil {
		t.Errorf("exit code %d, %v: %+v %s", code, err, r, errs)
	}
}

// TestVerifyTrace_RefusesAnAnswerBelowTheOneBefore, and says which event, which rule, and why.
func TestVerifyTrace_RefusesAnAnswerBelowTheOneBefore(t *testing.T) {
	oneGoroutine(t)
	path := simulatedTrace(t)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	first, number := "", 0
	for i, line := range lines {
		_, ranges, ok := strings.Cut(line, `"ranges":`)
		switch {
		case ok && first == "":
			first = ranges
		case ok && i > len(lines)/2:
			lines[i], number = strings.Replace(line, ranges, first, 1), i+1
		}
		if number > 0 {
			break
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command("verify", "trace", path, "--json")
	var r traceResult
	if err := json.Unmarshal([]byte(out), &r); code != 1 || err != nil || r.Refused == nil || r.Refused.Number != uint64(number) || r.Refused.Why == "" {
		t.Errorf("exit code %d, %v: %s%s; want event %d refused", code, err, out, errs, number)
	}
	if code, out, errs := command("verify", "trace", path); code != 1 || !strings.Contains(out, "is not permitted") || !strings.Contains(errs, "breaks the rule") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// TestVerifyTrace_SaysWhatItWants of wrong input.
func TestVerifyTrace_SaysWhatItWants(t *testing.T) {
	dir := t.TempDir()
	empty, other := filepath.Join(dir, "empty"), filepath.Join(dir, "other")
	for path, text := range map[string]string{empty: "", other: "hello\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "want the files"},
		{[]string{other, "--report", "x.html"}, 2, "takes --json only"},
		{[]string{filepath.Join(dir, "none")}, 2, "no such file"},
		{[]string{empty}, 1, "there is no event"},
		{[]string{empty, empty}, 2, "given twice"},
		{[]string{other}, 1, "other: line 1 is no event"},
		{[]string{empty, dir}, 1, dir + ": after line 0"},
	} {
		if code, _, errs := command(append([]string{"verify", "trace"}, test.args...)...); code != test.code || !strings.Contains(errs, test.want) {
			t.Errorf("%q: exit code %d, want %d: %s, want %q", test.args, code, test.code, errs, test.want)
		}
	}
}

// TestServe_TraceFileThatCannotBeWritten: the node does not start, and says which setting is wrong.
func TestServe_TraceFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	cmd := reexec(t, []string{"DATA_DIR=" + dir, "HTTP_PORT=0", "RAFT_ADDR=127.0.0.1:0", "THRIFT_PORT=off", "TRACE_FILE=" + filepath.Join(dir, "none", "trace")}, "serve")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "TRACE_FILE") {
		t.Errorf("%v: %s", err, out)
	}
}
