package storage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

func TestFirst_IsPermittedForOneStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	permitted := func(want bool, when string) {
		t.Helper()
		if got, err := storage.FirstPermitted(dir); got != want || err != nil {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	permitted(false, "without a directory")
	for range 2 {
		if hasData, err := storage.PermitFirst(dir); hasData || err != nil {
			t.Fatalf("%v, %v", hasData, err)
		}
		permitted(true, "permitted")
	}
	s, _, err := storage.Open(storage.Options{Dir: dir, NodeID: 1, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	permitted(false, "after a start")
	if hasData, err := storage.PermitFirst(dir); !hasData || err != nil {
		t.Errorf("with data: %v, %v", hasData, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	permitted(false, "with data")
	if err := os.Remove(filepath.Join(dir, storage.FileName)); err != nil {
		t.Fatal(err)
	}
	permitted(false, "after the data was lost")
}
