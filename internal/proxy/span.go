package proxy

import (
	"strings"
	"time"

	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// requestSpan is the span of a request under way; the zero value is none.
type requestSpan struct {
	trace.Context
	parent [8]byte
	began  time.Time // zero: the request is not traced
}

// beginSpan decides whether a request with this traceparent is traced. If it is, t, the trace for
// the backend, continues its span.
func (c *Config) beginSpan(parent requestid.Trace, t *requestid.Trace) requestSpan {
	span, traced := c.Trace.Begin(trace.Context{Trace: parent.ID, Span: parent.Span}, parent.Flags&1 != 0)
	if !traced {
		return requestSpan{}
	}
	*t = requestid.Trace{ID: span.Trace, Span: span.Span, Flags: 1}
	return requestSpan{Context: span, parent: parent.Span, began: time.Now()}
}

// endSpan ends the span of the request in r, if it has one. backend is the name of the backend.
func (c *Config) endSpan(s requestSpan, r *record, protocol, method, target, backend string) {
	if s.began.IsZero() {
		return
	}
	code := "ok"
	if r.err != nil {
		code = string(r.err.code())
	}
	path, _, _ := strings.Cut(target, "?")
	span := stats.RequestSpan(stats.Record{
		Time: time.Now(), Protocol: protocol, Method: strings.Clone(clip(method, methodLogMax)), Path: strings.Clone(clip(path, targetLogMax)),
		Status: r.status, Code: code,
	}, "", s.began, s.Context, s.parent)
	if r.backend != balance.None {
		span.Attrs = append(span.Attrs, trace.String("isotone.backend", backend), trace.Int("isotone.tries_failed", int64(r.tries)))
	}
	c.Trace.Add(span)
}

// backendName returns the name of the backend at an index, or "".
func (b *balancer) backendName(at int) string {
	if at == balance.None {
		return ""
	}
	return b.targets[at].name
}
