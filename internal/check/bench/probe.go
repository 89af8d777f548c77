package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// TargetError means that no load was possible: no target is a reachable oracle, or no
// request was answered.
type TargetError string

func (e TargetError) Error() string { return string(e) }

func targetErrorf(format string, args ...any) error { return TargetError(fmt.Sprintf(format, args...)) }

// membersMax bounds the answer to GET /members.
const membersMax = 1 << 20

// membership is the part of GET /members that the probe uses.
type membership struct {
	Leader *struct {
		NodeID uint64
		Addr   string
	}
	Members []struct {
		NodeID uint64
		Addr   string
	}
	NodeID uint64 // of the node that answers
}

// probe asks the targets in order until one of them is an oracle, and returns the route to
// its leader.
func probe(ctx context.Context, o *Options, p protocol) (*route, error) {
	addrs, secure := o.targets()
	scheme := "http"
	if secure {
		scheme = "https"
	}
	if o.Static != "" {
		return newRoute(addrs), probeStatic(ctx, o, p, scheme+"://"+addrs[0]+o.Static)
	}
	var failures []string
	hint := "name a running node with --target"
	for _, addr := range addrs {
		m, err := askMembers(ctx, o, p, scheme+"://"+addr)
		if err != nil {
			if secure {
				err = whyRefused(ctx, o, addr, err)
			}
			failures = append(failures, err.Error())
			switch {
			case errors.As(err, new(*tls.CertificateVerificationError)):
				hint = "accept any certificate with --insecure, or name the CA's certificate with --ca FILE"
			case !refusesCertificate(err):
			case o.TLS == nil || len(o.TLS.Certificates) == 0 && o.TLS.GetClientCertificate == nil:
				hint = "the node wants a certificate of its clients: name one with --cert FILE and --key FILE"
			default:
				hint = "the node does not accept the certificate of --cert: it wants one that an authority in its TLS_CLIENT_CA has signed, for client authentication"
			}
			continue
		}
		r := newRoute(addrs)
		r.current = addr
		for _, member := range m.Members {
			if checkAddr(member.Addr) == nil {
				r.add(member.Addr)
			}
		}
		if m.Leader != nil && checkAddr(m.Leader.Addr) == nil {
			r.current = m.Leader.Addr
		}
		return r, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, targetErrorf("%s; %s", strings.Join(failures, "; "), hint)
}

// refusalWait bounds the second look of whyRefused.
const refusalWait = 2 * time.Second

// whyRefused returns what a node says in TLS about the certificate of this client, or else err. In
// TLS 1.3 it says so after the client's handshake: a request that is under way may find the
// connection closed, and HTTP/2 says no more than that.
func whyRefused(ctx context.Context, o *Options, addr string, err error) error {
	if refusesCertificate(err) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refusalWait)
	defer cancel()
	cfg := o.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	cfg.NextProtos = []string{"http/1.1"}
	c, dialed := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if dialed == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		_, _ = io.WriteString(c, "GET /up HTTP/1.1\r\nHost: "+addr+"\r\nConnection: close\r\n\r\n") // so that there is something to read
		_, dialed = c.Read(make([]byte, 1))
	}
	if dialed != nil && refusesCertificate(dialed) {
		return fmt.Errorf("%w: %w", err, dialed)
	}
	return err
}

// refusesCertificate reports whether err is an alert of the other side about this one's certificate
// (RFC 8446, section 6.2). Package tls has no type for them that QUIC shares.
func refusesCertificate(err error) bool {
	for _, alert := range []string{"certificate required", "bad certificate", "unknown certificate authority", "expired certificate", "unsupported certificate"} {
		if strings.Contains(err.Error(), "tls: "+alert) {
			return true
		}
	}
	return false
}

func askMembers(ctx context.Context, o *Options, p protocol, base string) (*membership, error) {
	response, body, err := get(ctx, o, p, base+"/members")
	if err != nil {
		return nil, err
	}
	m := new(membership)
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("%s: %s: name who asks with --user and --password-file, or --cert and --key; it needs the right to read", base, response.Status)
	}
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, m) != nil ||
		len(m.Members) == 0 && m.NodeID == 0 { // a node that has just started may know no members yet
		return nil, fmt.Errorf("%s is not an oracle: GET /members gives status %d and no list of members", base, response.StatusCode)
	}
	return m, nil
}

func probeStatic(ctx context.Context, o *Options, p protocol, url string) error {
	response, _, err := get(ctx, o, p, url)
	if err != nil {
		return TargetError(err.Error())
	}
	if response.StatusCode != http.StatusOK {
		return targetErrorf("GET %s: %s", url, response.Status)
	}
	return nil
}

// get makes one request that is not part of the load.
func get(ctx context.Context, o *Options, p protocol, url string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	auth := o.authorization(request.URL.Scheme == "https")
	if err := auth.check(request.URL.Host); err != nil {
		return nil, nil, err
	}
	if header := auth.header(); header != "" {
		request.Header.Set("Authorization", header)
	}
	body := make([]byte, membersMax)
	response, err := roundTrip(p.client(), request, body)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil, fmt.Errorf("cannot reach %s: no answer within %v", url, o.Timeout)
	case err != nil:
		return nil, nil, unreachable{url, err}
	}
	return response, body[:response.ContentLength], nil
}

// unreachable is a request that got no answer.
type unreachable struct {
	url string
	err error
}

func (e unreachable) Error() string {
	return fmt.Sprintf("cannot reach %s: %s", e.url, oneLine(e.err.Error()))
}

func (e unreachable) Unwrap() error { return e.err }

// oneLine replaces line breaks in the error of a library by spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
