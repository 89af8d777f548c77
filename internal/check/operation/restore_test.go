//go:build linux

package operation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// fileSteps are those of internal/host/backup.Write.
var fileSteps = []string{"created", "begun", "written", "synced", "renamed"}

// runOn runs a subcommand with the settings of a node. It is killed after the step stop, or
// not at all if that is empty. The exit code is -1 if it was killed.
func runOn(t *testing.T, n *chaos.Node, stop string, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chaos.ReadyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, trial.Binary, args...)
	peers := fmt.Sprintf("%d=%s", n.ID, n.RaftAddr)
	if v, ok := n.Env["PEERS"]; ok {
		peers = v
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), fmt.Sprintf("NODE_ID=%d", n.ID), "RAFT_ADDR=" + n.RaftAddr, "PEERS=" + peers, "DATA_DIR=" + n.Dir, "ISOTONE_FAULT_STOP=" + stop}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func must(t *testing.T, n *chaos.Node, args ...string) string {
	t.Helper()
	code, out := runOn(t, n, "", args...)
	if code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, out)
	}
	return out
}

// mustFail wants a command to fail with an error that has these words.
func mustFail(t *testing.T, n *chaos.Node, args []string, words ...string) {
	t.Helper()
	code, out := runOn(t, n, "", args...)
	if code <= 0 {
		t.Errorf("%q: exit code %d: %s", args, code, out)
	}
	trial.WantWords(t, out, words...)
}

// restoring gives all nodes of a cluster their PEERS.
func restoring(c *chaos.Cluster) *chaos.Cluster {
	for _, n := range c.Nodes {
		n.Env["PEERS"] = trial.PeersOf(c.Nodes)
	}
	return c
}

// backUp makes a backup of a running cluster.
func backUp(t *testing.T, c *chaos.Cluster) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.backup")
	must(t, c.Node(1), "backup", "--endpoint", strings.Join(c.Addrs(), ","), path)
	return path
}

// loseDisks kills all nodes and deletes their directories.
func loseDisks(t *testing.T, nodes []*chaos.Node) {
	t.Helper()
	for _, n := range nodes {
		if !n.Exited() {
			n.Kill()
		}
		if err := os.RemoveAll(n.Dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestore_NothingGoesBack loses all disks under load. One load goes on all the time, and
// so do two clients that make ids by leases of the lost cluster, one of which the backup does
// not know.
func TestRestore_NothingGoesBack(t *testing.T) {
	t.Parallel()
	c := restoring(chaos.NewCluster(t, trial.Options()))
	c.Start()
	c.WaitReady()
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 5 * time.Millisecond})
	log := &idLog{ids: map[int64]string{}}
	log.generate(t, c, "a client from before")
	load.WaitAnswer(t)
	path, was := backUp(t, c), trial.ClusterOf(t, c.Node(1))
	log.generate(t, c, "a client from after")
	until := trial.Highest(t, c).Time + uint64(2*time.Second)
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) { return trial.Highest(t, c).Time > until, "time stands still" })
	log.nodeIDs(t, c)
	last := trial.Highest(t, c)

	loseDisks(t, c.Nodes)
	log.mu.Lock()
	largest := log.largest
	log.mu.Unlock()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		own := n.Dir + ".backup" // of its machine; a note of another node beside it would count, too
		if err := os.WriteFile(own, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, n, "restore", own, "--margin", "2s", "--yes")
		trial.WantWords(t, must(t, n, "restore", own, "--margin", "1s", "--yes", "--json"), `"ofCluster":"`+was+`"`) // the second one counts
		n.Start()
	}
	if first := trial.FromLeader(t, c, 1).First; !last.Before(first) {
		t.Errorf("I13: the restored cluster begins with %v after %v", first, last)
	}
	load.WaitAnswer(t)
	refusedLease(t, c)
	c.WaitReady() // the nodes make ids again
	if is := trial.ClusterOf(t, c.Node(1)); is == was {
		t.Errorf("I10: the restored cluster has the ID of the lost one, %s", is)
	}
	if first := log.nodeIDs(t, c); first <= largest {
		t.Errorf("I13: a node makes the ID %d, and a client had seen %d", first, largest)
	}
	for _, n := range c.Nodes {
		if _, err := os.Stat(filepath.Join(n.Dir, "isotone.seed")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the seed of node %d is still there: %v", n.ID, err)
		}
	}
	c.Kill()
	c.Start()
	c.WaitReady()
	load.WaitAnswer(t)
	load.End(t, 100, 0)
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, fault := range log.faults {
		t.Error(fault)
	}
}

func TestRestore_FoundersNeedTheSameBackup(t *testing.T) {
	t.Parallel()
	c := restoring(chaos.StartCluster(t, trial.Options()))
	one, two := backUp(t, c), backUp(t, c)
	for _, nodes := range []struct {
		name    string
		backups [3]string
	}{{"one has none", [3]string{one, one, ""}}, {"one has another", [3]string{one, two, two}}} {
		loseDisks(t, c.Nodes)
		for i, n := range c.Nodes {
			if path := nodes.backups[i]; path != "" {
				must(t, n, "restore", path, "--yes")
			}
		}
		wantRefusedSome(t, c.Nodes, "other_peers", "same backup")
	}
}

