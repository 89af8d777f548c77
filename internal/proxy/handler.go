package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// handler is the standard path: it forwards any request, from any of net/http's servers. It is
// safe for concurrent use.
type handler struct {
	cfg      *Config
	balancer *balancer
	report   func(*record)
	backends http.RoundTripper
	active   atomic.Int64
	threads  stats.Threads
}

// newTransport returns the standard path's connections to backends, separate from those of the
// fast path.
func newTransport(cfg *Config) *http.Transport {
	l := &cfg.Limits
	dialer := net.Dialer{Timeout: l.ConnectTimeout}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        cfg.BackendTLS.Clone(), // HTTP/1.1, as on the fast path
		TLSHandshakeTimeout:    l.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		MaxConnsPerHost:        l.BackendConnectionsMax,
		IdleConnTimeout:        idleBackendTime,
		MaxResponseHeaderBytes: headBytesMax,
		ExpectContinueTimeout:  time.Second,
	}
}

// exchange is one request on the standard path.
type exchange struct {
	*handler
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // cancels ctx
	began  time.Duration
	record record
	span   requestSpan
	// section measures the cost of the handler; only if release is not nil.
	section    stats.Timer
	release    func()
	tried      balance.Request
	closeAfter bool // close the connection after the answer
	body       *body
	conn       *validatingConn // nil with HTTP/2 over TLS
	// answered: the head of the answer has arrived, and the timer has no effect.
	answered atomic.Bool
}

// errAnswerTimeout is the cause of a context whose exchange took too long; errPause is another
// such cause.
var errAnswerTimeout = errors.New("no answer in time")

// ServeHTTP forwards one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{handler: h, w: w, r: r, began: h.balancer.now()}
	e.conn, _ = r.Context().Value(connKey{}).(*validatingConn)
	ambiguous := e.conn != nil && r.ProtoMajor == 1 && !e.conn.handled()
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Otherwise net/http reads the rest of the body before it answers, while the transport
		// reads the same body and would miss parts of it.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	e.ctx, e.cancel = context.WithCancelCause(r.Context())
	e.timer = time.AfterFunc(h.cfg.Limits.AnswerTimeout, func() {
		if !e.answered.Load() {
			e.cancel(errAnswerTimeout)
		}
	})
	defer e.cancel(nil)
	defer e.timer.Stop()
	t := e.identify()
	defer h.active.Add(-1)
	if e.record.sampled = h.cfg.samples([]byte(t.ID)); e.record.sampled {
		e.section, e.release = h.threads.Start()
	}
	defer e.observe()
	if h.active.Add(1) > int64(h.cfg.Limits.RequestsMax) {
		e.fail(errOverloaded)
		return
	}
	defer e.finish()
	if ambiguous {
		e.closeAfter = true
		e.fail(refuse("the request is ambiguous"))
		return
	}
	if f := e.refusal(); f != nil {
		e.fail(f)
		return
	}
	e.forward(t)
}

// identify starts the transaction and the record of the request.
func (e *exchange) identify() requestid.Identity {
	t := requestid.Start(e.r.Header[http.CanonicalHeaderKey(requestid.FieldID)], e.r.Header[requestid.FieldTraceparent])
	e.record = record{id: t.ID, trace: t.Trace, method: e.r.Method, target: e.r.RequestURI, backend: balance.None}
	e.record.client, _, _ = net.SplitHostPort(e.r.RemoteAddr)
	if e.cfg.Trace != nil {
		parent := requestid.Trace{}
		if fields := e.r.Header[requestid.FieldTraceparent]; len(fields) == 1 {
			parent, _ = requestid.ParseTraceparent(fields[0])
		}
		e.span = e.cfg.beginSpan(parent, &t.Trace)
		e.record.trace = t.Trace
	}
	e.w.Header()[requestid.FieldID] = []string{t.ID} // spelled as on the fast path
	e.w.Header()[requestid.FieldTraceparent] = []string{t.Trace.String()}
	return t
}

