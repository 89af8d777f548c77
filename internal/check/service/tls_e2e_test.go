//go:build linux

package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

// authority signs certificates; nil makes self-signed ones.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// signed is a certificate and its key, in PEM and as authority.
type signed struct {
	cert, key []byte
	authority
}

// sign makes a certificate for a name that ends at a time.
func (a *authority) sign(t *testing.T, name string, end time.Time) signed {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: a == nil,
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed{
		cert:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		authority: authority{cert, key},
	}
}

// selfSign makes a self-signed certificate that is valid for days.
func selfSign(t *testing.T, name string) signed {
	t.Helper()
	return (*authority)(nil).sign(t, name, time.Now().Add(90*24*time.Hour))
}

// identify is a config for a client that trusts any server and shows its own certificate.
func (s signed) identify(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(s.cert, s.key)
	if err != nil {
		t.Fatal(err)
	}
	// Not Certificates: a client shows none of these that the server does not ask for.
	return &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
}

// tlsNode is one node whose certificate is in files.
type tlsNode struct {
	*chaos.Node
	cert, key, clients string
	thrift             string
}

// newTLSNode sets up a node without starting it.
func newTLSNode(t *testing.T) tlsNode {
	t.Helper()
	port, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	o := trial.Options()
	dir := t.TempDir()
	n := tlsNode{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), clients: filepath.Join(dir, "clients.crt"), thrift: fmt.Sprintf("127.0.0.1:%d", port)}
	o.Nodes, o.Env = 1, map[string]string{"TLS_CERT": n.cert, "TLS_KEY": n.key, "THRIFT_PORT": fmt.Sprint(port)}
	n.Node = chaos.NewCluster(t, o).Node(1)
	return n
}

// use replaces the files of the certificate.
func (n tlsNode) use(t *testing.T, s signed) {
	t.Helper()
	put(t, n.cert, s.cert)
	put(t, n.key, s.key)
}

// shown returns the name in the certificate that each protocol shows at a new handshake.
func (n tlsNode) shown(t *testing.T, config *tls.Config) map[string]string {
	t.Helper()
	names := map[string]string{}
	for by, addr := range map[string]string{"http/1.1": n.HTTPAddr, "h2": n.HTTPAddr, "thrift": n.thrift} {
		c := config.Clone()
		if by != "thrift" {
			c.NextProtos = []string{by}
		}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: trial.AnswerTimeout}, "tcp", addr, c)
		if err != nil {
			t.Fatalf("%s: %v", by, err)
		}
		names[by] = conn.ConnectionState().PeerCertificates[0].Subject.CommonName
		_ = conn.Close()
	}
	h3 := &http3.Transport{TLSClientConfig: config.Clone()}
	defer h3.Close()
	r, err := (&http.Client{Transport: h3, Timeout: trial.AnswerTimeout}).Get("https://" + n.HTTPAddr + "/up")
	if err != nil {
		t.Fatalf("h3: %v", err)
	}
	_ = r.Body.Close()
	names["h3"] = r.TLS.PeerCertificates[0].Subject.CommonName
	return names
}

// wantShown waits until all protocols show a certificate.
func (n tlsNode) wantShown(t *testing.T, name string) {
	t.Helper()
	began := time.Now()
	trustAll := &tls.Config{InsecureSkipVerify: true}
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		names := n.shown(t, trustAll)
		all := true
		for _, got := range names {
			all = all && got == name
		}
		return all, fmt.Sprintf("%v are shown, want %s everywhere", names, name)
	})
	t.Logf("%s is shown after %v", name, time.Since(began).Round(time.Millisecond))
}

