package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/strace"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// holds returns what reports whether a process has a file open as number 9, by which it is known here.
func holds(path string) func() bool {
	return func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/fd/9")
		for _, file := range files {
			if name, err := os.Readlink(file); err == nil && name == path {
				return true
			}
		}
		return false
	}
}

// TestNode_LeavesNothingBehind that it has started, also if its own process ends first.
func TestNode_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	n := &node{name: "a node", log: filepath.Join(dir, "log"), prefix: same}
	n.command.Command = driver.Command{Command: []string{"sh", "-c", `sleep 1000 9>"$0" & while [ ! -e "$0" ]; do sleep 0.01; done; exit 1`, held}}
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the end of the first process", n.process.Exited)
	if !holds(held)() {
		t.Fatal("it has started no other process")
	}
	if err := n.kill(); err != nil {
		t.Error(err)
	}
	await.Until(t, "the end of the other", func() bool { return !holds(held)() })
}

// TestPrepare_LeavesNothingBehind of a command that is interrupted.
func TestPrepare_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	n := &nodes{dir: dir}
	go func() {
		done <- n.prepare(ctx, []driver.Command{{Command: []string{"sh", "-c", `sleep 1000 9>"$0" & wait`, held}}})
	}()
	await.Until(t, "the process of the command", holds(held))
	cancel()
	if err := await.Receive(t, "the end of the preparation", done); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	await.Until(t, "its end", func() bool { return !holds(held)() })
}

// sleeper starts a node that does nothing.
func sleeper(t *testing.T, dir string) *node {
	n := &node{name: "a node", log: filepath.Join(dir, "log"), prefix: same}
	n.command.Command = driver.Command{Command: []string{"sleep", "1000"}}
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.kill() })
	return n
}

// TestDisturbDisk_LeavesNothingBehind of a strace that ends before it attaches.
func TestDisturbDisk_LeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	script := "#!/bin/sh\nsleep 1000 9>" + held + " &\nwhile [ ! -e " + held + " ]; do sleep 0.01; done\n"
	if err := os.WriteFile(filepath.Join(dir, "strace"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	nodes := &nodes{dir: dir}
	end, err := nodes.disturbDisk(sleeper(t, dir), SlowDisk)
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the process of strace", holds(held))
	if err := end(); err != nil {
		t.Error(err)
	}
	await.Until(t, "its end", func() bool { return !holds(held)() })
}

// traced reports whether a debugger has attached to a process.
func traced(p *child.Process) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	return err == nil && !strings.Contains(string(status), "\nTracerPid:\t0\n")
}

// TestDisturbDisk_HasBegunWhenItReturns: on a busy machine strace takes as long as a short fault lasts.
func TestDisturbDisk_HasBegunWhenItReturns(t *testing.T) {
	t.Parallel()
	if why := strace.Denied(); why != "" {
		t.Skip(why)
	}
	dir := t.TempDir()
	nodes, victim := &nodes{dir: dir}, sleeper(t, dir)
	end, err := nodes.disturbDisk(victim, SlowDisk)
	if err != nil {
		t.Fatal(err)
	}
	if !traced(victim.process) {
		t.Error("strace has not attached")
	}
	if err := end(); err != nil || traced(victim.process) {
		t.Errorf("%v, attached %v, want neither", err, traced(victim.process))
	}
}
