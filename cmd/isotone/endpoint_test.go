package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

// TestEndpoint_IsTheSameForEveryCommand: a list, whose first address may be that of a node that is gone, or a socket.
func TestEndpoint_IsTheSameForEveryCommand(t *testing.T) {
	t.Parallel()
	all := startProcesses(t, 1)
	gone, node := closedAddr(t), all[0].s.AdvertiseAddr
	violations := filepath.Join(t.TempDir(), "v")
	for _, args := range []string{"member list", "timestamp", "bench --requests 20 --connections 2 --violations " + violations, "status", "doctor"} {
		code, out, err := command(append(strings.Fields(args), "--endpoint", gone+","+node)...)
		// The survey reports the node that is gone, and asks the other one.
		surveys := args == "status" || args == "doctor"
		if surveys && (code != 1 || !strings.Contains(out, gone) || !strings.Contains(out, "node 1") && !strings.Contains(out, "Node 1 leads")) || !surveys && code != 0 {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, err)
		}
	}
	for _, args := range []string{"member list", "timestamp", "status", "doctor", "ready"} {
		await.Done(t, await.Timeout, func() (bool, string) { // /state is a moment behind the node
			code, out, err := command(append(strings.Fields(args), "--endpoint", all[0].socketOf())...)
			wrong := code != 0 && args != "doctor" || strings.Contains(out+err, ".invalid") || !strings.Contains(out, "node 1") && args == "doctor"
			return !wrong, fmt.Sprintf("%s: exit code %d, %s%s", args, code, out, err)
		})
	}
	wantRun(t, 0, "Node 1 leads", "", "status", node, "--endpoint", node)
	wantRun(t, 1, all[0].socketOf()+"x", "", "doctor", "--endpoint", all[0].socketOf()+"x")
}

func TestEndpoint_OfOneNodeIsNoList(t *testing.T) {
	wantRun(t, 2, "", "--endpoint a:1,b:1: want one address, that of the node that drains", "drain", "--endpoint", "a:1,b:1")
	wantRun(t, 2, "", "--endpoint a:1,b:1: want one address, that of the node whose readiness", "ready", "--endpoint", "a:1", "--endpoint", "b:1")
	for _, command := range []string{"drain", "ready", "status", "bench", "doctor", "member list"} {
		wantRun(t, 2, "", "an address is empty", append(strings.Fields(command), "--endpoint", "")...)
	}
	wantRun(t, 2, "", `--endpoint "nonsense"`, "bench", "--endpoint", "nonsense")
}
