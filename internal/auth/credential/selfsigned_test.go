package credential_test

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/auth/credential"
)

var today = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func pairIn(dir string) (certFile, keyFile string) {
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// selfSigned opens a pair that is created if both files are missing, and returns the
// certificate.
func selfSigned(certFile, keyFile string, hosts []string, now time.Time) (*x509.Certificate, error) {
	r, err := credential.Open(credential.Config{
		CertFile: certFile, KeyFile: keyFile, CertSetting: "TLS certificate", KeySetting: "TLS key",
		SelfSigned: true, Hosts: hosts, Now: func() time.Time { return now },
	})
	if err != nil {
		return nil, err
	}
	return r.Certificate(), nil
}

func TestSelfSigned_IsCreatedOnceAndUsedAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := pairIn(dir)
	hosts := []string{"node1.example", "10.1.2.3", "localhost", "", "fe80::1"}
	made, err := selfSigned(certFile, keyFile, hosts, today)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(made)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "node1.example", "10.1.2.3", "fe80::1"} {
		if _, err := made.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: today}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := made.VerifyHostname("elsewhere.example"); err == nil {
		t.Error("valid for a name that nobody gave")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	again, err := selfSigned(certFile, keyFile, nil, today.AddDate(1, 0, 0))
	if err != nil || !again.Equal(made) {
		t.Errorf("the second start made another certificate, or failed: %v", err)
	}
}

// wantRefusal checks an error's text, and that the files stay as they were.
func wantRefusal(t *testing.T, dir string, now time.Time, words ...string) {
	t.Helper()
	certFile, keyFile := pairIn(dir)
	contents := func() string {
		cert, _ := os.ReadFile(certFile)
		key, _ := os.ReadFile(keyFile)
		return string(cert) + "|" + string(key)
	}
	before := contents()
	_, err := selfSigned(certFile, keyFile, nil, now)
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if contents() != before {
		t.Error("the files were changed")
	}
}

func TestSelfSigned_RefusesWhatItCannotUse(t *testing.T) {
	create := func(t *testing.T) (dir, certFile, keyFile string) {
		dir = t.TempDir()
		certFile, keyFile = pairIn(dir)
		if _, err := selfSigned(certFile, keyFile, nil, today); err != nil {
			t.Fatal(err)
		}
		return dir, certFile, keyFile
	}
	t.Run("missing key", func(t *testing.T) {
		dir, _, keyFile := create(t)
		_ = os.Remove(keyFile)
		wantRefusal(t, dir, today, keyFile+" is missing", "remove")
	})
	t.Run("missing certificate", func(t *testing.T) {
		dir, certFile, _ := create(t)
		_ = os.Remove(certFile)
		wantRefusal(t, dir, today, certFile+" is missing", "remove")
	})
	t.Run("mismatch", func(t *testing.T) {
		dir, certFile, keyFile := create(t)
		_, _, otherKey := create(t)
		if err := os.Rename(otherKey, keyFile); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, dir, today, certFile, keyFile, "does not match", "remove")
	})
	t.Run("expired", func(t *testing.T) {
		dir, certFile, _ := create(t)
		wantRefusal(t, dir, today.AddDate(11, 0, 0), certFile, "expired", "renew", "remove")
	})
	t.Run("not valid yet", func(t *testing.T) {
		dir, certFile, _ := create(t)
		wantRefusal(t, dir, today.AddDate(0, 0, -1), certFile, "not valid before", "clock")
	})
	t.Run("not PEM", func(t *testing.T) {
		dir, certFile, _ := create(t)
		_ = os.WriteFile(certFile, []byte("nonsense"), 0o600)
		wantRefusal(t, dir, today, certFile)
	})
	t.Run("no directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "absent")
		wantRefusal(t, dir, today, "self-signed", dir)
	})
}

// A node that is killed while it creates its first pair can start again.
func TestSelfSigned_FinishesAPairWhoseCreationWasInterrupted(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := selfSigned(cert, key, nil, today); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(cert, cert+".new"); err != nil { // after the key has its name
		t.Fatal(err)
	}
	if _, err := selfSigned(cert, key, nil, today); err != nil {
		t.Errorf("interrupted before the last step: %v", err)
	}
	if again, err := os.ReadFile(cert); err != nil || !bytes.Equal(again, made) {
		t.Errorf("another certificate: %v", err)
	}

	// A certificate that does not belong to the key finishes nothing.
	other := filepath.Join(dir, "other.pem")
	if _, err := selfSigned(other, filepath.Join(dir, "other-key.pem"), nil, today); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, cert+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if _, err := selfSigned(cert, key, nil, today); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("with a certificate for another key: %v", err)
	}
}