// finish bounds the time in which net/http reads the rest of the request's body before it closes
// the connection.
func (e *exchange) finish() {
	if e.body != nil {
		e.body.finish()
	}
	if e.conn != nil && e.r.ProtoMajor == 1 && e.r.ContentLength != 0 && (e.body == nil || !e.body.ended.Load()) {
		e.conn.readDeadline.Store(time.Now().Add(e.cfg.Limits.HeadTimeout).UnixNano())
	}
}

// refusal returns the error for a request that is not forwarded, or nil. validatingConn has
// checked the syntax of HTTP/1 already.
func (e *exchange) refusal() *httpError {
	if e.conn != nil && e.r.Method == refusedMethod {
		if f := e.conn.refusal.Load(); f != nil {
			e.closeAfter = true
			return f
		}
	}
	switch {
	case e.r.Method == http.MethodConnect, e.r.Method == http.MethodTrace:
		return errMethod
	case e.r.Header["Upgrade"] != nil:
		return errUpgrade
	case e.r.ContentLength > e.cfg.Limits.BodyMax:
		return errBodyTooLong
	case e.r.ProtoMajor > 1 && (e.r.Host == "" || !head.Host.All([]byte(e.r.Host))):
		return refuse("want an authority, with a name or address")
	case e.r.ProtoMajor > 1 && !isRequestLine(e.r.Method, e.r.RequestURI):
		return refuse("the method or the path is not valid in HTTP/1")
	}
	return nil
}

// isRequestLine reports whether method and target of an HTTP/2 request form an unambiguous
// request line of HTTP/1.
func isRequestLine(method, target string) bool {
	return head.IsMethod(method) && head.Target.All([]byte(target)) && head.IsTarget(method, target)
}

func (e *exchange) observe() {
	if e.release != nil {
		e.record.section = e.section.Stop()
		e.release()
	} else {
		e.record.section.Wall = e.balancer.now() - e.began
	}
	e.cfg.endSpan(e.span, &e.record, stats.Protocol(e.r), e.record.method, e.record.target, e.balancer.backendName(e.record.backend))
	e.cfg.observe(&e.record)
	if e.cfg.reports(&e.record) {
		e.report(&e.record)
	}
}

// fail answers with an error of the proxy itself.
func (e *exchange) fail(f *httpError) {
	e.record.err, e.record.status = f, f.status
	header := e.w.Header()
	body := f.body()
	header.Set("Content-Type", httpapi.ContentTypeJSON)
	header.Set("Cache-Control", httpapi.CacheControl)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if f.status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	if (e.closeAfter || e.r.ContentLength != 0) && e.r.ProtoMajor == 1 {
		header.Set("Connection", "close") // the rest of the body is not read
	}
	e.w.WriteHeader(f.status)
	_, _ = e.w.Write(body)
}

// forward tries backends until one answers.
func (e *exchange) forward(t requestid.Identity) {
	e.tried.Key, e.tried.Keyed = e.cfg.StickyKey.of(e.r)
	out := e.outgoing(t)
	idempotent := isIdempotent(e.r.Method) && e.body == nil
	at := e.balancer.begin(e.balancer.now(), &e.tried)
	if at == balance.None {
		e.fail(errNoBackend)
		return
	}
	for {
		e.record.backend = at
		out.URL.Scheme, out.URL.Host = e.balancer.targets[at].scheme, e.balancer.targets[at].addr
		resp, err := e.backends.RoundTrip(out)
		if err == nil {
			e.answer(at, resp)
			return
		}
		f, how := e.classify(err)
		e.record.cause = err
		e.balancer.end(e.balancer.now(), at, how)
		if how == failed && (idempotent || e.notSent(err)) && e.ctx.Err() == nil {
			e.record.tries++
			e.tried.Tried.Add(at)
			if at = e.balancer.retry(e.balancer.now(), &e.tried, e.record.tries); at != balance.None {
				continue
			}
		}
		if f == nil {
			panic(http.ErrAbortHandler) // the client has disconnected
		}
		e.fail(f)
		return
	}
}

// notSent reports whether err means that nothing was sent: there was no connection, and nothing
// of the body was read.
func (e *exchange) notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && (e.body == nil || !e.body.begun.Load())
}

