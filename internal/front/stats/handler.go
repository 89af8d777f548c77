package stats

import (
	"net/http"
	"time"

	"github.com/isotone/isotone/internal/front/transaction"
)

// threadsMaxDefault bounds the concurrent sections, each of which holds a thread. A thread has
// some tens of kilobytes, and Go ends a process that has 10000. Only an overloaded node has
// more concurrent requests than this.
const threadsMaxDefault = 1024

// Options configures [Handler]. Only Recorder is required.
type Options struct {
	// Recorder takes the records.
	Recorder *Recorder
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
// transaction ID.
//
// The ID is that of the request, if it has a valid one, or else a new one. It is in the field
// X-Request-ID of the answer, unless next sets another, and of the request that next
// receives, whose traceparent has a new span.
//
// The writer for next has the methods of the server's, by [http.ResponseController], and
// Flush and ReadFrom. It also has a method SetCode(string), for the code of the record.
func Handler(next http.Handler, o Options) http.Handler {
	if o.Recorder == nil {
		panic("stats: Options.Recorder is nil")
	}
	return &handler{next: next, options: o, threads: Threads{max: int64(o.ThreadsMax)}}
}

// The fields as net/http spells them.
var (
	canonicalID          = http.CanonicalHeaderKey(transaction.FieldID)
	canonicalTraceparent = http.CanonicalHeaderKey(transaction.FieldTraceparent)
	canonicalTracestate  = http.CanonicalHeaderKey(transaction.FieldTracestate)
)

// ServeHTTP measures one request to next.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := transaction.Start(r.Header[canonicalID], r.Header[canonicalTraceparent])
	w.Header()[transaction.FieldID] = []string{t.ID}
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
			Protocol: Protocol(r), Method: clip(r.Method, methodLogMax), Path: clip(r.URL.Path, pathLogMax),
			Status: out.status, Code: out.codeOf(), Section: section,
		})
	}()
	h.next.ServeHTTP(out, r)
	out.begin(http.StatusOK)
	whole = true
}

// identified returns a copy of r with the fields of t.
func identified(r *http.Request, t transaction.Transaction) *http.Request {
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

// Protocol returns the protocol of r: http1, https1, h2c, h2 or h3.
func Protocol(r *http.Request) string {
	switch {
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
