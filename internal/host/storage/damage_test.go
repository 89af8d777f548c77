package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

func readFile(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, storage.FileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, dir string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, storage.FileName), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantCorrupt checks that Open refuses the directory with a complete error, and leaves the
// file as it is.
func wantCorrupt(t testing.TB, dir string) *storage.CorruptError {
	t.Helper()
	before := readFile(t, dir)
	s, r, err := storage.Open(options(dir))
	if err == nil {
		_ = s.Close()
		t.Fatalf("Open accepted damaged data: %+v", r)
	}
	c, ok := errors.AsType[*storage.CorruptError](err)
	if !ok {
		t.Fatalf("Open: %v", err)
	}
	for _, want := range []string{c.Record, c.Reason, filepath.Join(dir, storage.FileName), "must not take part again", "leave the data of the other nodes alone"} {
		if want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if !bytes.Equal(before, readFile(t, dir)) {
		t.Error("Open changed a damaged file")
	}
	return c
}

// specimen returns a directory with every kind of content, closed.
func specimen(t testing.TB) (string, storage.Recovered) {
	t.Helper()
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 9, 1), HardState: hardState(1, 2, 5), ClusterID: 42})
	save(t, s, storage.Write{Compact: snapshot(4, 1, "state")})
	save(t, s, storage.Write{HardState: hardState(3, 7, 8)})
	closeStore(t, s)
	r, err := storage.Peek(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, r
}

func TestStore_RefusesAnotherFormat(t *testing.T) {
	dir, _ := specimen(t)
	file := readFile(t, dir)
	binary.BigEndian.PutUint32(file[28:], 2) // behind the header of the sector and the name
	seal(file[:sectorBytes], 0, 0)
	writeFile(t, dir, file)
	for range 2 {
		_, _, err := storage.Open(options(dir))
		f, ok := errors.AsType[*storage.FormatError](err)
		if !ok || f.Have != 2 || f.Reads != 1 || !strings.Contains(err.Error(), filepath.Join(dir, storage.FileName)+" has format 2, and this version reads format 1") {
			t.Fatalf("Open: %v", err)
		}
		if !bytes.Equal(file, readFile(t, dir)) {
			t.Fatal("Open changed the file")
		}
	}
}

func TestStore_RefusesWhatIsNoDataFile(t *testing.T) {
	garbage := make([]byte, 64<<10)
	chaos := rand.NewChaCha8([32]byte{1})
	_, _ = chaos.Read(garbage)
	for name, content := range map[string][]byte{
		"empty": {}, "one byte": {1}, "zeros": make([]byte, 32<<10), "garbage": garbage, "text": []byte("hello\n"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, content)
			wantCorrupt(t, dir)
		})
	}
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, storage.FileName), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, _, err := storage.Open(options(dir)); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Fatalf("Open: %v", err)
		}
	})
	t.Run("data directory is a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{path, filepath.Join(path, "below")} {
			if _, _, err := storage.Open(options(dir)); err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("Open %s: %v", dir, err)
			}
		}
	})
}

func TestStore_RefusesAnUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir, want := specimen(t)
	path := filepath.Join(dir, storage.FileName)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storage.Open(options(dir)); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, r := open(t, options(dir))
	wantSame(t, r, want)
}
