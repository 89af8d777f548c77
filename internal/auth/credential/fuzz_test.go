package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// revocationList returns a list with serial numbers, signed by an authority of its own.
func revocationList(tb testing.TB, serials ...int64) []byte {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCRLSign, SubjectKeyId: []byte{1},
	}
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, serial := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(serial), RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, authority, key)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

func asPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// TestParseRevocations_ADamagedListIsNotSkipped although pem.Decode would go on with the next one.
func TestParseRevocations_ADamagedListIsNotSkipped(t *testing.T) {
	whole := asPEM(revocationList(t, 7))
	if all, err := parseRevocations(append(bytes.Clone(whole), whole...)); err != nil || len(all) != 2 {
		t.Fatalf("%d lists, %v", len(all), err)
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] = '!'
	for name, text := range map[string][]byte{
		"first": append(bytes.Clone(damaged), whole...), "last": append(bytes.Clone(whole), damaged...),
		"cut off": append(bytes.Clone(whole[:len(whole)/2]), whole...), "alone": damaged,
	} {
		if all, err := parseRevocations(text); err == nil {
			t.Errorf("%s: %d lists, and the damaged one is ignored", name, len(all))
		}
	}
	if all, err := parseRevocations(append([]byte("Certificate Revocation List (CRL):\n"), whole...)); err != nil || len(all) != 1 {
		t.Errorf("with a text before it, as openssl writes: %d lists, %v", len(all), err)
	}
}

// FuzzParseRevocations has revocation lists, in PEM or as the content of a block. They are read as
// a whole or not at all, and are the same when they are written down again.
func FuzzParseRevocations(f *testing.F) {
	for _, der := range [][]byte{revocationList(f), revocationList(f, 1, 2, 3, 1<<40)} {
		f.Add(asPEM(der), false)
		f.Add(append(asPEM(der), asPEM(der)...), false)
		f.Add(der, true)
	}
	f.Add([]byte{}, false)
	f.Add([]byte("-----BEGIN X509 CRL-----\n!\n-----END X509 CRL-----\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, inner bool) {
		if inner {
			text = asPEM(text)
		}
		all, err := parseRevocations(text)
		if err != nil {
			if all != nil {
				t.Fatalf("a part of it is used: %v", err)
			}
			return
		}
		var written []byte
		for _, r := range all {
			if len(r.serials) > len(r.list.RevokedCertificateEntries) || len(r.list.Raw) > len(text) {
				t.Fatalf("%d serial numbers of %d entries", len(r.serials), len(r.list.RevokedCertificateEntries))
			}
			for _, e := range r.list.RevokedCertificateEntries {
				if _, ok := r.serials[string(e.SerialNumber.Bytes())]; !ok {
					t.Fatalf("%v is not revoked", e.SerialNumber)
				}
			}
			written = append(written, asPEM(r.list.Raw)...)
		}
		again, err := parseRevocations(written)
		if err != nil || len(again) != len(all) || len(all) != bytes.Count(text, []byte("-----BEGIN ")) {
			t.Fatalf("%d lists of %q are read as %d: %v", len(all), text, len(again), err)
		}
		for i := range all {
			if !bytes.Equal(again[i].list.Raw, all[i].list.Raw) || len(again[i].serials) != len(all[i].serials) {
				t.Fatalf("list %d is another one", i)
			}
		}
	})
}
