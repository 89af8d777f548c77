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
	// answerMax bounds one answer, header and body. The largest answer of a node, an
	// error with a long message, has well under a kilobyte.
	answerMax = 64 << 10
)

// pipelined is a protocol whose requests follow each other on a byte stream, and whose
// answers come in the same order. It is written by hand because the cost of a request
// limits the load: a request is a copy of prepared bytes, an answer is parsed in the read
// buffer, and neither allocates.
type pipelined struct {
	callers, depth int
	// request returns the bytes of one request to the node at addr.
	request func(addr string) string
	parse   parser
	// usual is the length of most answers in bytes.
	usual     int
	tls       *tls.Config // nil: no TLS
	auth      authorization
	begin     func(net.Conn) error                            // the first exchange on a connection; may be nil
	wrap      func(c net.Conn, addr string) (net.Conn, error) // what is written and read instead of c; may be nil
	transport *http.Transport
}

// parser parses one answer at the beginning of b into *a and returns its length, or 0 if
// it is incomplete. What follows the answer makes no difference.
type parser func(b []byte, a *answer) (int, error)

func newPipelined(o *Options, tlsConfig *tls.Config) *pipelined {
	return &pipelined{
		callers:   o.Connections,
		depth:     o.Pipeline,
		tls:       tlsConfig,
		auth:      o.authorization(tlsConfig != nil),
		transport: &http.Transport{TLSClientConfig: tlsConfig.Clone(), DisableKeepAlives: true},
	}
}

func (p *pipelined) shape() (callers, depth int) { return p.callers, p.depth }

func (p *pipelined) client() http.RoundTripper { return p.transport }

func (p *pipelined) close() { p.transport.CloseIdleConnections() }

func (p *pipelined) dial(ctx context.Context, _ int, addr string) (conn, error) {
	if err := p.auth.check(addr); err != nil {
		return nil, err
	}
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
	if p.begin != nil {
		if err := p.first(ctx, c); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	if p.wrap != nil {
		wrapped, err := p.wrap(c, addr)
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		c = wrapped
	}
	return p.pipe(c, addr), nil
}

// first makes the first exchange on c, at most until ctx ends.
func (p *pipelined) first(ctx context.Context, c net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := p.begin(c)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return err
}

// pipe returns the conn on an open connection to addr.
func (p *pipelined) pipe(c net.Conn, addr string) *pipe {
	request := p.request(addr)
	return &pipe{
		net:      c,
		parse:    p.parse,
		requests: bytes.Repeat([]byte(request), p.depth),
		size:     len(request),
		buffer:   make([]byte, max(readBufferMin, p.depth*p.usual)),
	}
}

// pipe is one connection.
type pipe struct {
	net      net.Conn
	parse    parser
	requests []byte // as many as may be under way
	size     int    // of one request
	buffer   []byte
	from, to int  // buffer[from:to] has been read and not yet received
	under    int  // requests under way
	last     bool // the node has announced that it closes the connection
}

func (c *pipe) send(n int) error {
	if c.under == 0 && c.from != c.to {
		// They would be taken for the answer to the next request.
		return fmt.Errorf("%w: data without a request", errMalformed)
	}
	c.under += n
	_, err := c.net.Write(c.requests[:n*c.size])
	return err
}

func (c *pipe) receive(a *answer) error {
	if c.last {
		return io.EOF // anything that follows is not an answer
	}
	for along := true; ; along = false {
		n, err := c.parse(c.buffer[c.from:c.to], a)
		if err != nil {
			return err
		}
		if n > 0 {
			c.from += n
			c.under--
			c.last = a.last
			a.along = along
			return nil
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// fill reads at least one more byte, or returns an error.
func (c *pipe) fill() error {
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

func (c *pipe) buffered() bool { return c.from != c.to }

func (c *pipe) abort() { _ = c.net.SetDeadline(time.Unix(1, 0)) }

func (c *pipe) close() { _ = c.net.Close() }
