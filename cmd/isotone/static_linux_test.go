package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
)

// The binary that docs/start.md and the Makefile build needs no file: it runs in a directory that
// holds nothing else. No test can break it from inside.
func TestStatic_RunsInAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the binary and starts processes")
	}
	root := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(root, "isotone"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if binary, err := os.ReadFile(filepath.Join(root, "isotone")); err != nil || !bytes.Contains(binary, []byte("isotone/internal/node.")) {
		t.Fatalf("the names of functions are not in the binary: %v", err)
	} else if bytes.Contains(binary, []byte("ISOTONE_FAULT")) || bytes.Contains(binary, []byte("isotone/internal/host/faults.")) || bytes.Contains(binary, []byte("isotone/internal/host/stops.")) {
		t.Error("a release has the faults of tests")
	}
	inside := func(env []string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.Command("/isotone", args...)
		cmd.Dir, cmd.Env = "/", append([]string{}, env...) // nothing from outside
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Pdeathsig: syscall.SIGKILL}
		return cmd, &out
	}
	cmd, out := inside(nil, "version")
	if err := cmd.Run(); errors.Is(err, syscall.EPERM) {
		t.Skipf("chroot is not permitted here: %v", err)
	} else if err != nil || !strings.HasPrefix(out.String(), "isotone "+version) {
		t.Fatalf("isotone version: %v\n%s", err, out)
	}

	port, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	// The name localhost, which is the default, has nothing there that resolves it.
	cmd, out = inside([]string{fmt.Sprint("HTTP_PORT=", port), fmt.Sprint("RAFT_ADDR=localhost:", port+1), "THRIFT_PORT=0"}, "serve")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	up := func() bool {
		a, err := chaos.Get(fmt.Sprint("127.0.0.1:", port), "/up", time.Second)
		return err == nil && a.Status == 200 && string(a.Body) == "ok"
	}
	await.Until(t, "/up is answered", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("isotone serve: %v\n%s", err, out)
		default:
		}
		return up()
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("isotone serve: %v\n%s", err, out)
	}
}
