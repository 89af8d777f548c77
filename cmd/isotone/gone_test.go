package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestServe_FormsNoClusterWhereDataWas, whether or not data is required; a backup may be restored there.
func TestServe_FormsNoClusterWhereDataWas(t *testing.T) {
	dir := t.TempDir()
	spare := storage.FileName + ".spare"
	if err := os.WriteFile(filepath.Join(dir, spare), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--data-dir", dir, "--http-port", "0", "--raft-addr", "127.0.0.1:0", "--thrift-port", "0"}
	wantRun(t, 1, "", spare+", so a node ran there, and its data file "+storage.FileName+" is gone", serve...)
	wantRun(t, 1, "", "is gone", "init", "--data-dir", dir)
	if hasData, err := storage.HasData(dir); hasData || err != nil {
		t.Errorf("%v, %v", hasData, err)
	}
	restored(t, dir, prepareBackup(t, time.Now(), time.Now()))
	serve = append(serve, "--node-id", "2", "--peers", "2=127.0.0.1:1")
	wantRun(t, 1, "", "was restored for node 1", serve...) // which it looks for first
}
