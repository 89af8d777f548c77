package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandFor_IsWhatAReaderCanType(t *testing.T) {
	dir := t.TempDir()
	installed := filepath.Join(dir, "isotone")
	if err := os.WriteFile(installed, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	hash := strings.Repeat("0a", 32)
	for _, tc := range []struct {
		executable, arg0, inPath string
		inModule                 bool
		want                     string
	}{
		{"/tmp/go-build12/b001/exe/isotone", "/tmp/go-build12/b001/exe/isotone", "", true, "go run ./cmd/isotone"},
		{"/tmp/go-build12/b001/exe/isotone", "/tmp/go-build12/b001/exe/isotone", installed, false, "go run github.com/isotone/isotone/cmd/isotone"},
		{"/root/.cache/go-build/0a/" + hash + "-d/isotone", "x/isotone", "", true, "go run ./cmd/isotone"},
		{"/cache/0a/" + hash + "-d/isotone", "/x/isotone", "", true, "go run ./cmd/isotone"},
		{installed, "isotone", installed, true, "isotone"},
		{installed, "./isotone", "", true, "./isotone"},
		{installed, "./isotone", "/other/isotone", false, "./isotone"},
		{"/with space/isotone", "/with space/isotone", "", false, "'/with space/isotone'"},
		{"/it's/isotone", "isotone", "", false, `'/it'\''s/isotone'`},
	} {
		if got := commandFor(tc.executable, tc.arg0, tc.inPath, tc.inModule); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}
