package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// reexec returns isotone as a command of its own, see TestMain, with env beside PATH as its
// environment. The test kills what has not ended.
func reexec(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append([]string{asCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	cmd.Dir = t.TempDir()
	return cmd
}
