package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// readBufferMin holds dozens of answers to pipelined requests.
	readBufferMin = 4 << 10
	// answerMax bounds one answer, header and body; the largest of a node, an error
	// with a long message, has well under a kilobyte.
	answerMax = 64 << 10
)

// http1 is HTTP/1.1, in the clear or under TLS, with requests pipelined (RFC 9112
// §9.3.2). It is written by hand because the cost of a request is what limits a load
// generator: a request is a copy of prepared bytes, an answer is parsed where it was
// read, and neither allocates.
type http1 struct {
	lanes, depth int
	path         string
	read         reading
	tls          *tls.Config // nil: in the clear
	transport    *http.Transport
}

func newHTTP1(o *Options, tlsConfig *tls.Config) *http1 {
	p := &http1{
		lanes:     o.Connections,
		depth:     o.Pipeline,
		path:      requestPath(o),
		read:      reading{count: o.Count, static: o.Static != ""},
		tls:       tlsConfig,
		transport: &http.Transport{TLSClientConfig: tlsConfig.Clone(), DisableKeepAlives: true},
	}
	if tlsConfig != nil {
		p.tls = tlsConfig.Clone()
		p.tls.NextProtos = []string{"http/1.1"}
	}
	return p
}

func (p *http1) shape() (lanes, depth int) { return p.lanes, p.depth }

func (p *http1) client() http.RoundTripper { return p.transport }

func (p *http1) close() { p.transport.CloseIdleConnections() }

func (p *http1) dial(ctx context.Context, _ int, addr string) (conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		config := p.tls
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(c, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		c = secure
	}
	return newHTTP1Conn(c, p.request(addr), p.depth, p.read), nil
}

func (p *http1) request(addr string) string {
	return "GET " + p.path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"
}

// http1Conn is one connection.
type http1Conn struct {
	net      net.Conn
	read     reading
	requests []byte // as many as may be under way
	size     int    // of one request
	buffer   []byte
	from, to int  // what has been read and not yet received
	under    int  // requests under way
	last     bool // the node has said that it ends the connection
}

func newHTTP1Conn(c net.Conn, request string, depth int, read reading) *http1Conn {
	return &http1Conn{
		net:      c,
		read:     read,
		requests: bytes.Repeat([]byte(request), depth),
		size:     len(request),
		buffer:   make([]byte, readBufferMin),
	}
}

func (c *http1Conn) send(n int) error {
	if c.under == 0 && c.from != c.to {
		// Taken for the answer to what is sent next, it would be an early one.
		return fmt.Errorf("%w: bytes that nobody asked for", errMalformed)
	}
	c.under += n
	_, err := c.net.Write(c.requests[:n*c.size])
	return err
}

func (c *http1Conn) receive(a *answer) error {
	if c.last {
		return io.EOF // what may follow is no answer
	}
	for {
		n, err := c.read.parse(c.buffer[c.from:c.to], a)
		if err != nil {
			return err
		}
		if n > 0 {
			c.from += n
			c.under--
			c.last = a.last
			return nil
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// fill reads more, in any case at least a byte.
func (c *http1Conn) fill() error {
	switch {
	case c.from == c.to:
		c.from, c.to = 0, 0
	case c.to == len(c.buffer) && c.from > 0:
		c.from, c.to = 0, copy(c.buffer, c.buffer[c.from:c.to])
	case c.to == len(c.buffer) && len(c.buffer) < answerMax:
		c.buffer = append(c.buffer, make([]byte, len(c.buffer))...)
	case c.to == len(c.buffer):
		return fmt.Errorf("%w: more than %d bytes", errMalformed, answerMax)
	}
	n, err := c.net.Read(c.buffer[c.to:])
	if n > 0 {
		c.to += n
		return nil // an error comes back with the next read
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (c *http1Conn) buffered() bool { return c.from != c.to }

func (c *http1Conn) abort() { _ = c.net.SetDeadline(time.Unix(1, 0)) }

func (c *http1Conn) close() { _ = c.net.Close() }
