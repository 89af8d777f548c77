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

	"github.com/isotone/isotone/internal/balance"
	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/front/transaction"
)

// handler is the general path: any request, from any of net/http's servers. It is safe
// for concurrent use.
type handler struct {
	cfg      *Config
	director *director
	report   func(*record)
	backends http.RoundTripper
	active   atomic.Int64
	threads  stats.Threads
}

// newTransport returns the general path's connections to backends. They are not the
// lane's.
func newTransport(cfg *Config) *http.Transport {
	l := &cfg.Limits
	dialer := net.Dialer{Timeout: l.ConnectTimeout}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        cfg.BackendTLS.Clone(), // HTTP/1.1, as in the lane
		TLSHandshakeTimeout:    l.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		MaxConnsPerHost:        l.BackendConnectionsMax,
		IdleConnTimeout:        idleBackendTime,
		MaxResponseHeaderBytes: headBytesMax,
		ExpectContinueTimeout:  time.Second,
	}
}

// exchange is one request in the general path.
type exchange struct {
	*handler
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // gives up
	began  time.Duration
	record record
	// section is what the handler costs, if it is measured; then there is a release.
	section stats.Timer
	release func()
	tried   balance.Request
	last    bool // the connection ends with the answer
	body    *body
	// answered: the head of the answer is there, and the timer has no more to say.
	answered atomic.Bool
}

// errAnswerTimeout is why an exchange is given up, as the cause of its context; errPause is
// another.
var errAnswerTimeout = errors.New("no answer in time")

// ServeHTTP forwards one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	outOfStep := false
	if s, ok := r.Context().Value(screenKey{}).(*screen); ok && r.ProtoMajor == 1 {
		outOfStep = !s.handled()
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// Without this net/http reads what is left of the body before it answers, and the
		// transport, which reads the same body, sends it with holes.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	e := &exchange{handler: h, w: w, r: r, began: h.director.now()}
	e.ctx, e.cancel = context.WithCancelCause(r.Context())
	e.timer = time.AfterFunc(h.cfg.Limits.AnswerTimeout, func() {
		if !e.answered.Load() {
			e.cancel(errAnswerTimeout)
		}
	})
	defer e.cancel(nil)
	defer e.timer.Stop()
	t := transaction.Start(r.Header[http.CanonicalHeaderKey(transaction.FieldID)], r.Header[transaction.FieldTraceparent])
	e.record = record{id: t.ID, trace: t.Trace, method: r.Method, target: r.RequestURI, backend: balance.None}
	e.record.client, _, _ = net.SplitHostPort(r.RemoteAddr)
	w.Header()[transaction.FieldID] = []string{t.ID} // spelled as in the lane
	w.Header()[transaction.FieldTraceparent] = []string{t.Trace.String()}
	defer h.active.Add(-1)
	if e.record.sampled = h.cfg.samples([]byte(t.ID)); e.record.sampled {
		e.section, e.release = h.threads.Start()
	}
	defer e.observe()
	if h.active.Add(1) > int64(h.cfg.Limits.RequestsMax) {
		e.fail(faultOverloaded)
		return
	}
	defer e.leave()
	if outOfStep {
		e.last = true
		e.fail(refuse("this was not sent as a request"))
		return
	}
	if f := e.refusal(); f != nil {
		e.fail(f)
		return
	}
	e.forward(t)
}

// leave is for what the client may still send of the body: net/http looks for its end, and
// closes the connection, as the answer has said.
func (e *exchange) leave() {
	if e.body != nil {
		e.body.finish()
	}
	if s, ok := e.r.Context().Value(screenKey{}).(*screen); ok && e.r.ProtoMajor == 1 && e.r.ContentLength != 0 && (e.body == nil || !e.body.ended.Load()) {
		s.until.Store(time.Now().Add(e.cfg.Limits.HeadTimeout).UnixNano())
	}
}

// refusal says why a request is not forwarded, or nil. What HTTP/1 can get wrong, the
// screen has refused already.
func (e *exchange) refusal() *fault {
	if s, ok := e.r.Context().Value(screenKey{}).(*screen); ok && e.r.Method == refusedMethod {
		if f := s.fault.Load(); f != nil {
			e.last = true
			return f
		}
	}
	switch {
	case e.r.Method == http.MethodConnect, e.r.Method == http.MethodTrace:
		return faultMethod
	case e.r.Header["Upgrade"] != nil:
		return faultUpgrade
	case e.r.ContentLength > e.cfg.Limits.BodyMax:
		return faultTooLong
	case e.r.ProtoMajor > 1 && (e.r.Host == "" || !head.Host.All([]byte(e.r.Host))):
		return refuse("want an authority, with a name or address")
	case e.r.ProtoMajor > 1 && !isRequestLine(e.r.Method, e.r.RequestURI):
		return refuse("what HTTP/1 could not have in its first line is in the method or the path")
	}
	return nil
}

