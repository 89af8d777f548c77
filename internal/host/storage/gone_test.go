package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

func TestCheckNew_KnowsADirectoryWhoseDataIsGone(t *testing.T) {
	for _, name := range []string{spareName, storage.FileName + ".before-recovery-3"} {
		dir := t.TempDir()
		if err := storage.CheckNew(dir); err != nil {
			t.Errorf("an empty directory: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"CheckNew": storage.CheckNew(dir), "PermitFirst": second(storage.PermitFirst(dir))} {
			if err == nil || !strings.Contains(err.Error(), name+",") || !strings.Contains(err.Error(), "data file "+storage.FileName+" is gone") {
				t.Errorf("%s with %s: %v", what, name, err)
			}
		}
		writeFile(t, dir, nil)
		if err := storage.CheckNew(dir); err != nil {
			t.Errorf("with a data file: %v", err)
		}
	}
	if err := storage.CheckNew(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("no directory: %v", err)
	}
}

func second(_ bool, err error) error { return err }

// TestStore_RefusesALinkToItsDataFile: the first exchange of names would put a file in its place.
func TestStore_RefusesALinkToItsDataFile(t *testing.T) {
	other, dir := t.TempDir(), t.TempDir()
	s, _, err := storage.Open(options(other))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, storage.FileName)
	if err := os.Symlink(filepath.Join(other, storage.FileName), path); err != nil {
		t.Fatal(err)
	}
	_, _, err = storage.Open(options(dir))
	_, inspected := storage.Inspect(dir)
	for _, err := range []error{err, inspected, second(storage.HasData(dir))} {
		if err == nil || !strings.Contains(err.Error(), path+" is a symbolic link") || !strings.Contains(err.Error(), "DATA_DIR") {
			t.Errorf("%v", err)
		}
	}
}
