package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/demofencing"
)

// needRedisServer skips the test if there is no redis-server; with CI=true in the environment it fails.
func needRedisServer(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs redis-server: install the package redis-server")
	}
}

func TestDemoFencing_RefusesLateWrites(t *testing.T) {
	needRedisServer(t)
	tmp := t.TempDir()
	cmd := reexec(t, []string{"TMPDIR=" + tmp, "NODE_ID=99"}, "demo", "fencing", "--rounds", "2", "--json", "--svg", "picture.svg")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	var r demofencing.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if v := r.Verdict; r.Schema != demofencing.Schema || !v.OK || v.Refused != 2 || v.Overwritten != 2 || len(r.Result.Rounds) != 2 {
		t.Errorf("%+v", r)
	}
	for _, round := range r.Result.Rounds {
		last := round.Events[len(round.Events)-1]
		if len(round.Events) != 8 || last.Fence == "" || last.Held || round.Fenced == round.Plain {
			t.Errorf("%+v", round)
		}
	}
	for _, want := range []string{"A  is paused (SIGSTOP)", "B  holds the lock", "fenced ✗ refused", "B's work is lost", "round 2: ", "verdict    ok"} {
		if !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "\x1b") {
			t.Errorf("%q is missing, or there are control sequences, in:\n%s", want, errs.String())
		}
	}
	if svg, err := os.ReadFile(filepath.Join(cmd.Dir, "picture.svg")); err != nil || string(svg) != r.Picture() {
		t.Errorf("the picture: %v, %d bytes", err, len(svg))
	}
	wantEmpty(t, tmp)
}

// TestDemoFencing_LeavesNoProcessHoweverItEnds ends it while a holder is paused.
func TestDemoFencing_LeavesNoProcessHoweverItEnds(t *testing.T) {
	needRedisServer(t)
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			cmd := reexec(t, []string{"TMPDIR=" + tmp}, "demo", "fencing", "--ttl", "8s")
			out, err := os.Create(filepath.Join(t.TempDir(), "output"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "holder A is paused", func() bool {
				shown, _ := os.ReadFile(out.Name())
				return strings.Contains(string(shown), "A  is paused")
			})
			children := childrenOf(t, cmd.Process.Pid)
			if len(children) != demofencing.Nodes+3 {
				t.Errorf("%d processes; want the nodes, Redis and two holders", len(children))
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			wantEnded(t, children)
			if shown, _ := os.ReadFile(out.Name()); signal == syscall.SIGINT && (cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(shown), "interrupted before there was an outcome")) {
				t.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), shown)
			}
			if signal == syscall.SIGINT {
				wantEmpty(t, tmp)
			}
		})
	}
}

func TestDemoFencing_RefusesBadSettings(t *testing.T) {
	code, _, errs := command("demo", "fencing", "--rounds", "0", "--ttl", "1h")
	if want := "isotone: --rounds 0: want 1 to 1000; --ttl 1h0m0s: want 100ms to 1m0s"; code != exitUsage || !strings.HasPrefix(errs, want) {
		t.Errorf("exit code %d, %q; want %q…", code, errs, want)
	}
	t.Setenv("PATH", t.TempDir())
	code, out, errs := command("demo", "fencing")
	if code != exitUsage || out != "" || !strings.Contains(errs, "apt-get install redis-server") {
		t.Errorf("without redis-server: exit code %d, %q", code, errs)
	}
}
