package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// multiplex is HTTP/3: a connection carries several requests at a time, each in its own stream, and
// each caller uses one stream. quic-go does the framing and header compression; its cost limits the
// rate.
type multiplex struct {
	perConnection int
	path          string
	read          reading
	auth          authorization
	connections   []*connection
}

// connection is what the callers of one connection share.
type connection struct {
	tripper http.RoundTripper
	close   func()
	// opening serialises dials, so that the callers open only one connection.
	opening sync.Mutex
}

func newMultiplex(o *Options, tlsConfig *tls.Config) *multiplex {
	p := &multiplex{
		perConnection: o.Pipeline,
		path:          requestPath(o),
		read:          reading{count: o.Count},
		auth:          o.authorization(tlsConfig != nil),
	}
	for range o.Connections {
		p.connections = append(p.connections, newH3(tlsConfig, o.Timeout))
	}
	return p
}

// newH3 sets keep-alive times so that a connection to a node that has silently gone away ends after about timeout.
func newH3(tlsConfig *tls.Config, timeout time.Duration) *connection {
	t := &http3.Transport{
		TLSClientConfig:    tlsConfig.Clone(),
		DisableCompression: true,
		QUICConfig: &quic.Config{
			HandshakeIdleTimeout: timeout,
			MaxIdleTimeout:       2 * timeout,
			KeepAlivePeriod:      timeout / 2,
		},
	}
	return &connection{tripper: t, close: func() { _ = t.Close() }}
}

func (p *multiplex) shape() (callers, depth int) {
	return len(p.connections) * p.perConnection, 1
}

func (p *multiplex) client() http.RoundTripper { return p.connections[0].tripper }

func (p *multiplex) close() {
	for _, c := range p.connections {
		c.close()
	}
}

// dial opens the connection with a request, so that the first request of the load is not
// slower than the others, and so that an unreachable node fails here.
func (p *multiplex) dial(ctx context.Context, id int, addr string) (conn, error) {
	if err := p.auth.check(addr); err != nil {
		return nil, err
	}
	shared := p.connections[id/p.perConnection]
	shared.opening.Lock()
	defer shared.opening.Unlock()
	up, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+"/up", nil)
	if err != nil {
		return nil, err
	}
	if _, err := roundTrip(shared.tripper, up, make([]byte, answerMax)); err != nil {
		return nil, err
	}
	s := &stream{shared: shared, read: p.read, body: make([]byte, readBufferMin)}
	own, abort := context.WithCancel(context.Background())
	s.abortFunc = abort
	s.request, err = http.NewRequestWithContext(own, http.MethodGet, "https://"+addr+p.path, nil)
	if err != nil {
		abort()
		return nil, err
	}
	if header := p.auth.header(); header != "" {
		s.request.Header.Set("Authorization", header)
	}
	return s, nil
}

// stream sends one request after another, each in a new stream of a shared connection.
type stream struct {
	shared    *connection
	request   *http.Request
	abortFunc context.CancelFunc
	read      reading
	body      []byte
}

// send does nothing: receive sends the request and waits for the answer.
func (s *stream) send(int) error { return nil }

func (s *stream) receive(a *answer) error {
	*a = answer{}
	response, err := roundTrip(s.shared.tripper, s.request, s.body)
	if err != nil {
		return err
	}
	a.leader = response.Header.Get(leaderHeader)
	return s.read.finish(a, response.StatusCode, s.body[:response.ContentLength])
}

func (s *stream) buffered() bool { return false }

func (s *stream) abort() { s.abortFunc() }

func (s *stream) close() { s.abortFunc() }

// roundTrip sends a request and reads the body of the answer into body. It sets
// ContentLength to the number of bytes read.
func roundTrip(tripper http.RoundTripper, request *http.Request, body []byte) (*http.Response, error) {
	response, err := tripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	n, err := io.ReadFull(response.Body, body)
	switch err {
	case io.EOF, io.ErrUnexpectedEOF:
		response.ContentLength = int64(n)
		return response, nil
	case nil:
		return nil, fmt.Errorf("%w: more than %d bytes", errMalformed, len(body))
	}
	return nil, err
}
