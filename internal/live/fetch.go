package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/isotone/isotone"
)

const (
	// redirectsMax bounds the way to a document.
	redirectsMax = 5
	// fetchHeaderBytesMax bounds the header of an answer.
	fetchHeaderBytesMax = 64 << 10
	// A connection of HTTP/2 that says nothing for fetchPingAfter is asked whether it lives, and is
	// closed if it does not answer within fetchPingTimeout.
	fetchPingAfter   = 2 * time.Second
	fetchPingTimeout = 2 * time.Second
)

// fetch is a URL.
type fetch struct {
	url       *url.URL
	to        *destination
	transport *http.Transport
	client    *http.Client

	// The last answer, for its server to say that nothing has changed.
	tag  string
	last []byte
}

func newFetch(u *url.URL) *fetch {
	to := newDestination(u.Hostname())
	through, err := proxyOf(u)
	if through != nil {
		to.proxy = newDestination(through.Hostname())
	}
	transport := &http.Transport{
		Proxy:                  func(*http.Request) (*url.URL, error) { return through, err },
		DialContext:            to.dialPinned,
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        1,
		MaxResponseHeaderBytes: fetchHeaderBytesMax,
		// A connection of HTTP/2 that has gone silent is not closed by the end of a load, as one of
		// HTTP/1.1 is, and TCP hopes for a quarter of an hour.
		HTTP2: &http.HTTP2Config{SendPingTimeout: fetchPingAfter, PingTimeout: fetchPingTimeout},
	}
	f := &fetch{url: u, to: to, transport: transport}
	f.client = &http.Client{Transport: transport, CheckRedirect: f.checkRedirect}
	return f
}

// proxyOf returns the proxy of the environment for a URL, or nil. The package's own error would repeat
// the variable, which may have a password.
func proxyOf(u *url.URL) (*url.URL, error) {
	through, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "HTTP_PROXY or HTTPS_PROXY is no URL")
	}
	return through, nil
}

// pin holds the address that the first request of a load went to. A redirect must lead to the same
// machine, also if the name means another one by then.
type pin struct {
	mu sync.Mutex
	at string
}

type pinKey struct{}

// withPin returns a context for the requests of one load.
func withPin(ctx context.Context) context.Context {
	p := new(pin)
	ctx = context.WithValue(ctx, pinKey{}, p)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { p.set(info.Conn.RemoteAddr()) }})
}

func (p *pin) set(addr net.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == "" {
		p.at = addr.String()
	}
}

func (p *pin) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// dialPinned is dial to the address that this load has used already, if there is one. That address was
// vetted when it was dialed.
func (d *destination) dialPinned(ctx context.Context, network, addr string) (net.Conn, error) {
	if p, ok := ctx.Value(pinKey{}).(*pin); ok {
		if at := p.get(); at != "" {
			return new(net.Dialer).DialContext(ctx, network, at)
		}
	}
	return d.dial(ctx, network, addr)
}

// checkRedirect follows a few redirects, and none to another destination.
func (f *fetch) checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > redirectsMax {
		return fmt.Errorf("more than %d redirects", redirectsMax)
	}
	return f.to.checkRedirect(via[len(via)-1].URL, r.URL)
}

func (f *fetch) String() string { return shown(f.url) }

func (f *fetch) close() { f.transport.CloseIdleConnections() }

func (f *fetch) load(ctx context.Context, sizeMax int) ([]byte, error) {
	r, err := http.NewRequestWithContext(withPin(ctx), http.MethodGet, f.url.String(), nil)
	if err != nil {
		return nil, errors.New("not a URL for a request")
	}
	r.Header.Set("Accept", contentType)
	r.Header.Set("User-Agent", "isotone")
	if f.tag != "" {
		r.Header.Set("If-None-Match", f.tag)
	}
	answer, err := f.client.Do(r)
	if err != nil {
		var whole *url.Error
		if errors.As(err, &whole) {
			err = whole.Err // without the URL, which may have a token
		}
		return nil, onlyRefused(err)
	}
	// What is left of the body is not read: closing ends the connection then.
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		if f.tag != "" {
			return f.last, nil
		}
		fallthrough
	default:
		return nil, isotone.Errorf(codeOfStatus(answer.StatusCode), "the answer is %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	body, err := readAll(answer.Body, answer.ContentLength, sizeMax)
	if err != nil {
		return nil, err
	}
	f.tag, f.last = answer.Header.Get("Etag"), body
	if f.tag == "" {
		f.last = nil
	}
	return body, nil
}

// codeOfStatus returns what stands for the status of a failure.
func codeOfStatus(status int) isotone.Code {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return isotone.CodeNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return isotone.CodeUnauthorized
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return isotone.CodeOverloaded
	case http.StatusGatewayTimeout:
		return isotone.CodeDeadlineExceeded
	}
	return isotone.CodeInternal
}
