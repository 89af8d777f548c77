package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

// lockNode runs a node, and returns its flags for isotone lock.
func lockNode(t *testing.T) (p *process, flags []string) {
	t.Helper()
	p = newProcess(t, 1)
	p.start()
	return p, []string{"lock", "--endpoint", p.s.AdvertiseAddr, "--timeout", "3m"}
}

// locked runs isotone lock, and returns what it has printed.
func locked(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := reexec(t, nil, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	return codeOfRun(t, cmd.Run()), o.String(), e.String()
}

func codeOfRun(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err == nil {
		return 0
	}
	return exit.ExitCode()
}

// holding runs isotone lock until its command has written the ID of its process into a file.
func holding(t *testing.T, script string, args ...string) (cmd *exec.Cmd, pid int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	cmd = reexec(t, nil, append(args, "--", "sh", "-c", strings.ReplaceAll(script, "FILE", file))...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the command runs", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return strings.HasSuffix(string(text), "\n")
	})
	return cmd, pid
}

// isGone waits until a process has ended.
func isGone(t *testing.T, pid int) {
	t.Helper()
	await.Until(t, "the process of the command has ended", func() bool {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || bytes.Contains(state, []byte(") Z "))
	})
}

func TestLock_RunsACommand(t *testing.T) {
	_, flags := lockNode(t)
	long := append(flags, "--ttl", "1m", "jobs/nightly")
	code, out, errs := locked(t, append(long, "--", "sh", "-c", `echo $ISOTONE_LOCK_NAME $ISOTONE_LOCK_TOKEN $ISOTONE_LOCK_TOKEN64; exit 7`)...)
	first := strings.Fields(out)
	if code != 7 || len(first) != 3 || first[0] != "jobs/nightly" || len(first[1]) != 32 || errs != "" {
		t.Fatalf("exit code %d, %q, %q", code, out, errs)
	}
	code, out, _ = locked(t, append(long, "--", "sh", "-c", `echo $ISOTONE_LOCK_NAME $ISOTONE_LOCK_TOKEN $ISOTONE_LOCK_TOKEN64`)...)
	if next := strings.Fields(out); code != 0 || len(next) != 3 || next[1] <= first[1] || next[2] <= first[2] {
		t.Errorf("exit code %d, %q after %q", code, out, first)
	}
	if code, out, errs := locked(t, append(long, "sh", "-c", `printf '%s,' "$@"`, "sh", "-n", "--", "--ttl")...); code != 0 || out != "-n,--,--ttl," {
		t.Errorf("exit code %d, %q, %q: flags behind the command are the command's", code, out, errs)
	}
	if code, _, _ := locked(t, append(long, "--", "sh", "-c", "kill -9 $$")...); code != 128+9 {
		t.Errorf("exit code %d of a command that was killed", code)
	}
	if code, _, errs := locked(t, append(long, "--", "/does/not/exist")...); code != 127 || !strings.Contains(errs, "does not start") {
		t.Errorf("exit code %d, %q of a command that there is not", code, errs)
	}
}

func TestLock_ExcludesOthers(t *testing.T) {
	_, flags := lockNode(t)
	long := append(flags, "--ttl", "1m")
	cmd, _ := holding(t, `echo $$ > FILE; trap 'exit 3' TERM; while :; do sleep 0.05; done`, append(long, "--value", "me", "x")...)
	for _, how := range [][]string{{"--nonblock"}, {"--wait", "50ms"}} {
		code, out, errs := locked(t, append(append(long, how...), "x", "--", "echo", "never")...)
		if code != 75 || out != "" || !strings.Contains(errs, `held by "me" with token`) {
			t.Errorf("%v: exit code %d, %q, %q", how, code, out, errs)
		}
	}
	if code, _, _ := locked(t, append(long, "--nonblock", "--conflict-exit-code", "5", "x", "--", "true")...); code != 5 {
		t.Errorf("exit code %d", code)
	}
	if code, _, _ := locked(t, append(long, "--nonblock", "y", "--", "true")...); code != 0 {
		t.Errorf("exit code %d for another lock", code)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // which the command gets
	if code := codeOfRun(t, cmd.Wait()); code != 3 {
		t.Errorf("exit code %d of a command that ends itself at SIGTERM", code)
	}
	if code, _, errs := locked(t, append(long, "--nonblock", "x", "--", "true")...); code != 0 {
		t.Errorf("exit code %d for a lock that is free: %s", code, errs)
	}
}

// TestLock_EndsAllOfTheCommandInTime: also what a shell has started, and what ignores SIGTERM, when the cluster is gone.
func TestLock_EndsAllOfTheCommandInTime(t *testing.T) {
	p, flags := lockNode(t)
	cmd, pid := holding(t, `trap '' TERM; sleep 600 & echo $! > FILE; wait`, append(flags, "--ttl", "5s", "x")...)
	_ = p.stop()
	if code := codeOfRun(t, cmd.Wait()); code != lostExitCode {
		t.Errorf("exit code %d", code)
	}
	isGone(t, pid)
}

// TestLock_TakesItsCommandAlong when it is killed itself.
func TestLock_TakesItsCommandAlong(t *testing.T) {
	_, flags := lockNode(t)
	cmd, pid := holding(t, `echo $$ > FILE; exec sleep 600`, append(flags, "--ttl", "1m", "--linger", "1ms", "x")...)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	isGone(t, pid)
	if code, _, errs := locked(t, append(flags, "--ttl", "1m", "x", "--", "true")...); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestLock_RefusesWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"x"}, {}, {"x", "--"}, {"x", ""}, {"", "--", "true"}, {strings.Repeat("x", 129), "--", "true"}, {"--ttl", "1ms", "x", "--", "true"}, {"--ttl", "1h", "x", "--", "true"},
		{"--linger", "0s", "x", "--", "true"}, {"--linger", "1h", "x", "--", "true"}, {"--kill-after", "2s", "x", "--", "true"}, {"--wait", "0s", "x", "--", "true"},
		{"--wait", "1s", "--nonblock", "x", "--", "true"}, {"-E", "256", "x", "--", "true"}, {"--timeout", "0s", "x", "--", "true"},
		{"--value", strings.Repeat("x", 129), "x", "--", "true"}, {"--endpoint", "unix:/x", "x", "--", "true"},
	} {
		if code, _, errs := command(append([]string{"lock"}, args...)...); code != exitUsage || errs == "" {
			t.Errorf("%q: exit code %d, %q", args, code, errs)
		}
	}
	if code, _, errs := command("lock", "--endpoint", "127.0.0.1:1", "--timeout", "50ms", "x", "--", "true"); code != exitFailure || !strings.Contains(errs, "127.0.0.1:1") {
		t.Errorf("exit code %d, %q without a cluster", code, errs)
	}
}
