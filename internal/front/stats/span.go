package stats

import (
	"time"

	"github.com/isotone/isotone/internal/host/trace"
)

// methods are those that the name of a span may begin with; clients choose them.
var methods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true, "TRACE": true, "PATCH": true,
}

// RequestSpan returns the span of the request in r, whose Section does not count. route is one
// of a fixed set, or "". c is the span, parent that of the caller, or all zero.
func RequestSpan(r Record, route string, began time.Time, c trace.Context, parent [8]byte) trace.Span {
	name := "HTTP"
	if methods[r.Method] {
		name = r.Method
	}
	if route != "" {
		name += " " + route
	}
	return trace.Span{
		Context: c, Parent: parent, Name: name, Kind: trace.Server, Start: began, End: r.Time,
		Failed: r.Status == 0 || r.Status >= 500,
		Attrs: []trace.Attr{
			trace.String("http.request.method", r.Method), trace.String("url.path", r.Path),
			trace.Int("http.response.status_code", int64(r.Status)),
			trace.String("isotone.protocol", r.Protocol), trace.String("isotone.code", r.Code),
		},
	}
}
