package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/backup"
)

// TestRestore_FindsTheNotesUnderEveryName of the backup: a symbolic link to it, and a copy beside it.
func TestRestore_FindsTheNotesUnderEveryName(t *testing.T) {
	path := prepareBackup(t, time.Now(), time.Now())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	link, duplicate := filepath.Join(t.TempDir(), "latest"), filepath.Join(filepath.Dir(path), "another.name")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(duplicate, b, 0o600); err != nil {
		t.Fatal(err)
	}
	// Neither is a note about this backup.
	for name, text := range map[string]string{"other.restored-1": "{", "other.restored-x": "{"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := func() string { return filepath.Join(t.TempDir(), "data") }
	last := restored(t, dir(), link, "--floor", time.Now().Add(12*time.Hour).UTC().Format(time.RFC3339))
	for _, name := range []string{path, duplicate, link, path} {
		next := restored(t, dir(), name)
		if next <= last {
			t.Errorf("%s: begins at %s, and the one before at %s", name, nanoTime(next), nanoTime(last))
		}
		last = next
	}
	if _, err := os.Stat(backup.NotePath(link, 1)); err == nil {
		t.Error("a note lies beside the link")
	}
}

// TestRestore_ADamagedNoteOfACopyIsNamed, if it is about this backup.
func TestRestore_ADamagedNoteOfACopyIsNamed(t *testing.T) {
	path := prepareBackup(t, time.Now(), time.Now())
	d, _, err := readBackup(path)
	if err != nil {
		t.Fatal(err)
	}
	note := backup.NotePath(filepath.Join(filepath.Dir(path), "copy"), 1)
	if err := os.WriteFile(note, []byte(`{"format": 1, "backup": "`+d.Sum+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 1, "", note, "restore", "--data-dir", filepath.Join(t.TempDir(), "data"), "--yes", path)
}
