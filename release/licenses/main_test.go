package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The test binary itself is made of this module and the standard library.
func TestLicenses_HasTheStandardLibrary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{self}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "The Go standard library and runtime, LICENSE") || !strings.Contains(out.String(), "Redistributions in binary form") {
		t.Errorf("%.2000s", &out)
	}
	if err := run([]string{filepath.Join(t.TempDir(), "missing")}, &out); err == nil {
		t.Error("a binary that is missing is no error")
	}
}

func TestLicenses_FindsFilesByTheirUsualNames(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := write(&out, "a module", dir); err == nil || !strings.Contains(err.Error(), "has no licence") {
		t.Errorf("a module without a licence: %v", err)
	}
	for name, text := range map[string]string{
		"LICENSE.txt": "terms one\r\n", "NOTICE": "terms two", "COPYING": "terms three", "License-MIT": "terms four",
		"license.go": "package license", "README.md": "no terms",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(&out, "a module", dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a module, LICENSE.txt\n\nterms one\n", "terms two", "terms three", "terms four"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "package license") || strings.Contains(out.String(), "no terms") || strings.Contains(out.String(), "\r") {
		t.Errorf("too much:\n%s", &out)
	}
}

func TestDirectories_NamesModulesThatAreNotThere(t *testing.T) {
	if _, err := directories([]string{"example.com/missing"}); err == nil || !strings.Contains(err.Error(), "example.com/missing") {
		t.Errorf("got %v", err)
	}
	if dirs, err := directories(nil); err != nil || len(dirs) != 0 {
		t.Errorf("got %v, %v", dirs, err)
	}
}
