package http1_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/front/web"
)

// certificate makes a self-signed pair. It returns the configurations of its server and of
// clients that trust it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	r, err := credential.Open(credential.Config{
		CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), SelfSigned: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return r.TLS("h2", "http/1.1"), &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

// startBoth runs net/http alone and the front before it, both under TLS, for clients
// that are changed in some way.
func startBoth(t *testing.T, change func(*tls.Config), configure ...func(*config)) (alone, fronted *site) {
	t.Helper()
	server, client := certificate(t)
	change(client)
	withTLS := func(c *web.Config) { c.TLS = server }
	alone = startWeb(t, withTLS)
	fronted = startFront(t, append(configure, func(c *config) {
		c.secure.TLS = server
		c.web = append(c.web, withTLS)
	})...)
	alone.tls, fronted.tls = client, client
	return alone, fronted
}

// dialects are the ways to speak HTTP/1.1 under TLS.
var dialects = map[string]func(*tls.Config){
	"TLS 1.3":           func(*tls.Config) {},
	"TLS 1.3, http/1.1": func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} },
	"TLS 1.2":           func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
}

func TestTLSTable_BothPathsAgree(t *testing.T) {
	for _, dialect := range slices.Sorted(maps.Keys(dialects)) {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			alone, fronted := startBoth(t, dialects[dialect])
			agreeOnTables(t, alone, fronted)
		})
	}
}

// TestTLSTable_HTTP10 keeps its connections under TLS, too, also on the standard servers once it
// has come there through the fast path.
func TestTLSTable_HTTP10(t *testing.T) {
	_, s := startBoth(t, func(*tls.Config) {})
	for raw, want := range map[string]int{
		legacy("/timestamp") + legacy("/timestamp") + sentinel:               3,
		legacy("/up") + legacy("/members") + sentinel:                        3,
		legacy("/up", "Transfer-Encoding: x") + legacy("/up"):                1,
		legacy("/timestamp") + legacy("/up", "Transfer-Encoding: x") + plain: 2,
	} {
		replies, rest := read(s.exchange(t, false, raw))
		if len(replies) != want || rest != "" || !replies[want-1].Close {
			t.Errorf("%q: %v, %q", raw, replies, rest)
		}
	}
}

func TestTLSTable_BothPathsAgreeOnFaults(t *testing.T) {
	alone, fronted := startBoth(t, func(*tls.Config) {})
	for _, err := range []error{
		isotone.ErrOverloaded,
		isotone.ErrNoLeader,
		&isotone.Error{Code: isotone.CodeNotLeader, Message: `ask "node" <1>`, Leader: "10.0.0.1:8080"},
		&isotone.Error{Code: isotone.CodeOverloaded, Message: "full", RetryAfter: 2100 * time.Millisecond},
		fmt.Errorf("wrapped: %w", isotone.ErrOverloaded),
	} {
		agreeOnFault(t, alone, fronted, err)
	}
}

// However a stream is cut into records, the same answers come out.
func TestTLSTable_BothPathsAgreeAtEverySplit(t *testing.T) {
	t.Parallel()
	alone, fronted := startBoth(t, func(*tls.Config) {})
	for name, raw := range map[string]string{
		"two": plain + plain, "hot, then up": plain + of("/up"), "hot, then close": plain + with("Connection: close") + plain,
		"hot, then cut": plain + plain[:20], "json": of("/timestamp?format=json"), "TLS within TLS": "\x16\x03\x01\x00\x05hello",
	} {
		agreeAtEverySplit(t, alone, fronted, name, raw)
	}
}
