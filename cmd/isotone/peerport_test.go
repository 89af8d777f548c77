package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

// TestPeerPort_IsNamedAsSuch by every command that is given one, in plaintext and with TLS.
func TestPeerPort_IsNamedAsSuch(t *testing.T) {
	t.Parallel()
	certs := filepath.Join(t.TempDir(), "certs")
	wantRun(t, 0, "", "", "cert", "ca", "--dir", certs)
	for name, change := range map[string]func(*config.Settings){
		"plaintext": func(*config.Settings) {},
		"TLS":       func(s *config.Settings) { useCertificate(t, s, certs) },
	} {
		addr := startProcessesWith(t, 1, change)[0].s.RaftAddr
		for _, args := range []string{
			"member list", "timestamp", "status", "doctor", "ready", "drain --yes", "bench --requests 1 --violations " + filepath.Join(t.TempDir(), "v"),
			"bench --protocol resp --requests 1 --violations " + filepath.Join(t.TempDir(), "v"),
		} {
			for _, endpoint := range []string{addr, "https://" + addr} {
				code, out, err := command(append(strings.Fields(args), "--endpoint", endpoint)...)
				if text := out + err; code == 0 || !strings.Contains(text, addr+": this is a peer port (RAFT_ADDR); name the client port, HTTP_PORT") || strings.Contains(text, "no leader") {
					t.Errorf("%s, %s %s: exit code %d, %s", name, args, endpoint, code, text)
				}
			}
		}
	}
}
