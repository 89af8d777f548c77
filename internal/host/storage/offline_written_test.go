package storage_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestDirectory_WrittenIsWhenTheNodeLastWrote, which is before the others may have gone on.
func TestDirectory_WrittenIsWhenTheNodeLastWrote(t *testing.T) {
	path := t.TempDir()
	store, _, err := storage.Open(storage.Options{Dir: path, NodeID: 1, Incarnation: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	dir, err := storage.OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for at, want := range map[time.Duration]time.Duration{-time.Hour: -time.Hour, time.Hour: 0} {
		now := time.Now()
		when := now.Add(at)
		if err := os.Chtimes(filepath.Join(path, storage.FileName), when, when); err != nil {
			t.Fatal(err)
		}
		if got, err := dir.Written(); err != nil || got.Sub(now.Add(want)).Abs() > time.Minute {
			t.Errorf("written %v from now: %v, %v", at, got, err)
		}
	}
}
