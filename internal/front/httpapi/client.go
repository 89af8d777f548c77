package httpapi

import (
	"crypto/x509"
	"net/http"
	"net/netip"
)

// AddrOf returns the address of a request's client; the zero Addr if it is not known.
func AddrOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr()
}

// ChainsOf returns the chains with which the handshake has verified the client's certificate, nil if it has none.
func ChainsOf(r *http.Request) [][]*x509.Certificate {
	if r.TLS == nil {
		return nil
	}
	return r.TLS.VerifiedChains
}
