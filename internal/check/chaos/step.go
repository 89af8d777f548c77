//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/await"
)

// stepFile names the step at which a node has to stop; see stops.Steps. All nodes of a cluster
// with [Options.FaultSteps] share it.
func (c *Cluster) stepFile() string { return filepath.Join(c.Dir, "step") }

// StopAt has the first node that reaches a step stop itself. who is the ID of a node, "leader",
// or "any". One step at a time is waited for.
func (c *Cluster) StopAt(who, step string) {
	c.t.Helper()
	if err := replaceFile(c.stepFile(), []byte(who+" "+step)); err != nil {
		c.t.Fatal(err)
	}
}

// WaitStopped waits until a node has stopped at the step of [Cluster.StopAt], and returns it: frozen,
// until Cont or Kill. It returns nil after the timeout; then no node will stop any more.
func (c *Cluster) WaitStopped(timeout time.Duration) *Node {
	c.t.Helper()
	path := c.stepFile()
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		found, err := filepath.Glob(path + ".*")
		if err != nil {
			c.t.Fatal(err)
		}
		if len(found) > 0 {
			return c.stopped(found[0])
		}
		if time.Now().After(deadline) {
			err := os.Remove(path)
			if err == nil {
				return nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				c.t.Fatal(err)
			}
			// A node was faster than this timeout.
			deadline = deadline.Add(stopTimeout)
		}
	}
}

// stopped waits until none of the threads runs of the node that has left its mark.
func (c *Cluster) stopped(mark string) *Node {
	c.t.Helper()
	if err := os.Remove(mark); err != nil {
		c.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(mark), "."))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range append(slices.Clone(c.Nodes), c.former...) {
		if n.Exited() || n.proc.PID() != pid {
			continue
		}
		await.Done(c.t, stopTimeout, func() (bool, string) {
			return n.proc.frozen(), fmt.Sprintf("node %d does not stop", n.ID)
		})
		n.frozen = true
		return n
	}
	c.t.Fatalf("process %d has stopped, which is no node that runs", pid)
	return nil
}
