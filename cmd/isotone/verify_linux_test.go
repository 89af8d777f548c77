package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/chromium"
	"github.com/isotone/isotone/internal/check/verify"
)

// TestVerify_FirstReport: one command runs three nodes of this program under faults, finds nothing, and writes a page that
// a browser shows. The same result is shown again.
func TestVerify_FirstReport(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd := reexec(t, []string{"TMPDIR=" + tmp, "NODE_ID=99"}, "verify", "--duration", "8s", "--seed", "1", "--count", "5", "--json", "--live", "--report", "report.html",
		"--option", "mode=quorum", "--option", "numbers=timestamps")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	var r verify.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if r.Broken() || r.Held() != verify.RealTime || r.Answers == 0 || r.Seed != 1 || r.System != "isotone" || len(r.Nodes) != 3 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(errs.String(), "The report: report.html") || strings.Contains(errs.String(), "\x1b") {
		t.Errorf("what it shows:\n%s", errs.String())
	}
	wantEmpty(t, tmp)

	result := filepath.Join(cmd.Dir, "result.json")
	if err := os.WriteFile(result, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "again.html")
	code, shown, _ := command("verify", "--replay", result, "--report", page)
	if code != 0 || !strings.Contains(errs.String(), strings.Split(shown, "\nThe report")[0]) {
		t.Errorf("exit code %d; it shows another summary:\n%s", code, shown)
	}
	first, err := os.ReadFile(filepath.Join(cmd.Dir, "report.html"))
	again, err2 := os.ReadFile(page)
	if err != nil || err2 != nil || !bytes.Equal(first, again) {
		t.Errorf("it writes another page: %v, %v", err, err2)
	}
	looksAt(t, filepath.Join(cmd.Dir, "report.html"), "Real-time order held")
}

// looksAt opens a page in a browser, if there is one.
func looksAt(t *testing.T, page, want string) {
	t.Run("in a browser", func(t *testing.T) {
		var b chromium.Browser
		t.Cleanup(b.Close)
		tab := b.Tab(t)
		tab.Open("file://"+page, 390, 800, "light")
		if text := tab.Text("body"); !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
		if faults, noise := tab.Console(); len(faults)+len(noise) > 0 {
			t.Error(faults, noise)
		}
	})
}

// TestVerify_InterruptedShowsWhatItHas, and leaves nothing behind.
func TestVerify_InterruptedShowsWhatItHas(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd := reexec(t, []string{"TMPDIR=" + tmp}, "verify", "--faults", "none", "--live")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var shown []string
	for lines.Scan() {
		shown = append(shown, lines.Text())
		if strings.Contains(lines.Text(), " answers/s") && !strings.Contains(lines.Text(), " 0 answers/s") && cmd.Process.Signal(os.Interrupt) != nil {
			t.Error("it has ended")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(shown, "\n"), errs.String())
	}
	if text := strings.Join(shown, "\n"); !strings.Contains(text, "interrupted") || !strings.Contains(text, "real-time order") {
		t.Errorf("it shows:\n%s", text)
	}
	wantEmpty(t, tmp)
}

// TestVerify_WrongOptionsOfADriverAreUsageErrors: said once, however many drivers say so.
func TestVerify_WrongOptionsOfADriverAreUsageErrors(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]string{"mode=quorom": `option mode = "quorom": want quorum, lease`, "moed=lease": `there is no option "moed"`} {
		cmd := reexec(t, nil, "verify", "--faults", "none", "--option", option)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exitUsage || strings.Count(string(out), want) != 1 || strings.Contains(string(out), "invalid:") {
			t.Errorf("%s: exit code %d:\n%s", option, code, out)
		}
	}
}

// TestVerify_ImpossibleFaultsAreUsageErrors if they are named. A new report is not left behind.
func TestVerify_ImpossibleFaultsAreUsageErrors(t *testing.T) {
	t.Parallel()
	cmd := reexec(t, nil, "verify", "--nodes", "1", "--faults", "kill,member", "--report", "report.html")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(string(out), "--faults member: a single node has no others") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	wantEmpty(t, cmd.Dir)
}

// TestVerify_OfARunningCluster starts and breaks nothing.
func TestVerify_OfARunningCluster(t *testing.T) {
	t.Parallel()
	m, _ := startAlone(t, "0")
	cmd := reexec(t, nil, "verify", "--endpoint", m.Addr, "--duration", "1s", "--json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r verify.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if r.Broken() || r.Answers == 0 || len(r.Faults) > 0 || len(r.LeftOut) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestVerify_ExitsWith1IfAPromiseIsBroken: a shell script that counts up to ten again and again.
func TestVerify_ExitsWith1IfAPromiseIsBroken(t *testing.T) {
	t.Parallel()
	script := `while read -r line; do
		id=${line#*\"id\":}; id=${id%%[!0-9]*}
		case $line in
		*'"do":"hello"'*) ok='{"protocol":1,"system":"script\u001b[31m","version":"1","promises":"unique"}';;
		*'"do":"ask"'*) n=$(((n + 1) % 10)); ok="{\"calls\":[{\"first\":\"$n\",\"count\":1}]}";;
		*) ok='{}';;
		esac
		echo "{\"id\":$id,\"ok\":$ok}"
	done`
	cmd := reexec(t, nil, "verify", "--system", "exec", "--endpoint", "127.0.0.1:1", "--until-broken", "--processes", "1", "--", "sh", "-c", script)
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(string(out), "BROKEN") || !strings.Contains(string(out), "script") || bytes.ContainsRune(out, '\x1b') {
		t.Errorf("%v, exit code %d:\n%s", err, code, out)
	}
}

// TestVerify_SaysWhyANodeIsNotReady does not wait for it as for one that it has started itself.
func TestVerify_SaysWhyANodeIsNotReady(t *testing.T) {
	t.Parallel()
	out, err := reexec(t, nil, "verify", "--endpoint", "127.0.0.1:1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not ready after 10s") || !strings.Contains(string(out), "refused") {
		t.Errorf("%v\n%s", err, out)
	}
}
