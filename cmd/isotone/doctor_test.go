package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
)

// TestDoctor_KnowsWhoseDataADirectoryHas, unless a node runs from it.
func TestDoctor_KnowsWhoseDataADirectoryHas(t *testing.T) {
	s := config.Default()
	s.DataDir, s.NodeID = t.TempDir(), 2
	data := func() (uint64, string) {
		l := describeMachine(&s).Settings
		return l.DataNode, l.DataError
	}
	if node, text := data(); node != 0 || text != "" {
		t.Errorf("an empty directory: %d, %s", node, text)
	}
	store, _, err := storage.Open(storage.Options{Dir: s.DataDir, NodeID: oracle.MemberID(1, 0), Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	if node, text := data(); node != 0 || text != "" {
		t.Errorf("while a node runs: %d, %s", node, text)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if node, text := data(); node != 1 || text != "" {
		t.Errorf("data of node 1: %d, %s", node, text)
	}
	if err := os.WriteFile(filepath.Join(s.DataDir, storage.FileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text := data(); !strings.Contains(text, "damaged") {
		t.Errorf("a damaged file: %q", text)
	}
}
