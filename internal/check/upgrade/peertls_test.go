//go:build linux

package upgrade_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	issuer "github.com/isotone/isotone/internal/auth/authority"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

const certificateDays = 100 * 24 * time.Hour

// certificates are an authority of a test, and the files that its nodes read.
type certificates struct {
	t   *testing.T
	dir issuer.Dir
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{t, issuer.Dir{Path: filepath.Join(t.TempDir(), "ca"), Overwrite: true}}
	c.did(c.dir.Authority("Test", certificateDays, false))
	return c
}

func (c *certificates) did(m issuer.Made, err error) issuer.Made {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// files returns the directory of a node's files.
func (c *certificates) files(n *chaos.Node) string { return n.Dir + "-tls" }

// replace copies a file to where a node reads it, as an operator should: by renaming.
func (c *certificates) replace(n *chaos.Node, from, name string) {
	c.t.Helper()
	b, err := os.ReadFile(from)
	to := filepath.Join(c.files(n), name)
	if err == nil {
		err = os.MkdirAll(c.files(n), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// give makes a certificate of node id for a node, and returns its path.
func (c *certificates) give(n *chaos.Node, id uint64, validity time.Duration) string {
	c.t.Helper()
	m := c.did(c.dir.Sign(issuer.Node("test", id, []string{"127.0.0.1"}), validity))
	c.replace(n, m.Key, "key.pem")
	c.replace(n, m.Cert, "cert.pem")
	return filepath.Join(c.files(n), "cert.pem")
}

func (c *certificates) bundle(n *chaos.Node) {
	c.t.Helper()
	c.replace(n, filepath.Join(c.dir.Path, issuer.BundleFile), "ca.pem")
}

// set has a node use TLS from its next start on.
func (c *certificates) set(n *chaos.Node) {
	c.t.Helper()
	c.give(n, n.ID, certificateDays)
	c.bundle(n)
	dir := c.files(n)
	n.Env["PEER_TLS_CERT"], n.Env["PEER_TLS_KEY"], n.Env["PEER_TLS_CA"] = dir+"/cert.pem", dir+"/key.pem", dir+"/ca.pem"
}

// list has a node use a revocation list, without entries yet, from its next start on.
func (c *certificates) list(n *chaos.Node) {
	c.t.Helper()
	path := c.files(n) + "/crl.pem"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	n.Env["PEER_TLS_CRL"] = path
}

// startSecure runs three nodes with TLS between them.
func startSecure(t *testing.T, with func(c *certificates, n *chaos.Node)) (*chaos.Cluster, *certificates) {
	t.Helper()
	c, certs := chaos.NewCluster(t, trial.Options()), newCertificates(t)
	for _, n := range c.Nodes {
		certs.set(n)
		if with != nil {
			with(certs, n)
		}
	}
	c.Start()
	c.WaitReady()
	c.Settle()
	return c, certs
}

// waitAll waits until a metric has a value for both peers of each node.
func waitAll(t *testing.T, c *chaos.Cluster, metric string, want float64) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, o := range c.Others(n) {
			trial.WaitMetric(t, n, fmt.Sprintf("%s{peer=\"%d\"}", metric, o.ID), func(v float64) bool { return v == want })
		}
	}
}

// TestPeerTLS_NoCallFailsWhileNodesRollFromPlaintext to TLS, alone and together with a change of
// version, in two rolls: first both ways are allowed, then TLS only.
func TestPeerTLS_NoCallFailsWhileNodesRollFromPlaintext(t *testing.T) {
	t.Parallel()
	for name, upgrade := range map[string]bool{"alone": false, "in an upgrade": true} {
		t.Run(name, func(t *testing.T) {
			c, certs := chaos.StartCluster(t, trial.Options()), newCertificates(t)
			l := trial.StartClientLoad(t, c, 16)
			rollOnce := func(change func(*chaos.Node)) {
				for _, n := range c.Nodes {
					n.Shutdown()
					change(n)
					n.Start()
					c.WaitReady()
					c.Settle()
					l.More(t, 200)
				}
			}
			rollOnce(func(n *chaos.Node) {
				if upgrade {
					n.ChangeVersion()
				}
				certs.set(n)
				n.Env["PEER_INSECURE"] = "1"
			})
			waitAll(t, c, "isotone_peer_tls", 1)
			rollOnce(func(n *chaos.Node) { delete(n.Env, "PEER_INSECURE") })
			waitAll(t, c, "isotone_peer_tls", 1)
			l.Verify(t)
		})
	}
}

// TestPeerTLS_NoCallFailsWhileTheAuthorityChanges: files are replaced while the nodes run. After
// that the old authority means nothing.
func TestPeerTLS_NoCallFailsWhileTheAuthorityChanges(t *testing.T) {
	t.Parallel()
	c, certs := startSecure(t, nil)
	l := trial.StartClientLoad(t, c, 16)
	reloads := 0
	step := func(change func(*chaos.Node)) {
		reloads++
		for _, n := range c.Nodes {
			change(n)
			for deadline := time.Now().Add(chaos.ReadyTimeout); strings.Count(n.Log(), `"msg":"TLS files reloaded"`) < reloads; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("node %d does not reload: %s", n.ID, n.Log())
				}
			}
			l.More(t, 200)
		}
	}
	certs.did(certs.dir.Authority("Test", certificateDays, true))
	step(certs.bundle)
	step(func(n *chaos.Node) { certs.give(n, n.ID, certificateDays) })
	certs.did(certs.dir.Retire())
	step(certs.bundle)
	c.Settle()
	waitAll(t, c, "isotone_peer_tls", 1)
	l.More(t, 500)
	l.Verify(t)
}

