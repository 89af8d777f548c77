package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/config"
)

func TestLoadTLS_NeverMakesAPairThatWasNamed(t *testing.T) {
	dir := t.TempDir()
	s := config.Default()
	s.DataDir = filepath.Join(dir, "data")
	s.TLSCert, s.TLSKey = filepath.Join(dir, "typo-cert.pem"), filepath.Join(dir, "typo-key.pem")
	_, err := loadTLS(&s, "localhost:1")
	if err == nil || !strings.Contains(err.Error(), "TLS_CERT") || !strings.Contains(err.Error(), "typo-cert.pem") {
		t.Errorf("a certificate that is not there: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were written: %v", files)
	}
	s.TLSCert, s.TLSKey = "", ""
	if _, err := loadTLS(&s, "localhost:1"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(s.DataDir, "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the generated key: %v, %v", info, err)
	}
}