// TestTLS_FollowsItsFiles replaces the certificate of a running node by valid and invalid
// ones. Open connections stay open.
func TestTLS_FollowsItsFiles(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newTLSNode(t)
	n.use(t, selfSign(t, "one"))
	n.Start()
	n.WaitReady(chaos.ReadyTimeout)
	n.wantShown(t, "one")

	trustAll := &tls.Config{InsecureSkipVerify: true}
	open := map[string]*http.Client{}
	for by, set := range map[string]func(*http.Protocols, bool){"http/1.1": (*http.Protocols).SetHTTP1, "h2": (*http.Protocols).SetHTTP2} {
		tr := transport(trustAll, set)
		tr.MaxConnsPerHost = 1
		t.Cleanup(tr.CloseIdleConnections)
		open[by] = &http.Client{Transport: tr, Timeout: trial.AnswerTimeout}
	}
	thrift := dialThrift(t, n.thrift, trustAll)
	wantOld := func() {
		t.Helper()
		for by, client := range open {
			r, err := client.Get("https://" + n.HTTPAddr + "/up")
			if err != nil {
				t.Errorf("%s: %v", by, err)
				continue
			}
			_, err = fmt.Fscan(r.Body, new(string)) // so that the connection is used again
			_ = r.Body.Close()
			if name := r.TLS.PeerCertificates[0].Subject.CommonName; name != "one" || r.StatusCode != 200 || err != nil {
				t.Errorf("%s: a connection from before is one with %s: %d, %v", by, name, r.StatusCode, err)
			}
		}
		thrift.ask(t, "get_timestamp", "")
	}
	wantOld()

	n.use(t, selfSign(t, "two"))
	n.wantShown(t, "two")
	wantOld()
	const refused = "TLS files have changed and cannot be used"
	for i, bad := range []struct {
		name   string
		change func()
		words  string
	}{
		{"garbage", func() { put(t, n.cert, []byte("nothing")) }, "TLS_CERT"},
		{"another's key", func() { n.use(t, selfSign(t, "three")); put(t, n.key, selfSign(t, "four").key) }, "match"},
		{"expired", func() { n.use(t, (*authority)(nil).sign(t, "old", time.Now().Add(-time.Hour))) }, "expired"},
		{"gone", func() { _ = os.Remove(n.key) }, "TLS_KEY"},
	} {
		bad.change()
		await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
			log := n.Log()
			return strings.Count(log, refused) > i && strings.Contains(log[strings.LastIndex(log, refused):], bad.words), fmt.Sprintf("%s: the log does not say %q of %q", bad.name, refused, bad.words)
		})
		n.wantShown(t, "two")
	}
	n.use(t, selfSign(t, "five"))
	n.wantShown(t, "five")
	wantOld()
	if lines := strings.Count(n.Log(), refused); lines != 4 {
		t.Errorf("%d lines of files that cannot be used, want one for each of 4", lines)
	}
	n.Shutdown()
}

// TestTLS_BadFilesStopTheStart starts a node with files that it cannot use.
func TestTLS_BadFilesStopTheStart(t *testing.T) {
	t.Parallel()
	n := newTLSNode(t)
	good := selfSign(t, "good")
	for _, test := range []struct {
		name  string
		spoil func()
		words []string
	}{
		{"no certificate", func() { _ = os.Remove(n.cert) }, []string{"TLS_CERT", n.cert}},
		{"no key", func() { _ = os.Remove(n.key) }, []string{"TLS_KEY", n.key}},
		{"garbage", func() { put(t, n.cert, []byte("nothing")) }, []string{"TLS_CERT", n.cert}},
		{"a garbled key", func() { put(t, n.key, []byte("nothing")) }, []string{"TLS_", n.key}},
		{"another's key", func() { put(t, n.key, selfSign(t, "other").key) }, []string{"TLS_CERT", n.cert, n.key, "match"}},
		{"expired", func() { n.use(t, (*authority)(nil).sign(t, "old", time.Now().Add(-time.Hour))) }, []string{"TLS_CERT", "expired"}},
		{"no authorities", func() { n.Env["TLS_CLIENT_CA"] = n.clients }, []string{"TLS_CLIENT_CA", n.clients}},
	} {
		n.use(t, good)
		test.spoil()
		n.Start()
		n.ExpectExit()
		if code := n.WaitExit(chaos.ExitTimeout); code != 1 {
			t.Errorf("%s: exit code %d", test.name, code)
		}
		for _, word := range test.words {
			if !strings.Contains(n.Log(), word) {
				t.Errorf("%s: %q is missing in:\n%s", test.name, word, n.Log())
			}
		}
		if strings.Contains(n.Log(), "goroutine ") || strings.Contains(n.Log(), `"msg":"serving"`) {
			t.Errorf("%s:\n%s", test.name, n.Log())
		}
	}
	delete(n.Env, "TLS_CLIENT_CA")
	n.use(t, good)
	n.Start()
	n.WaitReady(chaos.ReadyTimeout)
	n.wantShown(t, "good")
}

