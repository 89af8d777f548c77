package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
)

// logOf writes a log of requests and returns its name.
func logOf(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func requestLine(id string, wall time.Duration) string {
	return fmt.Sprintf(`{"time":"2026-05-01T12:00:00Z","msg":"request","request_id":%q,"protocol":"http1","method":"GET","path":"/timestamp","status":200,"code":"ok","wall_us":%d,"user_us":%d,"system_us":0}`,
		id, wall.Microseconds(), (wall / 4).Microseconds())
}

func TestStats_TellsCapacityAndJoinsLogs(t *testing.T) {
	inner := logOf(t, "node.log", requestLine("one", 4*time.Millisecond), requestLine("two", 8*time.Millisecond), "panic: no JSON", `{"msg":"request"`)
	code, out, err := command("stats", inner, "--cores", "8", "--top", "1", "--by", "path")
	for _, want := range []string{"2 requests", "one core can keep 4.0 such requests", "32 for 8 cores", "two", "by path", "node.log:4: "} {
		if code != 0 || err != "" || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is missing:\n%s%s", code, want, out, err)
		}
	}
	outer := logOf(t, "proxy.log", strings.ReplaceAll(requestLine("two", 10*time.Millisecond), `"path"`, `"target"`))
	if _, out, err = command("stats", outer, inner); !strings.Contains(out, "1 request is in both "+outer+" and "+inner) {
		t.Errorf("the join is not told:\n%s%s", out, err)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	code, out, err = command("stats", outer, inner, "--json", "--html", page)
	var r stats.Report
	if e := json.Unmarshal([]byte(out), &r); e != nil || code != 0 || len(r.Joins) != 1 || r.Joins[0].Requests != 1 || r.Joins[0].Outer != outer || r.Files[1].Broken != 1 {
		t.Errorf("exit code %d, %v: %+v\n%s", code, e, r.Joins, err)
	}
	if html, e := os.ReadFile(page); e != nil || !strings.Contains(string(html), "Largest differences") {
		t.Errorf("the page: %v", e)
	}
}

func TestStats_ReadsStandardInput(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(old *os.File) { os.Stdin = old }(os.Stdin)
	os.Stdin = in
	_, _ = io.WriteString(out, requestLine("one", time.Millisecond)+"\n")
	_ = out.Close()
	code, text, fault := command("stats", "-")
	_ = in.Close()
	if code != 0 || !strings.Contains(text, "stdin: 1 request") {
		t.Errorf("exit code %d\n%s%s", code, text, fault)
	}
}

func TestStats_ErrorsSayWhatIsWrong(t *testing.T) {
	good := logOf(t, "a.log", requestLine("one", time.Millisecond))
	none := logOf(t, "b.log", `{"msg":"serving"}`, "15:04:05.000 INF request wall=1ms")
	dir := filepath.Dir(good)
	for _, tt := range []struct {
		args string
		code int
		want []string
	}{
		{"", exitUsage, []string{"isotone stats FILE", "- is standard input"}},
		{good + " --by colour", exitUsage, []string{"colour", "path, code or protocol"}},
		{good + " --top -1", exitUsage, []string{"top"}},
		{good + " --cores -1", exitUsage, []string{"--cores -1: want 1 or more"}},
		{good + " --cores 0", exitUsage, []string{"--cores 0: want 1 or more"}},
		{good + " " + good, exitUsage, []string{"twice"}},
		{dir, exitUsage, []string{"directory"}},
		{filepath.Join(dir, "missing.log"), exitUsage, []string{"missing.log"}},
		{good + " --html " + filepath.Join(dir, "missing", "x.html"), exitUsage, []string{"--html"}},
		{none, exitFailure, []string{"2 lines", "REQUEST_STATS", "PRETTY"}},
		{none + " --html " + filepath.Join(dir, "x.html"), exitFailure, []string{"2 lines"}},
		{strings.Repeat(good+"x ", 17), exitUsage, []string{"17 files"}},
	} {
		code, out, err := command(append([]string{"stats"}, strings.Fields(tt.args)...)...)
		if code != tt.code || out != "" {
			t.Errorf("%.80s: exit code %d, want %d\n%s%s", tt.args, code, tt.code, out, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(err, want) {
				t.Errorf("%.80s: %q is missing in: %s", tt.args, want, err)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.html")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}
