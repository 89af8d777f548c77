package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/server"
)

// A volume that is not mounted is an empty directory. With REQUIRE_DATA a node forms no cluster there.
func TestServe_WithRequireDataFormsNoClusterInAnEmptyDirectory(t *testing.T) {
	p := newProcess(t, 1)
	refused := func(when string) {
		t.Helper()
		code, _, text := command("serve", "--require-data", "--raft-addr", p.s.RaftAddr, "--data-dir", p.s.DataDir)
		if code != exitFailure || !strings.Contains(text, p.s.DataDir+" has no data") || !strings.Contains(text, "isotone init --data-dir "+p.s.DataDir) {
			t.Errorf("%s: exit code %d: %s", when, code, text)
		}
		if hasData, err := storage.HasData(p.s.DataDir); hasData || err != nil {
			t.Errorf("%s: data %v, %v", when, hasData, err)
		}
	}
	accepted := func(when string) {
		t.Helper()
		s := p.s
		s.RequireData = true
		if err := server.CheckData(&s); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("without a directory")
	if err := os.MkdirAll(p.s.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("with an empty directory")
	if code, out, text := command("init", "--data-dir", p.s.DataDir); code != 0 || !strings.Contains(out, "ready for the first start") {
		t.Fatalf("init: exit code %d: %s%s", code, out, text)
	}
	accepted("after init")
	p.start()
	p.ready()
	p.stop()
	accepted("with data")
	if code, out, text := command("init", "--data-dir", p.s.DataDir); code != 0 || !strings.Contains(out, "has data of a node already") {
		t.Errorf("init with data: exit code %d: %s%s", code, out, text)
	}
	if code, _, text := command("recover", "--force-new-cluster", "--yes", "--raft-addr", p.s.RaftAddr, "--data-dir", p.s.DataDir); code != 0 {
		t.Fatalf("recover: exit code %d: %s", code, text)
	}
	accepted("after recover")
	if err := os.Rename(p.s.DataDir, filepath.Join(t.TempDir(), "mounted")); err != nil {
		t.Fatal(err)
	}
	refused("after the data has gone")
}

// A node that joins may have an empty directory, because the cluster says whether it is a new one.
func TestCheckData_LetsNodesJoin(t *testing.T) {
	s := config.Default()
	s.DataDir, s.RequireData, s.Join = filepath.Join(t.TempDir(), "none"), true, []string{"localhost:1"}
	if err := server.CheckData(&s); err != nil {
		t.Error(err)
	}
	// With both, PEERS would form a cluster.
	s.PeersSRV = &config.SRV{Name: "isotone", Count: 3}
	if err := server.CheckData(&s); err != nil || s.PeersSRV != nil {
		t.Errorf("%+v, %v", s.PeersSRV, err)
	}
	s.PeersSRV = &config.SRV{Name: "isotone", Count: 3}
	if _, err := storage.PermitFirst(s.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := server.CheckData(&s); err != nil || s.PeersSRV == nil {
		t.Errorf("after init: %+v, %v", s.PeersSRV, err)
	}
}
