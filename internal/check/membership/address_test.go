//go:build linux

package membership_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestMembers_ShowAddressesOnRecord: a changed address is shown by every node, in every form,
// before its node is restarted. The node warns of its PEERS then, and only then.
func TestMembers_ShowAddressesOnRecord(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	moved := c.Node(3)
	const warning = "PEERS differs"
	port, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	clients, peers := fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+1)
	for _, n := range c.Nodes {
		n.Shutdown()
		n.Start()
		c.Settle()
		if strings.Contains(n.Log(), warning) {
			t.Errorf("node %d warns of its PEERS, which are right", n.ID)
		}
	}
	// shows waits until a command succeeds and prints all words.
	shows := func(words []string, args ...string) {
		t.Helper()
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			out, err := exec.Command(trial.Binary, args...).CombinedOutput()
			return err == nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(string(out), w) }),
				fmt.Sprintf("isotone %s: %v: %s", strings.Join(args, " "), err, out)
		})
	}
	shows(nil, "member", "update", "3", peers, clients, "--endpoint", strings.Join(c.Addrs(), ","))
	for _, n := range c.Nodes[:2] {
		for target, want := range map[string][]string{
			"/members": {fmt.Sprintf(`"peerAddr":"%s"`, peers), fmt.Sprintf(`"addr":"%s"`, clients)},
			"/state":   {fmt.Sprintf(`"peerAddr":"%s"`, peers), fmt.Sprintf(`"addr":"%s"`, clients)},
			"/":        {peers, clients}, // the dashboard as text
		} {
			await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
				body := string(trial.Get(t, n, target).Body)
				return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(body, w) }), fmt.Sprintf("node %d: %s: %s; want %v", n.ID, target, body, want)
			})
		}
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			return strings.Count(n.Log(), warning) == 1, fmt.Sprintf("node %d does not warn of its PEERS once", n.ID)
		})
	}
	moved.Shutdown()
	moved.HTTPAddr, moved.RaftAddr = clients, peers
	moved.Start()
	c.Settle()
	shows([]string{clients, peers, "3 of 3 members answer"}, "status", c.Node(1).HTTPAddr)
	shows([]string{clients, peers}, "member", "list", "--endpoint", c.Node(1).HTTPAddr)
}
