package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// outMax bounds what a handler has written and the loop has not sent.
const outMax = 32 << 10

// errEnded is what a handler gets whose stream has ended.
var errEnded = errors.New("http2: the stream has ended")

// exchange is a request that a handler answers on a goroutine. What the two sides of it share is
// under mu; the loop takes what it sends from there.
type exchange struct {
	conn    *conn
	stream  *stream // belongs to the loop
	request *http.Request
	cancel  context.CancelFunc
	body    *body // nil: the request has none
	writer  writer

	mu     sync.Mutex
	head   []field // to be sent; nil: there is none, or it was sent
	sent   bool    // head was sent
	out    []byte  // to be sent after it
	ended  bool    // the answer ends after out, or tail
	tail   []field // the trailers; nil: there are none
	broken code    // the handler has failed; the stream is reset
	last   bool    // the connection ends after this answer
	gone   bool    // the stream has ended
	posted bool    // the loop will look
	waits  bool    // the client waits for "100 Continue"
	room   chan struct{}
	expiry *time.Timer // resets the stream
}

// newExchange returns an exchange for r. It fails for a request that net/http would not read, either.
func newExchange(c *conn, s *stream, r *request) (*exchange, error) {
	x := &exchange{conn: c, stream: s, room: make(chan struct{}, 1)}
	x.writer.exchange = x
	if !s.ended {
		x.body = &body{exchange: x, come: make(chan struct{}, 1)}
	}
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(context.Background())
	made, err := c.httpRequest(r, ctx)
	if err != nil {
		x.cancel()
		return nil, err
	}
	if x.body != nil {
		made.Body, made.ContentLength = x.body, r.length
		x.body.expected = strings.EqualFold(made.Header.Get("Expect"), "100-continue")
	}
	x.request = made
	return x, nil
}

// httpRequest returns r as a handler gets it, without a body.
func (c *conn) httpRequest(r *request, ctx context.Context) (*http.Request, error) {
	made := &http.Request{
		Method: r.method, Host: r.authority, RequestURI: r.path, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: make(http.Header, len(r.fields)), Body: http.NoBody, RemoteAddr: c.remote(), TLS: c.tlsState(),
	}
	var err error
	if r.method == http.MethodConnect {
		made.URL, made.RequestURI = &url.URL{Host: r.authority}, r.authority
	} else if made.URL, err = url.ParseRequestURI(r.path); err != nil {
		return nil, err
	}
	for _, f := range r.fields {
		switch name := http.CanonicalHeaderKey(f.Name); {
		case f.Name == "host":
			made.Host = f.Value
		case f.Name == "cookie" && len(made.Header[name]) > 0:
			made.Header[name][0] += "; " + f.Value // RFC 9113 §8.2.3
		default:
			made.Header[name] = append(made.Header[name], f.Value)
		}
	}
	return made.WithContext(ctx), nil
}

func (c *conn) remote() string {
	if c.remoteAddr == "" {
		at := c.conn.Remote()
		c.remoteAddr = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	}
	return c.remoteAddr
}

// tlsState returns nil without TLS.
func (c *conn) tlsState() *tls.ConnectionState {
	if secured, ok := c.conn.Layer().(interface{ ConnectionState() tls.ConnectionState }); ok && c.tls == nil {
		state := secured.ConnectionState()
		c.tls = &state
	}
	return c.tls
}

// start runs the handler.
func (x *exchange) start() {
	f := x.conn.front
	x.conn.running.Add(1)
	x.SetWriteDeadline(time.Now().Add(f.cfg.Limits.WriteTimeout))
	f.exchanges.Go(x.run)
}

func (x *exchange) run() {
	defer x.cancel()
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				x.conn.front.cfg.Log.Error("panic in a request", "panic", p, "stack", string(debug.Stack()))
			}
			x.finish(codeInternal)
		}
	}()
	x.conn.front.cfg.Handler.ServeHTTP(&x.writer, x.request)
	x.finish(x.writer.end())
}

// finish ends the answer, or with a code the stream.
func (x *exchange) finish(why code) {
	x.conn.running.Add(-1) // before the client can know
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended = true; x.broken == codeNone { // else its time is over, which the loop has not seen yet
		x.broken = why
	}
	x.post()
}

// post has the loop look at the exchange. x.mu is held.
func (x *exchange) post() {
	if !x.posted && (!x.gone || x.last) {
		x.posted = x.conn.front.cfg.Loop.Post(x.look)
	}
}

// look sends what there is. It runs on the loop's goroutine.
func (x *exchange) look() {
	c := x.conn
	x.mu.Lock()
	x.posted = false
	gone, last := x.gone, x.last
	x.mu.Unlock()
	switch {
	case !gone:
		c.pump(x.stream)
		c.keep()
	case last: // nobody reads the answer, but what it says about the connection holds
		c.finish(codeNone, errGoAway)
	}
}