// TestPeerTLS_RevokedNodeIsCutOff while it runs; the others go on, and it serves nothing.
func TestPeerTLS_RevokedNodeIsCutOff(t *testing.T) {
	t.Parallel()
	c, certs := startSecure(t, (*certificates).list)
	leader := c.WaitLeader()
	n := c.Others(leader)[0]
	l := trial.StartClientLoad(t, c, 8)
	list := certs.did(certs.dir.Revoke(filepath.Join(certs.files(n), "cert.pem"))).Cert
	for _, o := range c.Others(n) {
		certs.replace(o, list, "crl.pem")
	}
	peer := func(id uint64) string { return fmt.Sprintf("isotone_peer_connected{peer=\"%d\"}", id) }
	for _, o := range c.Others(n) {
		trial.WaitMetric(t, o, peer(n.ID), func(v float64) bool { return v == 0 })
		trial.WaitMetric(t, n, peer(o.ID), func(v float64) bool { return v == 0 })
	}
	total := 0.0
	for _, o := range c.Nodes {
		for _, reason := range []string{"revoked", "refused"} {
			v, err := chaos.Metric(o.HTTPAddr, fmt.Sprintf("isotone_peer_handshake_failures_total{reason=%q}", reason))
			if err != nil {
				t.Fatal(err)
			}
			total += v
		}
	}
	if total == 0 {
		t.Error("no failure is counted")
	}
	l.More(t, 300)
	// A new certificate, and it is back.
	certs.give(n, n.ID, certificateDays)
	c.Settle()
	waitAll(t, c, "isotone_peer_tls", 1)
	l.Verify(t)
}