// classify returns the error for the client, nil if it has disconnected, and the outcome for the
// backend of a failed try.
func (e *exchange) classify(err error) (*httpError, outcome) {
	switch {
	case e.clientError() != nil:
		return e.clientError(), abandoned
	case context.Cause(e.ctx) == errAnswerTimeout:
		return errTimeout, failed
	case e.r.Context().Err() != nil:
		return nil, abandoned
	case strings.Contains(err.Error(), "malformed HTTP"), errors.Is(err, http.ErrSchemeMismatch):
		return errInvalidAnswer, failed
	}
	return errGateway, failed
}

// clientError returns the error that the client has caused with its body, or nil.
func (e *exchange) clientError() *httpError {
	if f := e.connError(); f != nil || e.body == nil {
		return f
	}
	return e.body.err.Load()
}

// connError returns what validatingConn has found in the body, or nil. It knows before
// net/http does, which cancels the request for any error of the connection.
func (e *exchange) connError() *httpError {
	switch {
	case e.conn == nil || e.body == nil:
		return nil
	case e.conn.bodyTimedOut.Load():
		return errBodyTimeout
	}
	return e.conn.bodyError.Load()
}

// outgoing returns the request for the backend.
func (e *exchange) outgoing(t requestid.Identity) *http.Request {
	r := e.r
	out := (&http.Request{
		Method: r.Method, Host: r.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.Header.Clone(), ContentLength: r.ContentLength,
		URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery},
	}).WithContext(e.ctx)
	if raw, _, _ := strings.Cut(r.RequestURI, "?"); raw != out.URL.EscapedPath() && !strings.HasPrefix(raw, "//") {
		out.URL.Opaque = raw // otherwise package url would re-encode it
	}
	header := out.Header
	removeHops(header)
	header.Set(requestid.FieldID, t.ID)
	header.Set(requestid.FieldTraceparent, t.Trace.String())
	if !t.Continued {
		header.Del(requestid.FieldTracestate)
	}
	e.setForwarded(header)
	header.Set("Via", strings.TrimPrefix(strings.Join(append(header["Via"], via), ", "), ", "))
	if header["User-Agent"] == nil {
		header["User-Agent"] = nil // otherwise the transport adds its own
	}
	if r.ContentLength != 0 {
		e.body = &body{ReadCloser: r.Body, exchange: e, control: http.NewResponseController(e.w)}
		out.Body = e.body
	}
	return out
}

// setForwarded sets the fields that describe the client.
func (e *exchange) setForwarded(header http.Header) {
	from := e.record.client
	if e.cfg.TrustForwarded {
		if prior := header["X-Forwarded-For"]; len(prior) > 0 {
			from = strings.Join(prior, ", ") + ", " + from
		}
		header.Set("X-Forwarded-For", from)
		return
	}
	proto := "http"
	if e.r.TLS != nil || e.conn != nil && e.conn.secure {
		proto = "https"
	}
	for name := range header {
		if kindOf([]byte(name)) == kindForwarded {
			delete(header, name)
		}
	}
	header.Set("X-Forwarded-For", from)
	header.Set("X-Forwarded-Proto", proto)
	header.Set("X-Forwarded-Host", e.r.Host)
}

// removeHops removes the hop-by-hop fields (RFC 9110 §7.6.1).
func removeHops(header http.Header) {
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for name := range header {
		switch kindOf([]byte(name)) {
		case kindHop, kindConnection, kindTransfer, kindUpgrade, kindExpect:
			delete(header, name)
		}
	}
}