// isRequestLine reports whether method and target, of a request of HTTP/2, can be sent in a
// line of HTTP/1 that has one meaning: none of their bytes may end them there.
func isRequestLine(method, target string) bool {
	return head.IsMethod(method) && head.Target.All([]byte(target)) && head.IsTarget(method, target)
}

func (e *exchange) observe() {
	if e.release != nil {
		e.record.section = e.section.Stop()
		e.release()
	} else {
		e.record.section.Wall = e.director.now() - e.began
	}
	e.cfg.observe(&e.record)
	if e.cfg.reports(&e.record) {
		e.report(&e.record)
	}
}

// fail answers with a fault of the proxy's own.
func (e *exchange) fail(f *fault) {
	e.record.fault, e.record.status = f, f.status
	header := e.w.Header()
	body := f.body()
	header.Set("Content-Type", httpapi.ContentTypeJSON)
	header.Set("Cache-Control", httpapi.CacheControl)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if f.status == http.StatusServiceUnavailable {
		header.Set("Retry-After", retryAfter)
	}
	if (e.last || e.r.ContentLength != 0) && e.r.ProtoMajor == 1 {
		header.Set("Connection", "close") // nobody reads the rest of the body
	}
	e.w.WriteHeader(f.status)
	_, _ = e.w.Write(body)
}

// forward tries backends until one answers.
func (e *exchange) forward(t transaction.Transaction) {
	e.tried.Key, e.tried.Keyed = e.cfg.StickyKey.of(e.r)
	out := e.outgoing(t)
	idempotent := isIdempotent(e.r.Method) && e.body == nil
	at := e.director.begin(e.director.now(), &e.tried)
	if at == balance.None {
		e.fail(faultNoBackend)
		return
	}
	for {
		e.record.backend = at
		out.URL.Scheme, out.URL.Host = e.director.targets[at].scheme, e.director.targets[at].addr
		resp, err := e.backends.RoundTrip(out)
		if err == nil {
			e.answer(at, resp)
			return
		}
		f, how := e.blame(err)
		e.record.cause = err
		e.director.end(e.director.now(), at, how)
		if how == failed && (idempotent || e.unsent(err)) && e.ctx.Err() == nil {
			e.record.tries++
			e.tried.Tried.Add(at)
			if at = e.director.again(e.director.now(), &e.tried, e.record.tries); at != balance.None {
				continue
			}
		}
		if f == nil {
			panic(http.ErrAbortHandler) // the client is gone
		}
		e.fail(f)
		return
	}
}

// unsent reports whether err means that a try has not even begun: there was no connection,
// and of the body nothing was read.
func (e *exchange) unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && (e.body == nil || !e.body.begun.Load())
}

// blame says what a failed try means, to the client and of the backend.
func (e *exchange) blame(err error) (*fault, outcome) {
	switch {
	case e.clientFault() != nil:
		return e.clientFault(), abandoned
	case context.Cause(e.ctx) == errAnswerTimeout:
		return faultTimeout, failed
	case e.r.Context().Err() != nil:
		return nil, abandoned
	case strings.Contains(err.Error(), "malformed HTTP"), errors.Is(err, http.ErrSchemeMismatch):
		return faultAnswer, failed
	}
	return faultGateway, failed
}

// clientFault returns what the client has done wrong with its body, or nil.
func (e *exchange) clientFault() *fault {
	if f := e.screenFault(); f != nil || e.body == nil {
		return f
	}
	return e.body.fault.Load()
}

// screenFault returns what the screen has found in the body, if there is one and it has. It
// says so before net/http takes note, which cancels the request for any error of the
// connection.
func (e *exchange) screenFault() *fault {
	s, ok := e.r.Context().Value(screenKey{}).(*screen)
	switch {
	case !ok || e.body == nil:
		return nil
	case s.late.Load():
		return faultBodyTime
	}
	return s.body.Load()
}

// outgoing makes the request that goes on.
func (e *exchange) outgoing(t transaction.Transaction) *http.Request {
	r := e.r
	out := (&http.Request{
		Method: r.Method, Host: r.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.Header.Clone(), ContentLength: r.ContentLength,
		URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery},
	}).WithContext(e.ctx)
	if raw, _, _ := strings.Cut(r.RequestURI, "?"); raw != out.URL.EscapedPath() && !strings.HasPrefix(raw, "//") {
		out.URL.Opaque = raw // or package url would spell it in its own way
	}
	header := out.Header
	removeHops(header)
	header.Set(transaction.FieldID, t.ID)
	header.Set(transaction.FieldTraceparent, t.Trace.String())
	if !t.Continued {
		header.Del(transaction.FieldTracestate)
	}
	e.setForwarded(header)
	header.Set("Via", strings.TrimPrefix(strings.Join(append(header["Via"], via), ", "), ", "))
	if header["User-Agent"] == nil {
		header["User-Agent"] = nil // or the transport adds its own
	}
	if r.ContentLength != 0 {
		e.body = &body{ReadCloser: r.Body, exchange: e, control: http.NewResponseController(e.w)}
		out.Body = e.body
	}
	return out
}

