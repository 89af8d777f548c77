//go:build unix

package live_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/live"
)

// TestFile_PipeDoesNotHang has what would hold an ordinary open until somebody writes.
func TestFile_PipeDoesNotHang(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	var log lines
	open(t, live.Config{Sources: parse(t, "doc=file:"+path), Log: log.logger()})
	await.Until(t, "the pipe to be refused", func() bool { return log.count("not a regular file but a pipe") == 1 })
}
