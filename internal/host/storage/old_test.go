package storage_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestStore_NamesTheFormatsBeforeTheFirstRelease: their files are not damaged.
func TestStore_NamesTheFormatsBeforeTheFirstRelease(t *testing.T) {
	for _, name := range []string{"bbolt", "journal"} {
		dir := t.TempDir()
		file := unzipped(t, "testdata/old/"+name+".gz")
		writeFile(t, dir, file)
		_, _, err := storage.Open(options(dir))
		format, ok := errors.AsType[*storage.FormatError](err)
		if !ok || format.Have != 0 || !strings.Contains(err.Error(), storage.FileName+" was written by a version before the first release") {
			t.Errorf("%s: %v", name, err)
		}
		if string(readFile(t, dir)) != string(file) {
			t.Errorf("%s: the file has changed", name)
		}
	}
}

func unzipped(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestStore_CreatesNothingWhereAnotherProcessDoes, even if somebody has deleted the file that both lock.
func TestStore_CreatesNothingWhereAnotherProcessDoes(t *testing.T) {
	dir := t.TempDir()
	removeLock := func() {
		if err := os.Remove(dir + "/isotone.lock"); err != nil {
			t.Fatal(err)
		}
	}
	var during, after error
	first := storage.WithSteps(options(dir), func(step string) {
		switch step {
		case "file synced":
			if during == nil {
				removeLock()
				_, _, during = storage.Open(options(dir))
			}
		case "file renamed":
			removeLock()
			_, _, after = storage.Open(options(dir))
		}
	})
	s, r := open(t, first)
	for _, err := range []error{during, after} {
		if !errors.Is(err, storage.ErrInUse) {
			t.Errorf("%v", err)
		}
	}
	save(t, s, script()[0])
	_, again := reopen(t, s, dir)
	m := model{r}
	m.apply(script()[0])
	wantSame(t, again, m.Recovered)
}
