//go:build linux

package strace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

// TestDenied_EndsThoughStraceLeavesAProcess that holds its output, as it does if it is interrupted before it attaches.
func TestDenied_EndsThoughStraceLeavesAProcess(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nsleep 1000 &\necho $! >" + filepath.Join(dir, "pid") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "strace"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ended := make(chan string, 1)
	go func() { ended <- denied() }()
	if why := await.Receive(t, "the end of the try", ended); why != "" {
		t.Error(why)
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the end of what strace has left behind", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
