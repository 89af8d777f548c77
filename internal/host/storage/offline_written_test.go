package storage_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestDirectory_WrittenIsWhenTheNodeLastWrote, which is before the others may have gone on. A start in vain is no write.
func TestDirectory_WrittenIsWhenTheNodeLastWrote(t *testing.T) {
	path := t.TempDir()
	start := func() {
		t.Helper()
		store, _, err := storage.Open(storage.Options{Dir: path, NodeID: 1, Incarnation: 7})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	start()
	for at, want := range map[time.Duration]time.Duration{-time.Hour: -time.Hour, time.Hour: 0} {
		now := time.Now()
		when := now.Add(at)
		if err := os.Chtimes(filepath.Join(path, storage.FileName), when, when); err != nil {
			t.Fatal(err)
		}
		start()
		dir, err := storage.OpenDirectory(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := dir.Written(); err != nil || got.Sub(now.Add(want)).Abs() > time.Minute {
			t.Errorf("written %v from now: %v, %v", at, got, err)
		}
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	}
}
