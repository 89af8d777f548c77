package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// peerPortTimeout bounds the question whether an address that does not answer as a node should is a peer port.
const peerPortTimeout = 5 * time.Second

// isPeerPort reports whether an answer comes from a peer port.
func isPeerPort(response *http.Response) bool {
	return response.StatusCode == http.StatusMisdirectedRequest && response.Header.Get(peer.HTTPField) == "peer"
}

// IsPeerPort asks an address whether it is a peer port, without TLS and credentials: peers may speak in plaintext, or demand
// certificates of their own.
func IsPeerPort(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, peerPortTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return false
	}
	response, err := Transport().RoundTrip(r)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return isPeerPort(response)
}

// explain replaces an answer or an error of a request that went to a peer port.
func (a *Access) explain(r *http.Request, response *http.Response, err error) (*http.Response, error) {
	var dial *net.OpError
	other := errors.As(err, new(tls.RecordHeaderError)) // a server that answers in plaintext
	switch {
	case err == nil && isPeerPort(response):
		_ = response.Body.Close()
		return nil, survey.ErrPeerPort
	case err == nil || a.sockets[r.URL.Hostname()] != "" || r.URL.Scheme != "https" || other || errors.As(err, &dial) && dial.Op == "dial":
	case IsPeerPort(r.Context(), r.URL.Host):
		return nil, survey.ErrPeerPort
	}
	return response, err
}
