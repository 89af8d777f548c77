package authority

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const year = 365 * 24 * time.Hour

func made(t *testing.T) func(Made, error) Made {
	return func(m Made, err error) Made {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func cert(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	certs, err := readCerts(file)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func mode(t *testing.T, file string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestDir_MakesAWorkingSet(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "certs")}
	must := made(t)
	ca := must(d.Authority("Test", 2*year, false))
	node := must(d.Sign(Node("prod.example", 7, []string{"n7.example", "10.0.0.7"}), year))
	client := must(d.Sign(Client("prod.example", "orders"), 5*year))
	for _, m := range []Made{ca, node, client} {
		if mode(t, m.Key) != 0o600 || mode(t, m.Cert) != 0o644 {
			t.Errorf("%s: %v, %v", m.Cert, mode(t, m.Key), mode(t, m.Cert))
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert(t, ca.Cert))
	verify := func(file string, usage x509.ExtKeyUsage) error {
		_, err := cert(t, file).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	if err := errors.Join(verify(node.Cert, x509.ExtKeyUsageServerAuth), verify(node.Cert, x509.ExtKeyUsageClientAuth), verify(client.Cert, x509.ExtKeyUsageClientAuth)); err != nil {
		t.Error(err)
	}
	if verify(client.Cert, x509.ExtKeyUsageServerAuth) == nil {
		t.Error("a client may serve")
	}
	n, c := cert(t, node.Cert), cert(t, client.Cert)
	if n.Subject.CommonName != "node7" || n.URIs[0].String() != "spiffe://prod.example/isotone/node/7" || !slices.Equal(n.DNSNames, []string{"n7.example"}) || n.IPAddresses[0].String() != "10.0.0.7" {
		t.Errorf("%+v", n)
	}
	if c.Subject.CommonName != "orders" || c.URIs[0].String() != "spiffe://prod.example/isotone/client/orders" {
		t.Errorf("%+v", c)
	}
	if end := cert(t, ca.Cert).NotAfter; !c.NotAfter.Equal(end) {
		t.Errorf("valid until %v, and the authority until %v", c.NotAfter, end)
	}
}

func TestDir_OverwritesOnlyWhenTold(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	must := made(t)
	if _, err := d.Sign(Node("x", 1, nil), year); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	must(d.Authority("Test", year, false))
	first := must(d.Sign(Node("x", 1, nil), year))
	before, _ := os.ReadFile(first.Key)
	var exists *ExistsError
	if _, err := d.Sign(Node("x", 1, nil), year); !errors.As(err, &exists) || exists.Path != first.Cert {
		t.Error(err)
	}
	if _, err := d.Authority("Test", year, false); !errors.As(err, &exists) {
		t.Error(err)
	}
	if after, _ := os.ReadFile(first.Key); string(after) != string(before) {
		t.Error("the key was replaced")
	}
	d.Overwrite = true
	if second := must(d.Sign(Node("x", 1, nil), year)); second.Serial == first.Serial {
		t.Error("not replaced")
	}
	if files, _ := filepath.Glob(filepath.Join(d.Path, ".new*")); files != nil {
		t.Error(files)
	}
}

func TestDir_AuthoritiesFollowEachOther(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	must := made(t)
	if _, err := d.Authority("Test", year, true); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an authority was added to none:", err)
	}
	must(d.Authority("Test", year, false))
	old := must(d.Sign(Node("x", 1, nil), year))
	must(d.Authority("Test", year, true))
	must(d.Authority("Test", year, true))
	fresh := must(d.Sign(Node("x", 2, nil), year))
	bundle, err := readCerts(d.file(BundleFile))
	if err != nil || len(bundle) != 3 {
		t.Fatal(len(bundle), err)
	}
	if cert(t, fresh.Cert).CheckSignatureFrom(bundle[0]) != nil || cert(t, old.Cert).CheckSignatureFrom(bundle[2]) != nil {
		t.Error("the newest does not sign, or is not the first")
	}
	if m := must(d.Revoke(old.Cert, fresh.Cert)); len(m.Names) != 2 {
		t.Error(m)
	}
	lists, err := d.lists()
	if err != nil || len(lists) != 2 || lists[0].CheckSignatureFrom(bundle[2]) != nil || lists[1].CheckSignatureFrom(bundle[0]) != nil {
		t.Error(len(lists), err)
	}
	must(d.Retire())
	if bundle, err = readCerts(d.file(BundleFile)); err != nil || len(bundle) != 1 || cert(t, fresh.Cert).CheckSignatureFrom(bundle[0]) != nil {
		t.Error(len(bundle), err)
	}
	must(d.Sign(Node("x", 3, nil), year))
}

func TestDir_RevokesOnce(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	must := made(t)
	must(d.Authority("Test", year, false))
	var files []string
	for id := range uint64(3) {
		files = append(files, must(d.Sign(Node("x", id+1, nil), year)).Cert)
	}
	if err := os.WriteFile(d.file(CRLFile), nil, 0o644); err != nil { // as nodes have it from the start
		t.Fatal(err)
	}
	must(d.Revoke(files[0]))
	if m := must(d.Revoke(files[0], files[2], files[0])); len(m.Names) != 2 {
		t.Errorf("two certificates are revoked, one of them named twice: %q", m.Names)
	}
	lists, err := d.lists()
	if err != nil || len(lists) != 1 {
		t.Fatal(len(lists), err)
	}
	if l := lists[0]; len(l.RevokedCertificateEntries) != 2 || l.Number.Int64() != 3 {
		t.Errorf("%d, number %v", len(l.RevokedCertificateEntries), l.Number)
	}
	other := Dir{Path: t.TempDir()}
	must(other.Authority("Test", year, false))
	if _, err := d.Revoke(must(other.Sign(Node("x", 1, nil), year)).Cert); err == nil {
		t.Error("the certificate of another authority was revoked")
	}
	if err := os.Remove(d.file(KeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Revoke(files[1]); err == nil {
		t.Error("revoked without a key")
	}
}
