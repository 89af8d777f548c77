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