// TestTLS_ClientsMustShowACertificate: with TLS, only clients with a certificate of a current
// authority are served. Without TLS, all are.
func TestTLS_ClientsMustShowACertificate(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newTLSNode(t)
	ours, others := selfSign(t, "authority"), selfSign(t, "another authority")
	n.use(t, selfSign(t, "server"))
	put(t, n.clients, ours.cert)
	n.Env["TLS_CLIENT_CA"] = n.clients
	n.Start()
	n.WaitReady(chaos.ReadyTimeout)
	waitIDs(t, n.Node)
	end := time.Now().Add(24 * time.Hour)
	ourClient, otherClient := ours.sign(t, "client", end).identify(t), others.sign(t, "client", end).identify(t)
	for _, test := range []struct {
		name   string
		config *tls.Config
		ok     bool
	}{
		{"none", &tls.Config{InsecureSkipVerify: true}, false},
		{"another's", otherClient, false},
		{"expired", ours.sign(t, "client", time.Now().Add(-time.Hour)).identify(t), false},
		{"ours", ourClient, true},
	} {
		for by, err := range n.serves(t, test.config) {
			if (err == nil) != test.ok {
				t.Errorf("a certificate that is %s, by %s: %v", test.name, by, err)
			}
		}
	}
	trial.Timestamps(t, n.Node, 1)

	put(t, n.clients, others.cert)
	await.Done(t, chaos.ReadyTimeout, func() (bool, string) {
		let, refused := n.serves(t, otherClient), n.serves(t, ourClient)
		done := true
		for by := range let {
			done = done && let[by] == nil && refused[by] != nil
		}
		return done, fmt.Sprintf("after the authority was replaced: its clients get %v, those of the old one %v", let, refused)
	})
}

// serves sends requests to the node in every protocol, and returns the error of each.
func (n tlsNode) serves(t *testing.T, config *tls.Config) map[string]error {
	t.Helper()
	faults := map[string]error{}
	h3 := &http3.Transport{TLSClientConfig: config.Clone()}
	defer h3.Close()
	for by, tr := range map[string]http.RoundTripper{
		"http/1.1": transport(config, (*http.Protocols).SetHTTP1), "h2": transport(config, (*http.Protocols).SetHTTP2), "h3": h3,
	} {
		client := &http.Client{Transport: tr, Timeout: trial.AnswerTimeout}
		for _, path := range []string{"/timestamp", "/api/snowflake", "/live/state"} {
			r, err := client.Get("https://" + n.HTTPAddr + path)
			if err == nil {
				switch _ = r.Body.Close(); r.StatusCode {
				case http.StatusOK:
				case http.StatusUnauthorized: // the authority was replaced between the handshake and the request
					err = errors.New(r.Status)
				default:
					t.Errorf("%s by %s: %s", path, by, r.Status)
				}
			}
			faults[by+" "+path] = err
		}
		client.CloseIdleConnections()
	}
	conn := dialThrift(t, n.thrift, config)
	defer conn.Close()
	_, err := conn.Write(conn.call(nil, "get_id", thriftUserAgent))
	if err == nil {
		_, err = conn.receive("get_id", conn.sent)
	}
	faults["thrift"] = err
	return faults
}
