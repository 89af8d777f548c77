package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
)

// oracleOf is a server that hands out the timestamps that issue says.
func oracleOf(t *testing.T, issue func(n uint64) uint64) string {
	t.Helper()
	var n atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/members" {
			fmt.Fprint(w, `{"leader":null,"members":[{"nodeID":1,"addr":""}]}`)
			return
		}
		body, _ := isotone.Timestamp{Time: 1, Index: issue(n.Add(1))}.MarshalBinary()
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestBench_ErrorsAreOneLineAndExitWith2(t *testing.T) {
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	dir := t.TempDir()
	result := filepath.Join(dir, "result.json")
	if err := os.WriteFile(result, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"--connections 0 --rate -1 --mode x --protocol y --count 0", []string{"--connections", "--rate", "--mode", "--protocol", "--count"}},
		{"--target nonsense", []string{"--target", "host:port"}},
		{"--target 127.0.0.1:1 --timeout 5s", []string{"127.0.0.1:1", "--target"}},
		{"--target " + page.Listener.Addr().String(), []string{"is not an oracle", "404"}},
		{"--ca " + filepath.Join(dir, "missing.pem"), []string{"--ca", "missing.pem"}},
		{"--ca " + result, []string{"--ca", "no certificate"}},
		{"--json " + filepath.Join(dir, "missing", "x.json"), []string{"--json", "missing"}},
		{"--html " + dir, []string{"--html", dir}},
		{"a.json", []string{"--compare"}},
		{"--compare " + result, []string{"two files"}},
		{"--compare " + result + " " + result, []string{"result.json", "schema"}},
	} {
		code, out, err := command(append([]string{"bench"}, strings.Fields(tt.args)...)...)
		if code != exitUsage || out != "" || strings.Count(err, "\n") != 1 {
			t.Errorf("%s: exit code %d, want %d and one line:\n%s%s", tt.args, code, exitUsage, out, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(err, want) {
				t.Errorf("%s: %q is missing in: %s", tt.args, want, err)
			}
		}
	}
	if code, _, err := command("bench", "--rate", "fast"); code != exitUsage || !strings.Contains(err, "--rate") {
		t.Errorf("exit code %d: %s", code, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.html")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestBench_WritesReportsAndComparesThem(t *testing.T) {
	addr := oracleOf(t, func(n uint64) uint64 { return n })
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "b"} {
		code, out, err := command("bench", "-t", addr, "--requests", "500", "-c", "8",
			"--json", file(name+".json"), "--html", file(name+".html"), "--violations", file("violations"))
		if code != 0 || !strings.Contains(out, "all 500 answers are unique") {
			t.Fatalf("exit code %d\n%s%s", code, out, err)
		}
	}
	r, err := bench.ReadResult(file("a.json"))
	if err != nil || r.Result.Answers != 500 || r.Isotone != version || !r.Verdict.OK {
		t.Errorf("%v, %+v", err, r)
	}
	code, out, text := command("bench", "--compare", file("a.json"), file("b.json"), "--html", file("both.html"))
	if code != 0 || !strings.Contains(out, "p99.9") || strings.Contains(out, "NOT COMPARABLE") {
		t.Errorf("exit code %d\n%s%s", code, out, text)
	}
	for _, name := range []string{"a.html", "both.html"} {
		page, err := os.ReadFile(file(name))
		if err != nil || !strings.Contains(string(page), "Latency by percentile") {
			t.Errorf("%s: %v, %d bytes", name, err, len(page))
		}
	}
	if _, err := os.Stat(file("violations")); err == nil {
		t.Error("a file of violations was written, but there were none")
	}
}

// TestBench_SaysThatTheLoadGoesElsewhere, for who has named a proxy, or one node of many.
func TestBench_SaysThatTheLoadGoesElsewhere(t *testing.T) {
	leader := oracleOf(t, func(n uint64) uint64 { return n })
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"leader":{"nodeID":1,"addr":%q},"members":[{"nodeID":1,"addr":%q}]}`, leader, leader)
	}))
	defer other.Close()
	want := "the leader is at " + leader + ", which is none of --target: the load goes there directly\n"
	for _, tt := range []struct {
		targets string
		want    int
	}{{other.Listener.Addr().String(), 1}, {other.Listener.Addr().String() + "," + leader, 0}, {leader, 0}} {
		code, out, text := command("bench", "-t", tt.targets, "--requests", "10", "-c", "1")
		if code != 0 || strings.Count(text, want) != tt.want || strings.Contains(out, "none of --target") {
			t.Errorf("%s: exit code %d, want %d lines %q\n%s%s", tt.targets, code, tt.want, want, out, text)
		}
	}
}

func TestBench_JSONToStandardOutput(t *testing.T) {
	addr := oracleOf(t, func(n uint64) uint64 { return n })
	code, out, text := command("bench", "-t", addr, "--requests", "10", "-c", "1", "--json", "-")
	var r bench.Result
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Result.Answers != 10 || !strings.Contains(text, "verdict") {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, text)
	}
}

func TestBench_ViolationExitsWith1AndNamesTheFile(t *testing.T) {
	addr := oracleOf(t, func(n uint64) uint64 { return n - n/100%2 })
	file := filepath.Join(t.TempDir(), "violations.jsonl")
	code, out, err := command("bench", "-t", addr, "--requests", "300", "-c", "2", "--violations", file)
	if code != exitFailure || !strings.Contains(out, "VIOLATION") || !strings.Contains(err, file) || !strings.Contains(err, "duplicate") {
		t.Errorf("exit code %d\n%s%s", code, out, err)
	}
	if lines, e := os.ReadFile(file); e != nil || !strings.Contains(string(lines), `"kind":"duplicate"`) {
		t.Errorf("%v: %s", e, lines)
	}
}

// TestDemo_RefusesAPictureThatCannotBeWritten, before it starts anything.
func TestDemo_RefusesAPictureThatCannotBeWritten(t *testing.T) {
	code, _, text := command("demo", "failover", "--svg", filepath.Join(t.TempDir(), "missing", "x.svg"))
	if code != exitUsage || !strings.Contains(text, "--svg: open ") {
		t.Errorf("%d %s", code, text)
	}
}

// TestBench_ExitCodeIs2WithoutANode, as docs/bench.md says.
func TestBench_ExitCodeIs2WithoutANode(t *testing.T) {
	code, _, text := command("bench", "--target", closedAddr(t), "--requests", "1", "--timeout", "200ms")
	if code != exitUsage {
		t.Errorf("%d %s", code, text)
	}
}
