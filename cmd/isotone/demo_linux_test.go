package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/demo"
)

// The nodes of a demo are this test binary, too.
func init() { cluster.Variables = append(cluster.Variables, asCommand) }

// TestDemoFailover_KillsLeadersAndChecksAnswers runs real processes: for each way in which a leader
// ends, two leaders.
func TestDemoFailover_KillsLeadersAndChecksAnswers(t *testing.T) {
	for _, how := range []string{"kill", "stop", "drain"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			cmd := reexec(t, []string{"TMPDIR=" + tmp, "NODE_ID=99"}, "demo", "failover", "--how", how, "--kills", "2", "--every", "1s", "--clients", "3", "--json", "--svg", "picture.svg")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
			}
			var r demo.Result
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if r.Failed != 0 || r.Violations != 0 || r.Checked == 0 || r.Checked != r.Answers || len(r.Kills) != 2 || string(r.How) != how {
				t.Errorf("%+v", r)
			}
			for _, k := range r.Kills {
				if k.Node == 0 || k.Successor == 0 || k.Node == k.Successor || k.GapMS <= 0 {
					t.Errorf("%+v", k)
				}
				// How many answers there are depends on the machine; that each of these nodes gave some does not.
				for _, node := range []uint64{k.Node, k.Successor} {
					if !slices.ContainsFunc(r.Columns, func(c demo.Column) bool { return c.Leader == node && c.Answers > 0 }) {
						t.Errorf("no answer while node %d led: %+v", node, r.Columns)
					}
				}
			}
			if !strings.Contains(errs.String(), "verdict    ok") || strings.Contains(errs.String(), "\x1b") {
				t.Errorf("the summary:\n%s", errs.String())
			}
			if svg, err := os.ReadFile(filepath.Join(cmd.Dir, "picture.svg")); err != nil || string(svg) != r.Picture() {
				t.Errorf("the picture: %v, %d bytes", err, len(svg))
			}
			wantEmpty(t, tmp)
		})
	}
}

// wantEmpty fails if something is left in a directory.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// childrenOf returns the processes that a process has started.
func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil {
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return pids
}

func TestDemoFailover_LeavesNoProcessHoweverItEnds(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			cmd := reexec(t, []string{"TMPDIR=" + tmp}, "demo", "failover", "--every", "1s", "--clients", "1", "--kills", "30")
			out, err := os.Create(filepath.Join(t.TempDir(), "output"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var nodes []string
			await.Until(t, "the load has begun", func() bool {
				nodes = childrenOf(t, cmd.Process.Pid)
				shown, _ := os.ReadFile(out.Name())
				return len(nodes) == demo.Nodes && strings.Contains(string(shown), "every answer is checked")
			})
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			wantEnded(t, nodes)
			if signal == syscall.SIGINT {
				wantEmpty(t, tmp)
			}
		})
	}
}

// wantEnded waits until processes have ended.
func wantEnded(t *testing.T, pids []string) {
	t.Helper()
	for _, pid := range pids {
		await.Until(t, "node "+pid+" has ended", func() bool {
			b, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(b), ") Z ")
		})
	}
}

func TestDemoFailover_RefusesBadSettingsAndFiles(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--how melt --clients 0": `--clients 0: want 1 to 64; --how "melt": want kill, stop or drain`,
		"--replay " + bad:        "this is no result of isotone demo failover --json",
		"--replay /none":         "no such file",
	} {
		code, _, stderr := command(append([]string{"demo", "failover"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestDemoFailover_PictureOfTheREADMEIsThatOfItsRun: the committed picture is drawn from the committed
// run. go run ./cmd/isotone demo failover --replay docs/images/demo-failover.json --svg
// docs/images/demo-failover.svg draws it again.
func TestDemoFailover_PictureOfTheREADMEIsThatOfItsRun(t *testing.T) {
	const run, picture = "../../docs/images/demo-failover.json", "../../docs/images/demo-failover.svg"
	svg := filepath.Join(t.TempDir(), "picture.svg")
	code, out, stderr := command("demo", "failover", "--replay", run, "--svg", svg)
	if code != 0 || !strings.Contains(out, "✗") || !strings.Contains(out, "verdict    ok") {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	got, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not the picture of %s", picture, run)
	}
}

func TestDemo_SaysWhatIsWrongWithItsFlags(t *testing.T) {
	code, _, errs := command("demo", "failover", "--kills", "0", "--clients", "0")
	if want := "isotone: --clients 0: want 1 to "; code != 2 || !strings.HasPrefix(errs, want) || !strings.Contains(errs, "; --kills 0: want a --duration as well") {
		t.Errorf("exit code %d, %q; want 2, %q…", code, errs, want)
	}
}
