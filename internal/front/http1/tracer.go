package http1

import (
	"strconv"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/trace"
)

// tracer makes the spans of a front's requests.
type tracer struct{ exporter *trace.Exporter }

// traced is a request that is being traced.
type traced struct {
	trace.Context
	parent [8]byte
	index  int // in its batch
	route  string
	path   string
	began  time.Time
}

// begin decides whether r, which b begins with, is traced.
func (t *tracer) begin(r *request, b []byte) (one traced, ok bool) {
	var parent requestid.Trace
	if r.trace != (span{}) {
		parent, _ = requestid.ParseTraceparent(b[r.trace.from:r.trace.to])
	}
	one.Context, ok = t.exporter.Begin(trace.Context{Trace: parent.ID, Span: parent.Span}, parent.Flags&1 != 0)
	if ok {
		one.parent, one.began = parent.Span, time.Now()
		one.route, one.path = paths[r.target], r.pathOf(b)
	}
	return one, ok
}

// end ends the span of one, whose answer begins at b[at].
func (t *tracer) end(b []byte, at int, protocol, code string, one *traced) {
	t.finish(protocol, statusAt(b, at), code, one)
}

// finish ends the span of one; a status of 0 says that it has no answer.
func (t *tracer) finish(protocol string, status int, code string, one *traced) {
	t.exporter.Add(stats.RequestSpan(stats.Record{
		Time: time.Now(), Protocol: protocol, Method: "GET", Path: one.path, Status: status, Code: code,
	}, one.route, one.began, one.Context, one.parent))
}

// statusAt returns the status of the answer that begins at b[at].
func statusAt(b []byte, at int) int {
	const before = len("HTTP/1.1 ")
	status, _ := strconv.Atoi(string(b[at+before : at+before+len("200")]))
	return status
}
