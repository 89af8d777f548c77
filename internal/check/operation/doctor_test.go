//go:build linux

package operation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// diagnosis is the output of isotone doctor --json.
type diagnosis struct {
	Findings []struct{ Check, Subject, Status, Found, Do string }
	Problems int
	exit     int
	took     time.Duration
}

// consult runs isotone doctor in a directory with exactly these settings.
func consult(t *testing.T, dir string, env []string, args ...string) (d diagnosis) {
	t.Helper()
	cmd := exec.Command(trial.Binary, append([]string{"doctor", "--json"}, args...)...)
	cmd.Dir, cmd.Env = dir, env
	began := time.Now()
	out, err := cmd.Output()
	d.took = time.Since(began)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		d.exit = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &d); err != nil && d.exit < 2 {
		t.Fatalf("%v: %s", err, out)
	}
	return d
}

// of returns the findings of a check with one of the results.
func (d *diagnosis) of(check string, status ...string) (found []string) {
	for _, f := range d.Findings {
		if f.Check == check && slices.Contains(status, f.Status) {
			found = append(found, f.Subject+": "+f.Found)
		}
	}
	return found
}

// problems returns the problems, but for those of this machine: its disk may be slow while other
// tests run.
func (d *diagnosis) problems() (found []string) {
	for _, f := range d.Findings {
		if f.Status == "problem" && f.Check != "disk" && f.Check != "limits" {
			found = append(found, f.Subject+": "+f.Found)
		}
	}
	if (d.exit == 1) != (d.Problems > 0) || d.exit > 1 {
		found = append(found, fmt.Sprintf("%d problems, but exit code %d", d.Problems, d.exit))
	}
	return found
}

// settings are those of a node as in its environment.
func settings(c *chaos.Cluster, n *chaos.Node) []string {
	var peers []string
	for _, o := range c.Nodes {
		peers = append(peers, fmt.Sprintf("%d=%s", o.ID, o.RaftAddr))
	}
	_, port, _ := strings.Cut(n.HTTPAddr, ":")
	return []string{
		fmt.Sprintf("NODE_ID=%d", n.ID), "HTTP_HOST=127.0.0.1", "HTTP_PORT=" + port, "ADVERTISE_ADDR=" + n.HTTPAddr, "RAFT_ADDR=" + n.RaftAddr,
		"PEERS=" + strings.Join(peers, ","), "DATA_DIR=" + n.Dir, "THRIFT_PORT=0",
	}
}

// doctorEndsWithin bounds one run. A survey of two rounds, then one round of probes, takes 2 s each.
const doctorEndsWithin = chaos.ReadyTimeout

// TestDoctor follows a cluster from before its first start, beside a running node and from
// another machine, through the failures of a node.
func TestDoctor(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	n, dir := c.Node(2), t.TempDir()
	d := consult(t, dir, settings(c, n))
	if len(d.problems()) > 0 || len(d.of("port", "ok")) != 4 || len(d.of("peer", "warning")) != 2 || len(d.of("disk", "ok", "warning", "problem")) < 2 || len(d.of("ready", "ok", "problem")) != 0 {
		t.Errorf("before the first start: %+v", d)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were left: %v", files)
	}
	if _, err := os.Stat(n.Dir); err == nil {
		t.Error("the data directory was created")
	}

	c.Start()
	c.WaitReady()
	c.Settle()
	all := strings.Join(c.Addrs(), ",")
	// What it says depends on documents that are a second old, and on answers within 2 s, for which a busy machine needs
	// several attempts.
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		d = consult(t, dir, settings(c, n))
		return len(d.problems()) == 0 && len(d.of("peers", "warning", "problem")) == 0 && len(d.of("certificate", "ok")) == 8, fmt.Sprintf("beside a node: %+v", d)
	})
	if len(d.of("ready", "ok")) != 3 || len(d.of("port", "ok")) != 4 || len(d.of("connection", "ok")) != 1 || len(d.of("quorum", "ok")) != 1 {
		t.Errorf("beside a node: %+v", d)
	}
	before, err := os.ReadDir(n.Dir)
	if err != nil {
		t.Fatal(err)
	}
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		d = consult(t, dir, nil, "--endpoint", c.Node(1).HTTPAddr)
		return len(d.problems()) == 0 && len(d.of("ready", "ok")) == 3, fmt.Sprintf("from another machine: %+v", d)
	})
	if len(d.of("disk", "ok", "warning", "problem")) != 0 {
		t.Errorf("from another machine: %+v", d)
	}
	if after, _ := os.ReadDir(n.Dir); len(after) != len(before) {
		t.Errorf("%v in the data directory, before %v", after, before)
	}
	if hidden, _ := filepath.Glob(filepath.Join(n.Dir, ".isotone-doctor*")); len(hidden) > 0 {
		t.Errorf("left: %v", hidden)
	}

	n.Stop()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		d = consult(t, dir, settings(c, n), "--endpoint", all)
		if d.took > doctorEndsWithin {
			t.Fatalf("a frozen node: %+v", d)
		}
		return d.exit == 1 && len(d.of("ready", "problem")) == 1 && len(d.of("port", "problem")) > 0, fmt.Sprintf("a frozen node: %+v", d)
	})
	n.Cont()
	c.Settle()
	n.Kill()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		// The documents of the survivors are a second old as well, and not written at the same time.
		d = consult(t, dir, settings(c, n), "--endpoint", all)
		return len(d.of("quorum", "problem")) == 1 && len(d.of("connection", "problem")) == 0 && len(d.of("ready", "problem")) == 1, fmt.Sprintf("after kill -9: %+v", d)
	})
	if d.exit != 1 || len(d.of("port", "ok")) != 4 {
		t.Errorf("after kill -9: %+v", d)
	}

	if d = consult(t, dir, nil, "--endpoint", "127.0.0.1:1"); d.exit != 1 || len(d.of("cluster", "problem")) != 1 {
		t.Errorf("nobody there: %+v", d)
	}
	for _, args := range [][]string{{"--endpoint", "http://a/b"}, {"--http-port", "x"}, {"--ca", "/none"}, {"--unknown"}} {
		if d = consult(t, dir, nil, args...); d.exit != 2 {
			t.Errorf("%v: exit code %d, want 2", args, d.exit)
		}
	}
}

// TestDoctor_LeavesNothingBehindWhenInterrupted by Ctrl-C while it measures the disk.
func TestDoctor_LeavesNothingBehindWhenInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(trial.Binary, "doctor", "--data-dir", dir, "--http-port", "0", "--raft-addr", "localhost:0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(chaos.ReadyTimeout); ; {
		if files, _ := os.ReadDir(dir); len(files) > 0 || time.Now().After(deadline) {
			break
		}
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
}
