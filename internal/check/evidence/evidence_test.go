package evidence_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/isotone/isotone/internal/check/evidence"
)

//go:generate go test -run ^TestPage_IsCurrent$ -update .

var update = flag.Bool("update", false, "write the totals into "+evidence.Page)

const root = "../../.."

// TestPage_IsCurrent: the totals are those of the ledger, for the core as it is.
func TestPage_IsCurrent(t *testing.T) {
	if *update {
		if err := evidence.UpdatePage(root); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, want, err := evidence.UpdatedPage(root); err != nil || have != want {
		t.Errorf("the totals in %s are out of date: run go generate ./internal/check/evidence (%v)", evidence.Page, err)
	}
}

func TestLedgers_CanBeRead(t *testing.T) {
	if err := evidence.CheckStorms(root); err != nil {
		t.Error(err)
	}
	if _, err := evidence.ReadFlakes(root); err != nil {
		t.Error(err)
	}
	list, err := evidence.ReadFuzz(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if _, err := os.Stat(filepath.Join(root, f.Package)); err != nil {
			t.Errorf("fuzz.csv names %s: %v", f.Package, err)
		}
	}
}

// TestCore_ChangesWithTheCode that simulations run, and with nothing else.
func TestCore_ChangesWithTheCode(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	core := func() string {
		t.Helper()
		c, err := evidence.Core(dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write("go.mod", "require go.etcd.io/raft/v3 v3.6.0\n")
	write("a.go", "package a")
	write("snowflake/a.go", "package snowflake")
	write("internal/core/sim/a.go", "package sim")
	was := core()
	write("a.go", "// Package a has a comment now.\npackage a // and another one\n")
	if now := core(); now != was {
		t.Error("a comment has changed it")
	}
	write("a.go", "//go:build linux\n\npackage a\n")
	if now := core(); now == was {
		t.Error("a directive has not changed it")
	}
	write("a.go", "package a")
	for name, changes := range map[string]bool{
		"internal/core/sim/b.go": true, "internal/core/sim/deep/b.go": true, "b.go": true, "snowflake/b.go": true,
		"internal/core/sim/a_test.go": false, "internal/node/a.go": false, "client/a.go": false, "docs/a.md": false,
	} {
		write(name, "package b")
		now := core()
		if (now != was) != changes {
			t.Errorf("%s: changed %t, want %t", name, now != was, changes)
		}
		was = now
	}
	write("go.mod", "require go.etcd.io/raft/v3 v3.7.0\n")
	if core() == was {
		t.Error("another version of the Raft library")
	}
}
