//go:build linux

package clockbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/core/interval"
)

// node is a server that tells readings: at sets the bounds, the n-th time.
func node(t *testing.T, at func(n uint64) uint64) string {
	t.Helper()
	var n atomic.Uint64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nonce, _ := strconv.ParseUint(r.URL.Query().Get("nonce"), 10, 64)
		now := at(n.Add(1))
		_, _ = w.Write(interval.Reading{Cluster: 1, Term: 1, Earliest: now, Latest: now + 10, Limit: 2e18}.Append(nil, nonce))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// options returns those of a short run with processes that pretend.
func options(t *testing.T, target, says string) Options {
	o := Options{Options: bench.Default(), Processes: 2, Generators: 1}
	o.Targets, o.Connections, o.Duration = []string{target}, 2, 200*time.Millisecond
	o.Violations = filepath.Join(t.TempDir(), "violations.jsonl")
	o.Command = func() (*exec.Cmd, error) {
		self, err := os.Executable()
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), asProcess+"="+says)
		return cmd, err
	}
	return o
}

func grows(n uint64) uint64 { return 1e18 + n }

func TestRun_MeasuresAndChecks(t *testing.T) {
	r, err := Run(t.Context(), options(t, node(t, grows), "right"))
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Verdict; !v.OK || v.Operations != 12 || v.Reads != 12 || r.Result.PerSecond.All != 2000 || r.Result.Readings.Answers == 0 {
		t.Errorf("%+v", r)
	}
}

func TestRun_ReportsViolations(t *testing.T) {
	for says, at := range map[string]func(uint64) uint64{"wrong": grows, "right": func(n uint64) uint64 { return 2e18 - 1000*n }} {
		o := options(t, node(t, at), says)
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(o.Violations)
		if r.Verdict.OK || r.Verdict.Violations == 0 || r.Verdict.First == "" || err != nil {
			t.Errorf("%s: %+v, %v", says, r.Verdict, err)
		}
		var v bench.Violation
		if first, _, _ := bytes.Cut(lines, []byte("\n")); json.Unmarshal(first, &v) != nil || v.Message != r.Verdict.First {
			t.Errorf("%s: %s", says, lines)
		}
		if text := r.Verdict.String(); !strings.Contains(text, "VIOLATION") || !strings.Contains(text, o.Violations) {
			t.Error(text)
		}
	}
}

func TestRun_SaysWhyThereIsNothingToMeasure(t *testing.T) {
	off := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":{"code":"not_found","message":"this node reads no cluster clock: INTERVAL_MS is 0"}}`))
	}))
	defer off.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	good := node(t, grows)
	for _, tt := range []struct{ target, says, want string }{
		{off.Listener.Addr().String(), "right", "start every node of the cluster with INTERVAL_MS"},
		{other.Listener.Addr().String(), "right", "not an oracle"},
		{"127.0.0.1:1", "right", "127.0.0.1:1"},
		{good, "refused", "INTERVAL_MS is 0"},
		{good, "dead", "out of memory"},
		{good, "garbage", "process"},
	} {
		r, err := Run(t.Context(), options(t, tt.target, tt.says))
		if !errors.As(err, new(bench.TargetError)) || !strings.Contains(err.Error(), tt.want) || r != nil {
			t.Errorf("%s: %v, want %q", tt.says, err, tt.want)
		}
	}
}

func TestRun_EndsEarlyWithAReport(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options(t, node(t, func(n uint64) uint64 {
		if n == 2 { // the first after that of the beginning: the last phase
			cancel()
		}
		return grows(n)
	}), "right")
	o.Duration = time.Minute
	began := time.Now()
	r, err := Run(ctx, o)
	if err != nil || !r.Result.Interrupted || !r.Verdict.OK || time.Since(began) > 30*time.Second {
		t.Errorf("%+v, %v, after %v", r, err, time.Since(began))
	}
}

func TestOptions_FaultsAreListedTogether(t *testing.T) {
	o := Options{Options: bench.Default(), Processes: 0, Generators: 1000}
	o.Protocol, o.Duration, o.Connections = "h3", time.Millisecond, 0
	err := o.Validate()
	for _, want := range []string{"--processes 0", "--generators 1000", "--protocol h3", "--duration 1ms", "--connections 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// TestOptions_ARunStaysWithinItsRecords, however long it is.
func TestOptions_ARunStaysWithinItsRecords(t *testing.T) {
	for _, d := range []time.Duration{durationMin, 10 * time.Second, durationMax} {
		o := Options{Options: bench.Default(), Processes: processesMax, Generators: generatorsMax}
		o.Duration = d
		list, readings := o.steps()
		length, reads, operations := time.Duration(0), 0.0, 0.0
		for _, s := range append(list, step{"readings", readings, false}) {
			length += s.Duration
			reads += float64(s.Duration) / float64(s.ReadPace) * processesMax
			if s.Batch == 0 && s.Lanes > 0 {
				operations += float64(s.Duration) / float64(s.Pace) * processesMax * generatorsMax
			}
		}
		if length != d || reads > recordsMax || operations > recordsMax {
			t.Errorf("%v: phases of %v, %.0f reads, %.0f operations", d, length, reads, operations)
		}
	}
}

func TestResult_HasTheDocumentedJSON(t *testing.T) {
	o := options(t, "127.0.0.1:1", "right")
	r := newResult(&o)
	r.Verdict = Verdict{Judgement: bench.Judgement{File: "x", First: "y"}}
	r.Result.Readings.First = "z"
	var b bytes.Buffer
	if err := errors.Join(bench.WriteJSON(&b, r), r.WriteSummary(&b)); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`"([a-z_0-9]+)":`).FindAllStringSubmatch(b.String(), -1) {
		names[name[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Contains(doc, []byte("`"+name+"`")) {
			t.Errorf("docs/bench.md does not mention the field `%s`", name)
		}
	}
}
