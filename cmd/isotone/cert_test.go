package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/authority"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/admin"
	"github.com/isotone/isotone/internal/host/config"
)

func TestCert_MakesAWorkingSet(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"cert node 1 host", 1, "make one first"},
		{"cert ca", 0, "certs/ca-key.pem"},
		{"cert ca", 1, "use --add"},
		{"cert node 1 node1.example.com 10.0.0.1", 0, "PEER_TLS_CERT=certs/node1.pem"},
		{"cert node 1", 1, "use --overwrite"},
		{"cert node 1 --overwrite", 0, "spiffe://isotone/isotone/node/1"},
		{"cert node 0", 2, "want an ID"},
		{"cert node 2 host:1", 2, "without a port"},
		{"cert node 2 --trust-domain A/B", 2, "trust domain"},
		{"cert node 2 --days 0", 2, "--days"},
		{"cert client orders", 0, "spiffe://isotone/isotone/client/orders"},
		{"cert client a/b", 2, "want a name"},
		{"cert client x-key", 2, "want a name"},
		{"cert revoke certs/node1.pem certs/node1.pem", 0, "PEER_TLS_CRL"},
		{"cert revoke certs/node9.pem", 1, "no such file"},
		{"cert ca --add --retire", 2, ""},
		{"cert ca --add", 0, "Copy certs/ca.pem to all nodes"},
		{"cert ca --retire", 0, "refuse certificates of the older"},
	} {
		code, out, err := command(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+err, c.want) {
			t.Errorf("isotone %s: exit code %d, %s%s; want %d, %q", c.args, code, out, err, c.code, c.want)
		}
	}
	var made authority.Made
	_, out, _ := command("cert", "node", "7", "--json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Cert != "certs/node7.pem" || made.Key != "certs/node7-key.pem" || made.Until.IsZero() {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.FromSlash(made.Key)); err != nil {
		t.Error(err)
	}
}

// The files that the command makes are those that a node wants.
func TestPeerTLS_ClusterOfCertificatesThatCertMakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certs := filepath.Join(dir, "certs")
	if code, _, err := command("cert", "ca", "--dir", certs); code != 0 {
		t.Fatal(err)
	}
	peers := map[uint64]string{}
	var all processes
	for i := range uint64(3) {
		p := newProcess(t, i+1)
		peers[p.s.NodeID] = p.s.RaftAddr
		useCertificate(t, &p.s, certs)
		all = append(all, p)
	}
	for _, p := range all {
		p.s.Peers = peers
		p.start()
	}
	for _, p := range all {
		p.ready()
		p.says("/metrics", 200, "isotone_peer_certificate_left_seconds 3")
	}
	all[0].says("/metrics", 200, `isotone_peer_tls{peer="2"} 1`)
	joinsWithItsCertificate(t, all, certs)
	// A node with the certificate of another one is told so before it speaks with anybody.
	if err := all[2].stop(); err != nil {
		t.Fatal(err)
	}
	all[2].s.PeerTLSCert, all[2].s.PeerTLSKey = all[1].s.PeerTLSCert, all[1].s.PeerTLSKey
	all[2].start()
	if err := all[2].ended(); err == nil || !strings.HasPrefix(err.Error(), "PEER_TLS_CERT: ") || !strings.Contains(err.Error(), "not the name of node 3") {
		t.Error(err)
	}
}

// useCertificate makes a certificate for a node of this machine by the authority in a directory, and sets its files.
func useCertificate(t *testing.T, s *config.Settings, certs string) {
	t.Helper()
	id := strconv.FormatUint(s.NodeID, 10)
	if code, _, err := command("cert", "node", id, "127.0.0.1", "--dir", certs); code != 0 {
		t.Fatal(err)
	}
	s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA = filepath.Join(certs, "node"+id+".pem"), filepath.Join(certs, "node"+id+"-key.pem"), filepath.Join(certs, "ca.pem")
}

// joinsWithItsCertificate adds a node, of which the members tell nobody else anything.
func joinsWithItsCertificate(t *testing.T, all processes, certs string) {
	t.Helper()
	p := all.joiner(t, 4)
	useCertificate(t, &p.s, certs)
	all.does(t, "member add 4 "+p.s.RaftAddr, "is added")
	files, err := credential.OpenPeers(credential.PeerConfig{
		CertFile: all[0].s.PeerTLSCert, KeyFile: all[0].s.PeerTLSKey, CAFile: all[0].s.PeerTLSCA, Own: func(*x509.Certificate) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ofAnother, err := files.Prove(front.JoinMessage(4, 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, proof := range map[string]string{"none": "", "nonsense": "1.2.3.4", "of node 1": ofAnother} {
		for _, node := range []string{"1", "4", "5"} {
			r, err := http.NewRequest(http.MethodGet, "http://"+all[0].s.AdvertiseAddr+"/admin/join?node="+node, nil)
			if err != nil {
				t.Fatal(err)
			}
			if proof != "" {
				r.Header.Set(admin.ProofField, proof)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusForbidden || bytes.Contains(body, []byte(clusterOf(all[0].m).String())) || bytes.Contains(body, []byte(all[0].s.RaftAddr)) {
				t.Errorf("node %s, proof %s: %d %s, %v", node, name, answer.StatusCode, body, err)
			}
		}
	}
	p.start()
	p.ready()
	append(all, p).roles(t, "1 voter, 2 voter, 3 voter, 4 voter")
	all.does(t, "member remove 4", "is removed")
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Error(err)
	}
}
