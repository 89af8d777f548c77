package backup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNote_OfAPipeHasNoPlace(t *testing.T) {
	link := filepath.Join(t.TempDir(), "stdin")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, "/dev/null"} {
		if notes, err := ReadNotes(path, "digest"); len(notes) > 0 || err != nil {
			t.Errorf("%s: %v, %v", path, notes, err)
		}
		if err := WriteNote(path, 1, Note{Backup: "digest", Floor: 1, At: time.Now()}); !errors.Is(err, errNoFile) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestReadNotes_ReadsABoundedNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for node := range uint64(notesMax) {
		if err := os.WriteFile(NotePath(path+"of-another", node), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadNotes(path, "digest"); err != nil {
		t.Error(err)
	}
	if err := WriteNote(path, 1, Note{Backup: "digest", Floor: 1, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNotes(path, "digest"); err == nil || !strings.Contains(err.Error(), "--floor") {
		t.Error(err)
	}
}
