package stats

import (
	"net/http"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/host/trace"
)

// threadsMaxDefault bounds the concurrent sections, each of which holds a thread. A thread has
// some tens of kilobytes, and Go ends a process that has 10000. Only an overloaded node has
// more concurrent requests than this.
const threadsMaxDefault = 1024

// Options configures [Handler]. Recorder or Trace is required.
type Options struct {
	// Recorder takes the records. Without it nothing is measured, and requests get no
	// request ID.
	Recorder *Recorder
	// Trace, if not nil, traces requests. The request that next receives then has the span in
	// its traceparent and its context; see [trace.Of].
	Trace *trace.Exporter
	// Route returns the name of the path of a request, one of a fixed set, for the names of
	// spans; "" for other paths. Nil knows none.
	Route func(path string) string
	// Skip reports whether a request is not measured: a stream lasts as long as its client
	// likes, and would hold a thread for so long. Nil skips none.
	Skip func(*http.Request) bool
	// ThreadsMax bounds the concurrent requests whose CPU time is measured. Of those
	// beyond, only wall is. Default 1024.
	ThreadsMax int
}

// coder is implemented by the writer for the handler. A handler that has a code for its
// answer, ok or an error code, calls SetCode; otherwise the code follows from the status.
type coder interface{ SetCode(code string) }

var _ coder = (*writer)(nil)

// handler measures next.
type handler struct {
	next    http.Handler
	options Options
	threads Threads
}

// Handler returns a handler that measures the requests to next, and gives each of them a
// request ID; and it traces them.
//
// The ID is that of the request, if it has a valid one, or else a new one. It is in the field
// X-Request-ID of the answer, unless next sets another, and of the request that next
// receives, whose traceparent has a new span.
//
// The writer for next has the methods of the server's, by [http.ResponseController], and
// Flush and ReadFrom. It also has a method SetCode(string), for the code of the record.
func Handler(next http.Handler, o Options) http.Handler {
	if o.Recorder == nil && o.Trace == nil {
		panic("stats: neither Options.Recorder nor Options.Trace")
	}
	return &handler{next: next, options: o, threads: Threads{max: int64(o.ThreadsMax)}}
}

// The fields as net/http spells them.
var (
	canonicalID          = http.CanonicalHeaderKey(requestid.FieldID)
	canonicalTraceparent = http.CanonicalHeaderKey(requestid.FieldTraceparent)
	canonicalTracestate  = http.CanonicalHeaderKey(requestid.FieldTracestate)
)

// ServeHTTP traces and measures one request to next.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.options.Trace == nil {
		h.measure(w, r, nil)
		return
	}
	parent, _ := requestid.ParseTraceparent(only(r.Header[canonicalTraceparent]))
	span, traced := h.options.Trace.Begin(trace.Context{Trace: parent.ID, Span: parent.Span}, parent.Flags&1 != 0)
	if !traced || h.options.Skip != nil && h.options.Skip(r) {
		h.measure(w, r, nil)
		return
	}
	out := &writer{ResponseWriter: w}
	began, whole := time.Now(), false // unless next returns
	defer func() {
		if !whole {
			out.status, out.code = 0, ""
		}
		h.options.Trace.Add(h.span(r, out, began, span, parent.Span))
	}()
	h.measure(out, r, &span)
	out.begin(http.StatusOK)
	whole = true
}

// only returns the only value of a field, or "".
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// span returns the span of a request that was answered through out.
func (h *handler) span(r *http.Request, out *writer, began time.Time, c trace.Context, parent [8]byte) trace.Span {
	route := ""
	if h.options.Route != nil {
		route = h.options.Route(r.URL.Path)
	}
	return RequestSpan(Record{
		Time: time.Now(), Protocol: Protocol(r), Method: clip(r.Method, methodLogMax), Path: clip(logged(r.URL.Path), pathLogMax),
		Status: out.status, Code: out.codeOf(),
	}, route, began, c, parent)
}

// sessionsPath is what the ID of a session follows in a path.
const sessionsPath = "/sessions/"

// logged returns a path as logs and spans have it. The ID of a session is a secret: whoever has it speaks for the session.
func logged(path string) string {
	if strings.HasPrefix(path, sessionsPath) {
		return sessionsPath
	}
	return path
}

// measure measures one request to next. span is its span, nil unless it is traced.
func (h *handler) measure(w http.ResponseWriter, r *http.Request, span *trace.Context) {
	if span != nil {
		r = r.WithContext(trace.With(r.Context(), *span))
	}
	if h.options.Recorder == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	t := requestid.Start(r.Header[canonicalID], r.Header[canonicalTraceparent])
	if span != nil {
		t.Trace = requestid.Trace{ID: span.Trace, Span: span.Span, Flags: 1}
	}
	w.Header()[requestid.FieldID] = []string{t.ID}
	r = identified(r, t)
	out := &writer{ResponseWriter: w}
	if h.options.Skip != nil && h.options.Skip(r) || !h.options.Recorder.Sampled(t.ID) {
		h.next.ServeHTTP(out, r)
		out.begin(http.StatusOK)
		return
	}
	timer, release := h.threads.Start()
	whole := false // unless next returns
	defer func() {
		section := timer.Stop()
		release()
		if !whole {
			out.status, out.code = 0, ""
		}
		h.options.Recorder.Observe(Record{
			Time: time.Now(), ID: t.ID, Trace: t.Trace.ID,
			Protocol: Protocol(r), Method: clip(r.Method, methodLogMax), Path: clip(logged(r.URL.Path), pathLogMax),
			Status: out.status, Code: out.codeOf(), Section: section,
		})
	}()
	h.next.ServeHTTP(out, r)
	out.begin(http.StatusOK)
	whole = true
}

// identified returns a copy of r with the fields of t.
func identified(r *http.Request, t requestid.Identity) *http.Request {
	with := *r
	with.Header = make(http.Header, len(r.Header)+2)
	for name, values := range r.Header {
		with.Header[name] = values
	}
	with.Header[canonicalID] = []string{t.ID}
	with.Header[canonicalTraceparent] = []string{t.Trace.String()}
	if !t.Continued {
		delete(with.Header, canonicalTracestate) // it belongs to a trace that is not continued
	}
	return &with
}

// Protocol returns the protocol of r: http1, https1, h2c, h2, h3 or grpc.
func Protocol(r *http.Request) string {
	switch {
	case r.ProtoMajor > 1 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		return "grpc"
	case r.ProtoMajor == 3:
		return "h3"
	case r.ProtoMajor == 2 && r.TLS != nil:
		return "h2"
	case r.ProtoMajor == 2:
		return "h2c"
	case r.TLS != nil:
		return "https1"
	default:
		return "http1"
	}
}
