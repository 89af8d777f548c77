package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

func TestPeerTLS_SettingsBelongTogether(t *testing.T) {
	files := map[string]string{"PEER_TLS_CERT": "c", "PEER_TLS_KEY": "k", "PEER_TLS_CA": "a"}
	s := parseAll(t, map[string]string{
		"PEER_TLS_CERT": "c", "PEER_TLS_KEY": "k", "PEER_TLS_CA": "a", "PEER_TLS_CRL": "l", "PEER_ALLOWED_NAMES": "n{id}.x", "PEER_INSECURE": "1",
	})
	if id, ok := s.PeerAllowedNames.Node("n3.x"); s.PeerTLSCert+s.PeerTLSKey+s.PeerTLSCA+s.PeerTLSCRL != "ckal" || !s.PeerInsecure || !ok || id != 3 {
		t.Errorf("%+v", s)
	}
	for name := range files {
		env := map[string]string{}
		for other, value := range files {
			if other != name {
				env[other] = value
			}
		}
		if _, err := parse(t, env); err == nil || !strings.Contains(err.Error(), name+" (") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for name, value := range map[string]string{"PEER_TLS_CRL": "l", "TLS_CLIENT_CRL": "l", "PEER_ALLOWED_NAMES": "n{id}", "PEER_INSECURE": "maybe"} {
		if _, err := parse(t, map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name+" (") {
			t.Errorf("%s=%s alone: %v", name, value, err)
		}
	}
	files["PEER_ALLOWED_NAMES"] = "1=a,x"
	if _, err := parse(t, files); err == nil || !strings.Contains(err.Error(), `PEER_ALLOWED_NAMES (--peer-allowed-names) = "x": want`) {
		t.Errorf("a name for nobody: %v", err)
	}
}

func TestPeersInClear_OnlyOnThisMachineOrByLeave(t *testing.T) {
	const near, far = "1=127.0.0.1:1,2=localhost:2,3=[::1]:3", "1=10.0.0.1:1,2=10.0.0.2:1"
	for _, c := range []struct {
		env  map[string]string
		want string // the setting at fault
	}{
		{nil, ""},
		{map[string]string{"PEERS": near}, ""},
		{map[string]string{"PEERS": far}, "PEERS"},
		{map[string]string{"PEERS": "1=node1:1,2=127.0.0.1:1"}, "PEERS"},
		{map[string]string{"PEERS": near, "RAFT_ADDR": "0.0.0.0:1"}, "RAFT_ADDR"},
		{map[string]string{"PEERS": near, "RAFT_ADDR": "[::ffff:127.0.0.1]:1"}, ""},
		{map[string]string{"PEERS": "1=10.0.0.1:1", "RAFT_ADDR": "10.0.0.1:1"}, ""},
		{map[string]string{"RAFT_ADDR": "0.0.0.0:1"}, ""},
		{map[string]string{"JOIN": "10.0.0.1:8080"}, ""},
		{map[string]string{"JOIN": "10.0.0.1:8080", "RAFT_ADDR": "10.0.0.2:1"}, "RAFT_ADDR"},
		{map[string]string{"PEERS": "dns+srv:x?count=3", "RAFT_ADDR": "0.0.0.0:1"}, "RAFT_ADDR"},
		{map[string]string{"PEERS": far, "PEER_INSECURE": "1"}, ""},
		{map[string]string{"PEERS": far, "PEER_TLS_CERT": "c", "PEER_TLS_KEY": "k", "PEER_TLS_CA": "a"}, ""},
	} {
		s := parseAll(t, c.env)
		err := s.PeersInClear()
		var fault config.Fault
		if errors.As(err, &fault) != (c.want != "") || fault.Env != c.want {
			t.Errorf("%v: %v, want a fault of %q", c.env, err, c.want)
		}
		if err != nil && (!strings.Contains(err.Error(), "PEER_INSECURE=1") || !strings.Contains(err.Error(), "isotone cert")) {
			t.Errorf("%v: no way out: %v", c.env, err)
		}
	}
}