// pumpExchange sends what the exchange has, and reports whether that was all. x.mu is held.
func (c *conn) pumpExchange(s *stream, x *exchange) (done bool) {
	if x.gone {
		return false
	}
	if x.body != nil {
		n := x.body.takeRead()
		c.giveBack(n)
		c.giveBackStream(s, n)
	}
	if x.broken != codeNone {
		if s.answered {
			x.broken = codeNone // the client may keep the answer
		}
		c.resetStream(s.id, x.broken)
		s.ended = true // nothing else is to be said
		return true
	}
	if s.answered {
		return false
	}
	if x.waits {
		x.waits = false
		if x.head == nil && !x.sent {
			c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders, s.id, c.encoder.encode(goOn, &c.front.encoded)))
		}
	}
	last := x.ended && x.tail == nil // the data is followed by nothing
	said := false                    // END_STREAM
	if x.head != nil {
		said = last && len(x.out) == 0
		c.sendHead(s, x, said)
	}
	if had := len(x.out); had > 0 {
		if x.out = c.send(s, x.out, last); len(x.out) < had {
			x.signal()
		}
		said = last && len(x.out) == 0
	}
	if !x.ended || len(x.out) > 0 {
		return false
	}
	if x.tail != nil {
		block := c.encoder.encode(x.tail, &c.front.encoded)
		c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders|flagEndStream, s.id, block))
	} else if !said {
		c.conn.SetBuffered(appendFrame(c.conn.Buffered(), frameData, flagEndStream, s.id, 0))
	}
	return true
}

// goOn is the answer 100, which asks for the body.
var goOn = []field{{Name: ":status", Value: "100"}}

// sendHead sends the head. x.mu is held.
func (c *conn) sendHead(s *stream, x *exchange, ends bool) {
	flags := byte(flagEndHeaders)
	if ends {
		flags |= flagEndStream
	}
	block := c.encoder.encode(x.head, &c.front.encoded)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flags, s.id, block))
	x.head, x.sent = nil, true
	c.earn()
	if x.last {
		c.finish(codeNone, errGoAway)
	}
}

// errGoAway ends connections after an answer with "Connection: close".
var errGoAway = errors.New("http2: the connection ends after an answer")

// signal says that there may be room, or that the stream has ended. x.mu is held.
func (x *exchange) signal() {
	select {
	case x.room <- struct{}{}:
	default:
	}
}

// abandon ends the exchange's part in the stream. It runs on the loop's goroutine.
func (x *exchange) abandon() {
	x.mu.Lock()
	x.leave()
	done := x.ended
	x.mu.Unlock()
	if x.body != nil {
		x.body.end(errEnded)
	}
	if !done {
		x.cancel()
	}
}

// leave has the exchange not touch the stream any more. x.mu is held.
func (x *exchange) leave() {
	x.gone = true
	x.signal()
	if x.expiry != nil {
		x.expiry.Stop()
	}
}

// unread returns how many bytes of the body count for the connection's window.
func (x *exchange) unread() int64 {
	if x.body == nil {
		return 0
	}
	return x.body.drop()
}

// push gives b to the loop, and waits while there is too much.
func (x *exchange) push(b []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.gone || x.ended {
			return errEnded
		}
		n := min(len(b), outMax-len(x.out))
		x.out = append(x.out, b[:n]...)
		b = b[n:]
		x.post()
		if len(b) == 0 {
			return nil
		}
		x.mu.Unlock()
		<-x.room
		x.mu.Lock()
	}
}

// flush waits until the loop has sent all.
func (x *exchange) flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for !x.gone && !x.ended && len(x.out) > 0 {
		x.mu.Unlock()
		<-x.room
		x.mu.Lock()
	}
	if x.gone {
		return errEnded
	}
	return nil
}

// SetWriteDeadline has the stream reset at a time; the zero time: never.
func (x *exchange) SetWriteDeadline(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.expiry != nil {
		x.expiry.Stop()
		x.expiry = nil
	}
	if at.IsZero() || x.gone {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.expiry == timer {
			x.broken = codeInternal
			x.post()
		}
	})
	x.expiry = timer
}

// appendFields appends the fields of h in the order of their names.
func appendFields(fields []field, h http.Header) []field {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lower := strings.ToLower(name)
		for _, value := range h[name] {
			if f := (field{Name: lower, Value: value}); isName(lower) && isValue(value) && !isOfConnection(f) {
				fields = append(fields, f)
			}
		}
	}
	return fields
}
