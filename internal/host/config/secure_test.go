package config_test

import (
	"slices"
	"strings"
	"testing"
)

func TestJoin_MayNeedTLS(t *testing.T) {
	if s := parseAll(t, nil, "--join=https://a.example:8080, 10.0.0.1:8080"); !slices.Equal(s.Join, []string{"https://a.example:8080", "10.0.0.1:8080"}) {
		t.Errorf("%q", s.Join)
	}
	for _, bad := range []string{"https://a", "https://", "http://a:1", "ftp://a:1", "https://a:1/x", "https://0.0.0.0:1"} {
		if _, err := parse(t, nil, "--join="+bad); err == nil || !strings.Contains(err.Error(), "JOIN") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestForward_NeedsTLSWhereOthersDemandIt(t *testing.T) {
	if _, err := parse(t, nil, "--forward", "--require-tls"); err == nil || !strings.Contains(err.Error(), "FORWARD_CA (--forward-ca)") {
		t.Errorf("%v", err)
	}
	for args, want := range map[string]string{
		"--forward --peers=1=localhost:1,2=10.0.0.2:1":                    "FORWARD_CA (--forward-ca)",
		"--join=10.0.0.2:1 --node-id=2":                                   "want https://10.0.0.2:1",
		"--join=https://10.0.0.2:1,node3:1 --node-id=2":                   "want https://node3:1",
		"--forward --peers=1=localhost:1,2=127.0.0.1:2":                   "",
		"--forward --peers=1=localhost:1,2=10.0.0.2:1 --forward-ca=x.pem": "",
		"--join=localhost:1,https://10.0.0.2:1 --node-id=2":               "",
	} {
		_, err := parse(t, nil, append(strings.Fields(args), "--forward-credential-file=secret")...)
		if inClear := err != nil && strings.Contains(err.Error(), "in plaintext"); inClear != (want != "") || inClear && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if s := parseAll(t, nil, "--forward", "--require-tls", "--forward-ca=ca.pem", "--forward-credential-file=secret"); s.ForwardCA != "ca.pem" || s.ForwardCredentialFile != "secret" {
		t.Errorf("%+v", s)
	}
}

// TestAdminAddr_HasNoTLS, so it stays on this machine where TLS is required.
func TestAdminAddr_HasNoTLS(t *testing.T) {
	for addr, refused := range map[string]bool{"127.0.0.1:9090": false, "localhost:9090": false, "[::1]:0": false, "0.0.0.0:9090": true, "10.0.0.1:9090": true} {
		if _, err := parse(t, nil, "--require-tls", "--admin-addr="+addr); (err != nil) != refused || refused && !strings.Contains(err.Error(), "ADMIN_ADDR (--admin-addr)") {
			t.Errorf("%s: %v", addr, err)
		}
		if _, err := parse(t, nil, "--admin-addr="+addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
