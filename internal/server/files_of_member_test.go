package server

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/telemetry"
)

func TestOpenTLS_NeverMakesAPairThatWasNamed(t *testing.T) {
	dir := t.TempDir()
	s := config.Default()
	s.DataDir = filepath.Join(dir, "data")
	s.TLSCert, s.TLSKey = filepath.Join(dir, "typo-cert.pem"), filepath.Join(dir, "typo-key.pem")
	_, err := openTLS(&s, "localhost:1", telemetry.NewMetrics(""), nil)
	if err == nil || !strings.Contains(err.Error(), "TLS_CERT") || !strings.Contains(err.Error(), "typo-cert.pem") {
		t.Errorf("a certificate that is not there: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files were written: %v", files)
	}
	s.TLSCert, s.TLSKey = "", ""
	if _, err := openTLS(&s, "localhost:1", telemetry.NewMetrics(""), nil); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(s.DataDir, "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the generated key: %v, %v", info, err)
	}
}

// TestStart_WarnsOfCertificatesThatGiveAllRoles, and only of those.
func TestStart_WarnsOfCertificatesThatGiveAllRoles(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("node")
	for _, c := range []struct {
		ca, users string
		warns     bool
	}{{a.File, "", true}, {a.File, rig.NewUserList(t, rig.Users).File, false}, {"", "", false}} {
		var log bytes.Buffer
		s := config.Default()
		s.TLSCert, s.TLSKey, s.TLSClientCA, s.ACLFile = cert, key, c.ca, c.users
		if _, err := openMemberFiles(&s, false, "x:1", nil, telemetry.NewMetrics("test"), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if warns := strings.Contains(log.String(), "has all roles, also admin; set ACL_FILE"); warns != c.warns {
			t.Errorf("%q, %q: %s", c.ca, c.users, log.String())
		}
	}
}

// A cluster on record with members on other machines does not start in plaintext by a change of PEERS.
func TestPeersInClear_MembersOnRecordCount(t *testing.T) {
	s := config.Default()
	s.RaftAddr = "127.0.0.1:1"
	if err := checkPeersInClear(&s)(map[uint64]string{2: "127.0.0.1:1"}); err != nil {
		t.Error(err)
	}
	if err := checkPeersInClear(&s)(map[uint64]string{2: "10.0.0.2:1"}); err == nil || !strings.Contains(err.Error(), "PEER_INSECURE") {
		t.Error(err)
	}
	s.PeerInsecure = true
	if checkPeersInClear(&s) != nil {
		t.Error("a check although peers may be in plaintext")
	}
}
