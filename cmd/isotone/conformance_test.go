package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/conformance"
)

// goDriver builds the driver of the Go client.
func goDriver(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "driver.exe")
	if out, err := exec.Command("go", "build", "-o", path, "../../clients/go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestConformance_SaysWhatPassed(t *testing.T) {
	driver := goDriver(t)
	var out, errs bytes.Buffer
	if code := run([]string{"conformance", "run", "--scenario", "one-a*", "--", driver}, console{&out, &errs}); code != 0 || errs.Len() > 0 {
		t.Errorf("%d: %s", code, &errs)
	}
	if text := out.String(); !strings.Contains(text, "pass  one-address-is-enough") || !strings.Contains(text, "2 passed, 0 failed, 0 skipped") {
		t.Error(text)
	}
	out.Reset()
	if code := run([]string{"conformance", "run", "--json", "--scenario", "one-address*", "--", driver}, console{&out, &errs}); code != 0 {
		t.Errorf("%d: %s", code, &errs)
	}
	var r conformance.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Passed != 1 || r.Outcomes[0].Name != "one-address-is-enough" || r.Client != "isotone-go" {
		t.Errorf("%v: %s", err, &out)
	}
}

// TestConformance_SaysWhatFailed: a driver that answers hello, and no more.
func TestConformance_SaysWhatFailed(t *testing.T) {
	driver := []string{"sh", "-c", `read line; echo '{"id":1,"ok":{"protocol":1,"client":"half","version":"1"}}'; read line; echo defect >&2`}
	var out, errs bytes.Buffer
	code := run(append([]string{"conformance", "run", "--scenario", "one-address*", "--"}, driver...), console{&out, &errs})
	if text := out.String(); code != exitFailure || !strings.Contains(text, "FAIL  one-address-is-enough") || !strings.Contains(text, "the driver has ended") || !strings.Contains(text, "defect") {
		t.Errorf("%d: %s%s", code, text, &errs)
	}
	out.Reset()
	if code := run(append([]string{"conformance", "run", "--scenario", "tls", "--"}, driver...), console{&out, &errs}); code != exitFailure || !strings.Contains(out.String(), "skip  tls") {
		t.Errorf("skipped: %d: %s", code, &out)
	}
}

func TestConformance_RefusesWhatIsWrong(t *testing.T) {
	for want, args := range map[string][]string{
		"want a driver after --":            {"run"},
		"no scenario has a name like":       {"run", "--scenario", "nothing", "--", "true"},
		"--parallel 0: want 1 to 64":        {"run", "--parallel", "0", "--", "true"},
		"--patience 1ms: want 1s to 10m":    {"run", "--patience", "1ms", "--", "true"},
		"is the name of":                    {"serve", "moved-*"},
		"--patience 25h0m0s: want 1s to 24": {"serve", "tls", "--patience", "25h"},
	} {
		var out, errs bytes.Buffer
		if code := run(append([]string{"conformance"}, args...), console{&out, &errs}); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d: %s", args, code, &errs)
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{"conformance", "run", "--", "true"}, console{&out, &errs}); code != exitFailure || !strings.Contains(errs.String(), "before it answered hello") {
		t.Errorf("a driver that says nothing: %d: %s", code, &errs)
	}
}

func TestConformance_ListsEveryScenario(t *testing.T) {
	var out bytes.Buffer
	if code := run([]string{"conformance", "run", "--list"}, console{&out, io.Discard}); code != 0 || strings.Count(out.String(), "\n") != len(conformance.Scenarios()) {
		t.Errorf("%d: %s", code, &out)
	}
}

// TestConformance_ServesADriverAtItsInput: the driver has the pipes, as in a debugger.
func TestConformance_ServesADriverAtItsInput(t *testing.T) {
	driver, served := exec.Command(goDriver(t)), reexec(t, nil, "conformance", "serve", "one-address-is-enough")
	var errs bytes.Buffer
	served.Stderr = &errs
	connect(t, driver, served)
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	err := served.Run()
	_ = driver.Process.Kill()
	_ = driver.Wait()
	if err != nil || !strings.Contains(errs.String(), "pass  one-address-is-enough") || !strings.Contains(errs.String(), "CLUSTER SLOTS") {
		t.Errorf("%v: %s", err, &errs)
	}
}

// connect has each of two commands read what the other one writes.
func connect(t *testing.T, a, b *exec.Cmd) {
	t.Helper()
	for _, ends := range [][2]*exec.Cmd{{a, b}, {b, a}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		ends[0].Stdin, ends[1].Stdout = r, w
	}
}

// TestConformance_EndsAtCtrlC, and so does its driver.
func TestConformance_EndsAtCtrlC(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pid")
	cmd := reexec(t, nil, "conformance", "run", "--scenario", "one-address*", "--", "sh", "-c", "echo $$ > "+pids+"; exec sleep 1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid []byte
	await.Until(t, "the driver", func() bool {
		pid, _ = os.ReadFile(pids)
		return len(pid) > 0
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailure {
		t.Errorf("it ended with %v", err)
	}
	if err := exec.Command("kill", "-0", strings.TrimSpace(string(pid))).Run(); err == nil {
		t.Error("the driver goes on")
	}
}