// TestPeerTLS_StrangersStayOut: a node of the cluster comes back with something that the others
// do not take, and is told why.
func TestPeerTLS_StrangersStayOut(t *testing.T) {
	t.Parallel()
	c, certs := startSecure(t, nil)
	n := c.Nodes[2] // it dials the others
	other := newCertificates(t)
	for _, s := range []struct {
		name   string
		with   func()
		reason string // of the metric
		told   string // in the log of the node
	}{
		{"in plaintext", func() {
			for _, name := range []string{"PEER_TLS_CERT", "PEER_TLS_KEY", "PEER_TLS_CA"} {
				delete(n.Env, name)
			}
		}, "clear", "tls_required"},
		{"of another authority", func() { other.set(n) }, "", "untrusted"},
		{"of another authority, and trusting ours", func() {
			other.set(n)
			// Both are in its bundle, so its own certificate is fit.
			b, err := os.ReadFile(filepath.Join(certs.dir.Path, issuer.BundleFile))
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(filepath.Join(certs.files(n), "ca.pem"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.Write(b)
			}
			if err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}, "untrusted", "untrusted"},
		{"with the name of another node", func() {
			certs.set(n)
			certs.give(n, 2, certificateDays)
			n.Env["PEER_ALLOWED_NAMES"] = "1=spiffe://test/isotone/node/1,3=spiffe://test/isotone/node/2,2=spiffe://test/isotone/node/9"
		}, "name", "is not the name of node 3"},
		{"and its own again", func() {
			certs.set(n)
			delete(n.Env, "PEER_ALLOWED_NAMES")
		}, "", ""},
	} {
		n.Shutdown()
		s.with()
		n.Start()
		if s.told == "" {
			c.WaitReady()
			c.Settle()
			break
		}
		for deadline := time.Now().Add(chaos.ReadyTimeout); !strings.Contains(n.Log(), s.told); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the node is not told %q: %s", s.name, s.told, n.Log())
			}
		}
		if s.reason != "" {
			trial.WaitMetric(t, c.Nodes[0], fmt.Sprintf("isotone_peer_handshake_failures_total{reason=%q}", s.reason), func(v float64) bool { return v > 0 })
		}
		for _, o := range c.Others(n) {
			// The connection of the process before is noticed, and shown, a moment later.
			trial.WaitMetric(t, o, `isotone_peer_connected{peer="3"}`, func(v float64) bool { return v == 0 })
		}
	}
}

// TestPeerTLS_ConnectionsEndWithTheirCertificates: one that runs out ends an open connection, and
// a new one is all that it takes.
func TestPeerTLS_ConnectionsEndWithTheirCertificates(t *testing.T) {
	t.Parallel()
	c, certs := startSecure(t, func(certs *certificates, n *chaos.Node) {
		if n.ID == 3 {
			certs.give(n, 3, 15*time.Second)
		}
	})
	n := c.Nodes[2]
	trial.WaitMetric(t, c.Nodes[0], `isotone_peer_connected{peer="3"}`, func(v float64) bool { return v == 0 })
	trial.WaitMetric(t, c.Nodes[0], `isotone_peer_handshake_failures_total{reason="expired"}`, func(v float64) bool { return v > 0 })
	trial.WaitMetric(t, n, "isotone_peer_certificate_left_seconds", func(v float64) bool { return v < 0 })
	certs.give(n, 3, certificateDays)
	c.WaitReady()
	c.Settle()
}

// TestPeerTLS_ClearPeersMustBeAskedFor, if they are on other machines, by their addresses.
func TestPeerTLS_ClearPeersMustBeAskedFor(t *testing.T) {
	t.Parallel()
	c := chaos.NewCluster(t, trial.Options())
	n := c.Nodes[0]
	n.Env["PEERS"] = "1=192.0.2.9:1,2=192.0.2.1:60001"
	n.Start()
	n.ExpectExit()
	if code := n.WaitExit(chaos.ExitTimeout); code != 2 || !strings.Contains(n.Log(), "PEER_INSECURE=1") || !strings.Contains(n.Log(), "192.0.2.1:60001") {
		t.Errorf("exit code %d: %s", code, n.Log())
	}
	n.Env["PEER_INSECURE"] = "1"
	n.Start()
	for deadline := time.Now().Add(chaos.ReadyTimeout); !strings.Contains(n.Log(), "peers are in plaintext"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no warning: %s", n.Log())
		}
	}
}