// answer forwards the answer of backend at.
func (e *exchange) answer(at int, resp *http.Response) {
	how := outcomeOf(resp.StatusCode)
	defer func() { e.balancer.end(e.balancer.now(), at, how) }()
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 999 || resp.ProtoMajor != 1 {
		how = failed
		e.fail(errInvalidAnswer)
		return
	}
	e.record.status = resp.StatusCode
	header := e.w.Header()
	removeHops(resp.Header)
	delete(resp.Header, http.CanonicalHeaderKey(requestid.FieldID))
	for name, values := range resp.Header { // in any order
		if header[name] == nil {
			header[name] = values
		}
	}
	if resp.Header["Content-Type"] == nil {
		header["Content-Type"] = nil // otherwise net/http guesses
	}
	if e.r.ProtoMajor == 1 && e.body != nil && !e.body.ended.Load() {
		// The rest of this body follows on the connection and must not be parsed as a request.
		header.Set("Connection", "close")
	}
	e.w.WriteHeader(resp.StatusCode)
	e.answered.Store(true)
	if err := e.copy(resp); err != nil {
		if f := e.clientError(); f != nil {
			how, e.record.err = abandoned, f
		} else if e.r.Context().Err() == nil && errors.Is(err, errBackendBody) {
			how = failed
			e.record.err = errBroken
		}
		if e.conn != nil && resp.ContentLength < 0 && !e.r.ProtoAtLeast(1, 1) {
			e.conn.reset() // a regular end would complete the answer
		}
		panic(http.ErrAbortHandler) // so that the client can tell that the answer is incomplete
	}
}

// errBackendBody marks errors that the backend has caused.
var errBackendBody = errors.New("the backend's body ended early")

// copyBytes bounds the part of a body that is held at a time.
const copyBytes = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// copy forwards the body as it arrives, and flushes each part: it may be an event stream.
func (e *exchange) copy(resp *http.Response) error {
	buf := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buf)
	control := http.NewResponseController(e.w)
	limits := &e.cfg.Limits
	idle := time.AfterFunc(limits.StreamTimeout, func() { e.cancel(errPause) })
	defer idle.Stop()
	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			idle.Stop() // the write deadline applies now
			_ = control.SetWriteDeadline(time.Now().Add(limits.WriteTimeout))
			if _, err := e.w.Write(buf[:n]); err != nil {
				return err
			}
			if resp.ContentLength < 0 || n < len(buf) {
				if err := control.Flush(); err != nil {
					return err
				}
			}
			idle.Reset(limits.StreamTimeout)
		}
		switch {
		case err == io.EOF:
			_ = control.SetWriteDeadline(time.Now().Add(limits.WriteTimeout)) // for what net/http still holds
			return nil
		case err != nil:
			return errors.Join(errBackendBody, err)
		}
	}
}

// body is the body of a request as the transport reads it. It must arrive at bodyRateMin at least
// and have at most Limits.BodyMax bytes.
type body struct {
	io.ReadCloser
	exchange *exchange
	control  *http.ResponseController
	began    time.Time
	received int64
	err      atomic.Pointer[httpError] // the error that the client has caused
	begun    atomic.Bool               // a read has begun
	ended    atomic.Bool               // all of it was read

	// The transport may read for a moment after the exchange has finished, and must not change
	// the deadlines of the next one.
	mu       sync.Mutex
	finished bool
}

func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.finished {
		_ = b.control.SetReadDeadline(t)
	}
}

func (b *body) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = true
}

// Read reads, with a deadline that follows from bodyRateMin.
func (b *body) Read(p []byte) (int, error) {
	if !b.begun.Swap(true) {
		b.began = time.Now()
	}
	limits := &b.exchange.cfg.Limits
	b.setDeadline(b.began.Add(limits.HeadTimeout + time.Duration(b.received)*time.Second/bodyRateMin))
	n, err := b.ReadCloser.Read(p)
	if b.received += int64(n); b.received > limits.BodyMax {
		b.err.Store(errBodyTooLong)
		return 0, errBodyTooLong
	}
	b.exchange.timer.Reset(limits.AnswerTimeout) // it begins when the request is sent
	if err == io.EOF {
		b.ended.Store(true)
		b.setDeadline(time.Time{})
	} else if err != nil {
		b.classify(err)
	}
	return n, err
}

// Close is called by the transport after each try. Before the first byte another try may follow;
// the server then closes the body.
func (b *body) Close() error {
	if b.begun.Load() {
		return b.ReadCloser.Close()
	}
	return nil
}

// classify records the error that the client has caused by err, within the body.
func (b *body) classify(err error) {
	var timeout net.Error
	if f := b.exchange.connError(); f != nil {
		b.err.Store(f)
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		b.err.Store(errBodyTimeout)
	} else if !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.err.Store(refuse("the body does not have the announced length"))
	}
}

// connKey is the key of a request's *validatingConn in its context.
type connKey struct{}