// setForwarded says who has asked.
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
	if s, ok := e.r.Context().Value(screenKey{}).(*screen); e.r.TLS != nil || ok && s.secure {
		proto = "https"
	}
	header.Del("Forwarded")
	header.Set("X-Forwarded-For", from)
	header.Set("X-Forwarded-Proto", proto)
	header.Set("X-Forwarded-Host", e.r.Host)
}

// hops are the fields that end at each hop (RFC 9110 §7.6.1).
var hops = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Expect",
}

func removeHops(header http.Header) {
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hops {
		delete(header, name)
	}
}

// answer forwards the answer of backend at.
func (e *exchange) answer(at int, resp *http.Response) {
	how := outcomeOf(resp.StatusCode)
	defer func() { e.director.end(e.director.now(), at, how) }()
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 999 || resp.ProtoMajor != 1 {
		how = failed
		e.fail(faultAnswer)
		return
	}
	e.record.status = resp.StatusCode
	header := e.w.Header()
	removeHops(resp.Header)
	delete(resp.Header, http.CanonicalHeaderKey(transaction.FieldID))
	for name, values := range resp.Header { // order does not matter
		if header[name] == nil {
			header[name] = values
		}
	}
	if resp.Header["Content-Type"] == nil {
		header["Content-Type"] = nil // or net/http guesses
	}
	if e.r.ProtoMajor == 1 && e.body != nil && !e.body.ended.Load() {
		// What follows on the connection is the rest of this body, and must not be taken for
		// a request.
		header.Set("Connection", "close")
	}
	e.w.WriteHeader(resp.StatusCode)
	e.answered.Store(true)
	if err := e.copy(resp); err != nil {
		if f := e.clientFault(); f != nil {
			how, e.record.fault = abandoned, f
		} else if e.r.Context().Err() == nil && errors.Is(err, errBackendBody) {
			how = failed
			e.record.fault = faultBroken
		}
		if s, ok := e.r.Context().Value(screenKey{}).(*screen); ok && resp.ContentLength < 0 && !e.r.ProtoAtLeast(1, 1) {
			s.reset() // or the end would be that of the answer
		}
		panic(http.ErrAbortHandler) // so that the client sees that it is not whole
	}
}

// errBackendBody marks errors that are the backend's.
var errBackendBody = errors.New("the backend's body ended early")

// copyBytes is how much of a body is held at a time.
const copyBytes = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// copy forwards the body as it comes: somebody may be waiting for each event.
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
			idle.Stop() // it is the client's time that runs now
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

// body is the body of a request on its way to the backend. It must come at bodyRateMin at
// least and have no more than Limits.BodyMax.
type body struct {
	io.ReadCloser
	exchange *exchange
	control  *http.ResponseController
	began    time.Time
	got      int64
	fault    atomic.Pointer[fault] // why it has failed, if that is the client's doing
	begun    atomic.Bool           // some of it may have been read
	ended    atomic.Bool           // all of it was

	// The transport may read on for a moment when the exchange is over, and must not touch
	// the deadlines of the next.
	mu   sync.Mutex
	over bool
}

func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(t)
	}
}

func (b *body) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// Read reads on, for as long as the rate allows.
func (b *body) Read(p []byte) (int, error) {
	if !b.begun.Swap(true) {
		b.began = time.Now()
	}
	limits := &b.exchange.cfg.Limits
	b.setDeadline(b.began.Add(limits.HeadTimeout + time.Duration(b.got)*time.Second/bodyRateMin))
	n, err := b.ReadCloser.Read(p)
	if b.got += int64(n); b.got > limits.BodyMax {
		b.fault.Store(faultTooLong)
		return 0, faultTooLong
	}
	b.exchange.timer.Reset(limits.AnswerTimeout) // which begins when all is sent
	if err == io.EOF {
		b.ended.Store(true)
		b.setDeadline(time.Time{})
	} else if err != nil {
		b.blame(err)
	}
	return n, err
}

// Close is called by the transport when a try is over. Before the first byte another one may
// follow, and the server closes what is left.
func (b *body) Close() error {
	if b.begun.Load() {
		return b.ReadCloser.Close()
	}
	return nil
}

// blame notes that err, in the middle of the body, is the client's doing.
func (b *body) blame(err error) {
	var timeout net.Error
	if f := b.exchange.screenFault(); f != nil {
		b.fault.Store(f)
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		b.fault.Store(faultBodyTime)
	} else if !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.fault.Store(refuse("the body has not the length that was announced"))
	}
}

// screenKey finds the *screen in the context of a request that came through one.
type screenKey struct{}