// wantRefusedSome starts nodes that must not form a cluster: at least one stops, and none
// serves.
func wantRefusedSome(t *testing.T, nodes []*chaos.Node, words ...string) {
	t.Helper()
	for _, n := range nodes {
		n.Start()
		n.ExpectExit()
	}
	stopped := 0
	await.Done(t, chaos.ExitTimeout, func() (bool, string) {
		stopped = 0
		for _, n := range nodes {
			if a, err := chaos.Get(n.HTTPAddr, "/timestamp", time.Second); err == nil && a.Status == 200 {
				t.Fatalf("I10: node %d serves", n.ID)
			}
			if n.Exited() {
				stopped++
			}
		}
		return stopped >= 2, fmt.Sprintf("%d nodes have stopped", stopped)
	})
	for _, n := range nodes {
		if n.Exited() {
			trial.WantWords(t, n.Log(), words...)
		}
	}
}

// TestBackup_KilledAtAnyStepLeavesAWholeFileOrNone kills the command after each step.
func TestBackup_KilledAtAnyStepLeavesAWholeFileOrNone(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, chaos.Options{Binary: trial.Binary, Nodes: 1})
	n := c.Node(1)
	dir := t.TempDir()
	for _, step := range fileSteps {
		path := filepath.Join(dir, step)
		if code, out := runOn(t, n, step, "backup", "--endpoint", n.HTTPAddr, path); code != -1 {
			t.Fatalf("after %q it was not killed: %d %s", step, code, out)
		}
		if _, err := os.Stat(path); (err == nil) != (step == "renamed") {
			t.Errorf("killed after %q: %v", step, err)
		}
	}
	path := filepath.Join(dir, "renamed")
	mustFail(t, n, []string{"backup", "--endpoint", n.HTTPAddr, path}, "exists already", "--force")
	must(t, n, "backup", "--endpoint", n.HTTPAddr, "--force", path)
	mustFail(t, n, []string{"backup", "--data-dir", n.Dir, path + "2"}, "in use", "stop the node")
	mustFail(t, n, []string{"restore", path, "--yes"}, "has data of a node")
	n.Dir = filepath.Join(dir, "new")
	refusesDamage(t, n, path)
}

// refusesDamage wants damaged and truncated backups to be refused, and the directory to stay
// as it was.
func refusesDamage(t *testing.T, n *chaos.Node, path string) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := path + ".bad"
	for name, tc := range map[string]struct {
		content []byte
		words   string
	}{
		"empty":     {nil, "truncated"},
		"truncated": {whole[:len(whole)-20], "truncated"},
		"changed":   {bytes.Replace(whole, []byte(`"ceiling": "1`), []byte(`"ceiling": "2`), 1), "checksum"},
		"newer":     {bytes.Replace(whole, []byte(`"format": 1`), []byte(`"format": 7`), 1), "format 7"},
	} {
		if err := os.WriteFile(bad, tc.content, 0o600); err != nil {
			t.Fatal(err)
		}
		mustFail(t, n, []string{"restore", bad, "--yes"}, bad, tc.words)
		if _, err := os.Stat(n.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the data directory was made: %v", name, err)
		}
	}
}

// TestRestore_KilledAtAnyStepIsDoneOrRefused kills the restoration after each step, and starts
// the node, which must not form a cluster without the backup.
func TestRestore_KilledAtAnyStepIsDoneOrRefused(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, chaos.Options{Binary: trial.Binary, Nodes: 1})
	n := c.Node(1)
	n.Env["PEERS"] = "1=" + n.RaftAddr
	path := backUp(t, c)
	for _, step := range fileSteps {
		last := trial.Highest(t, c)
		loseDisks(t, c.Nodes)
		if code, out := runOn(t, n, step, "restore", path, "--margin", "3s", "--yes"); code != -1 {
			t.Fatalf("after %q it was not killed: %d %s", step, code, out)
		}
		if step != "renamed" {
			n.Start()
			n.ExpectExit()
			if code := n.WaitExit(chaos.ExitTimeout); code != 1 {
				t.Errorf("killed after %q, and the node exits with %d", step, code)
			}
			trial.WantWords(t, n.Log(), "was interrupted", "run it again")
			must(t, n, "restore", path, "--margin", "3s", "--yes")
		}
		n.Start()
		if first := trial.FromLeader(t, c, 1).First; !last.Before(first) {
			t.Errorf("I13: killed after %q and restored: %v after %v", step, first, last)
		}
	}
}

