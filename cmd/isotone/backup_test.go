package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestBackup_ForcedReplacesWhatALinkLeadsTo, and leaves the link.
func TestBackup_ForcedReplacesWhatALinkLeadsTo(t *testing.T) {
	b, err := os.ReadFile(prepareBackup(t, time.Now(), time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	cluster := serveScript(t, func(w http.ResponseWriter) { _, _ = w.Write(b) })
	dir := t.TempDir()
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	for name, to := range map[string]string{link: "file", dangling: "none"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRun(t, exitUsage, "", "exists already", "backup", link, "--endpoint", cluster.addr())
	wantRun(t, 0, "wrote "+link, "", "backup", link, "--endpoint", cluster.addr(), "--force")
	if got, err := os.ReadFile(file); !bytes.Equal(got, b) || err != nil {
		t.Errorf("the file has %.20q, %v", got, err)
	}
	for _, name := range []string{link, dangling} {
		if name == dangling {
			wantRun(t, exitFailure, "", "name another file", "backup", name, "--endpoint", cluster.addr(), "--force")
		}
		if info, err := os.Lstat(name); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", name, err)
		}
	}
	wantRun(t, exitFailure, "", "not a regular file", "backup", dir, "--endpoint", cluster.addr(), "--force")
}
