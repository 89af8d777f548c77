package storage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/storage"
)

func TestStore_AFailedSaveIsFinal(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	var fault error
	calls := 0
	o.BeforeCommit = func() error { calls++; return fault }
	s, first := open(t, o)
	save(t, s, storage.Write{Entries: entries(1, 3, 1)})
	calls = 0
	fault = errors.New("disk on fire")
	failed := s.Save(storage.Write{Entries: entries(4, 5, 1), HardState: hardState(1, 1, 4)})
	if !errors.Is(failed, storage.ErrFailed) || !errors.Is(failed, fault) {
		t.Fatalf("Save: %v", failed)
	}
	fault = nil
	before := readFile(t, dir)
	for range 3 {
		if err := s.Save(storage.Write{Entries: entries(4, 4, 1)}); err != failed { //nolint:errorlint // the very same error
			t.Fatalf("Save after a failure: %v, want %v", err, failed)
		}
	}
	if err := s.Save(); err != failed { //nolint:errorlint // the very same error
		t.Fatalf("empty Save after a failure: %v", err)
	}
	if calls != 1 || !bytes.Equal(before, readFile(t, dir)) {
		t.Fatalf("a failed store went on writing (%d transactions)", calls)
	}
	_, r := reopen(t, s, dir)
	first.Entries = entries(1, 3, 1)
	wantSame(t, r, first)
}

func TestStore_OpenFailsIfTheBootCannotBeCounted(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	closeStore(t, s)
	o := options(dir)
	o.BeforeCommit = func() error { return errors.New("disk full") }
	if _, _, err := storage.Open(o); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("Open: %v", err)
	}
	_, r := open(t, options(dir))
	if r.Identity.Boot != 2 {
		t.Fatalf("boot %d after a failed boot, want 2", r.Identity.Boot)
	}
}

func TestStore_SurvivesItsFileBeingTruncatedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 300, 1)})
	if err := os.Truncate(filepath.Join(dir, storage.FileName), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(storage.Write{Entries: entries(100, 101, 2)}); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("Save to a truncated file: %v", err)
	}
	closeStore(t, s) // must not hang
	wantCorrupt(t, dir)
}

func TestStore_RefusesSaveAfterClose(t *testing.T) {
	s, _ := open(t, options(t.TempDir()))
	closeStore(t, s)
	closeStore(t, s)
	if err := s.Save(storage.Write{ClusterID: 1}); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("Save after Close: %v", err)
	}
}

func TestStore_RefusesADirectoryOfAnotherNode(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	closeStore(t, s)
	o := options(dir)
	o.NodeID = 8
	_, _, err := storage.Open(o)
	id, ok := errors.AsType[*storage.IdentityError](err)
	if !ok || *id != (storage.IdentityError{Dir: dir, Have: testNode, Want: 8}) {
		t.Fatalf("Open: %v", err)
	}
	_, r := open(t, options(dir))
	if r.Identity.Boot != 2 {
		t.Fatalf("a refused Open counted as a boot: %+v", r.Identity)
	}
}

func TestStore_RefusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	start := time.Now()
	_, _, err := storage.Open(options(dir))
	if !errors.Is(err, storage.ErrInUse) || !strings.Contains(err.Error(), "data directory "+dir+" is in use by another process") {
		t.Fatalf("Open: %v", err)
	}
	if waited := time.Since(start); waited > 5*time.Second {
		t.Fatalf("Open waited %v", waited)
	}
	save(t, s, storage.Write{ClusterID: 1}) // unharmed
}

// TestStore_RefusesADirectoryInUseWithoutItsLockFile: an operator may have deleted it.
func TestStore_RefusesADirectoryInUseWithoutItsLockFile(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	for index := range uint64(2) {
		if err := os.Remove(filepath.Join(dir, "isotone.lock")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := storage.Open(options(dir)); !errors.Is(err, storage.ErrInUse) {
			t.Fatalf("Open: %v", err)
		}
		save(t, s, storage.Write{Snapshot: snapshot(9+index, 2, strings.Repeat("h", 5<<20))}) // in a new file
	}
}

func TestStore_RefusesBadOptions(t *testing.T) {
	for name, change := range map[string]func(*storage.Options){
		"no directory":   func(o *storage.Options) { o.Dir = "" },
		"no node id":     func(o *storage.Options) { o.NodeID = 0 },
		"no incarnation": func(o *storage.Options) { o.Incarnation = 0 },
	} {
		o := options(t.TempDir())
		change(&o)
		if s, _, err := storage.Open(o); err == nil {
			_ = s.Close()
			t.Errorf("%s: Open succeeded", name)
		}
	}
}