// TestRecover_KilledAtAnyStepCanBeRunAgain makes a cluster of the one node that is left. Killed
// after any step, the directory is the old one or can be finished.
func TestRecover_KilledAtAnyStepCanBeRunAgain(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 5 * time.Millisecond})
	load.WaitAnswer(t)
	was, n := trial.ClusterOf(t, c.Node(1)), c.Node(2)
	n.Env["PEERS"] = "2=" + n.RaftAddr
	run := []string{"recover", "--force-new-cluster", "--margin", "3s", "--yes"}
	mustFail(t, n, run, "in use", "stop the node")
	for _, o := range c.Nodes {
		o.Kill()
	}
	loseDisks(t, c.Others(n))
	saved := filepath.Join(t.TempDir(), "saved")
	if err := chaos.CopyDir(saved, n.Dir); err != nil {
		t.Fatal(err)
	}
	mustFail(t, n, run[:1], "--force-new-cluster")
	for _, step := range append(fileSteps, "seeded", "aside") {
		if err := os.RemoveAll(n.Dir); err != nil {
			t.Fatal(err)
		}
		if err := chaos.CopyDir(n.Dir, saved); err != nil {
			t.Fatal(err)
		}
		if code, out := runOn(t, n, step, run...); code != -1 {
			t.Fatalf("after %q it was not killed: %d %s", step, code, out)
		}
		if step == "seeded" || step == "begun" {
			goesOn(t, n, was)
		}
		var s struct{ OfCluster, SetAside string }
		if err := json.Unmarshal([]byte(must(t, n, append(run, "--json")...)), &s); err != nil || s.OfCluster != was {
			t.Errorf("%+v, %v", s, err)
		}
		if old, err := os.Stat(filepath.Join(n.Dir, "isotone.db.before-recovery-1")); err != nil || old.Size() == 0 {
			t.Errorf("killed after %q: the old data is lost: %v", step, err)
		}
	}
	n.Start()
	n.WaitReady(chaos.ReadyTimeout)
	load.WaitAnswer(t) // it checks the order
	if is := trial.ClusterOf(t, n); is == was {
		t.Errorf("I10: the new cluster has the ID of the old one, %s", is)
	}
	load.End(t, 100, 0)
}

// TestRecover_OfAStaleDiskNeverGoesBack loses all disks but the copy of one that stopped long before, and is started once more,
// in vain. The time of the cluster is held far ahead of the clocks by a floor, and clients use it up as fast as it may pass: what
// the copy says is not enough, and the clock is no help.
func TestRecover_OfAStaleDiskNeverGoesBack(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	leader := c.WaitLeader()
	n, was := c.Others(leader)[0], trial.ClusterOf(t, leader)
	floor := time.Now().Add(time.Hour)
	must(t, n, "floor", "raise", fmt.Sprint(floor.UnixNano()), "--yes", "--endpoint", leader.HTTPAddr)
	trial.WaitMetric(t, n, "isotone_ceiling_lead_seconds", func(lead float64) bool { return lead > 50*60 })
	n.Shutdown()
	stale := filepath.Join(t.TempDir(), "stale")
	if err := chaos.CopyDir(stale, n.Dir); err != nil {
		t.Fatal(err)
	}
	last := useUp(t, c, isotone.Timestamp{Time: trial.Highest(t, c).Time + uint64(3*time.Second)})

	loseDisks(t, c.Nodes)
	if err := chaos.CopyDir(n.Dir, stale); err != nil {
		t.Fatal(err)
	}
	goesOn(t, n, was)
	n.Env["PEERS"] = fmt.Sprintf("%d=%s", n.ID, n.RaftAddr)
	must(t, n, "recover", "--force-new-cluster", "--margin", "1s", "--yes")
	n.Start()
	if first := trial.FromLeader(t, c, 1).First; !last.Before(first) {
		t.Errorf("I13: the recovered cluster begins with %v after %v", first, last)
	}
}

// useUp has clients take 64-bit timestamps, which use up time, until they have passed a timestamp. It returns the last one.
func useUp(t *testing.T, c *chaos.Cluster, until isotone.Timestamp) (last isotone.Timestamp) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*chaos.ReadyTimeout)
	defer cancel()
	cl, err := client.NewWith(ctx, client.Options{Addrs: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var work sync.WaitGroup
	var mu sync.Mutex
	for range 16 {
		work.Go(func() {
			for passed := false; !passed; {
				r, err := cl.Timestamps64(ctx, isotone.Range64CountMax)
				if err != nil {
					t.Error(err)
					return
				}
				of := r.Last().Timestamp()
				mu.Lock()
				if last.Before(of) {
					last = of
				}
				passed = until.Before(last)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return last
}

// goesOn starts a node that is left alone, perhaps one whose recovery was killed before its data was set aside: it is
// still the member that it was, and without the others it does not serve.
func goesOn(t *testing.T, n *chaos.Node, cluster string) {
	t.Helper()
	n.Start()
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		a, err := chaos.Get(n.HTTPAddr, "/members", trial.AnswerTimeout)
		return err == nil && strings.Contains(string(a.Body), cluster), fmt.Sprintf("%v %v", a, err)
	})
	if a := trial.Get(t, n, "/timestamp"); a.Status == 200 || a.Code() != isotone.CodeNoLeader {
		t.Errorf("it answers %d %s", a.Status, a.Body)
	}
	n.Kill()
}
