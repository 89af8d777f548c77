package trace

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// The messages of OTLP in JSON: 64-bit integers are strings, identifiers hexadecimal.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope      `json:"scope"`
		Spans []jsonSpan `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	jsonSpan struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         Kind        `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes,omitempty"`
		Status       status      `json:"status"`
	}
	status struct {
		Code int `json:"code,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *string `json:"intValue,omitempty"`
	}
)

// statusError is STATUS_CODE_ERROR.
const statusError = 2

// encode returns the request that exports spans.
func (e *Exporter) encode(spans []Span) []byte {
	list := make([]jsonSpan, len(spans))
	for i := range spans {
		list[i] = spans[i].json()
	}
	about := []Attr{String("service.name", e.cfg.Service), String("service.version", e.cfg.Version)}
	if e.cfg.Instance != "" {
		about = append(about, String("service.instance.id", e.cfg.Instance))
	}
	body, err := json.Marshal(exportRequest{[]resourceSpans{{
		Resource:   resource{attributes(about)},
		ScopeSpans: []scopeSpans{{Scope: scope{Name: "github.com/isotone/isotone", Version: e.cfg.Version}, Spans: list}},
	}}})
	if err != nil {
		panic(err) // only strings and numbers
	}
	return body
}

func (s *Span) json() jsonSpan {
	out := jsonSpan{
		TraceID: hex.EncodeToString(s.Trace[:]), SpanID: hex.EncodeToString(s.Span[:]), Name: s.Name, Kind: s.Kind,
		Start: unixNano(s.Start), End: unixNano(s.End), Attributes: attributes(s.Attrs),
	}
	if s.Parent != [8]byte{} {
		out.ParentSpanID = hex.EncodeToString(s.Parent[:])
	}
	if s.Failed {
		out.Status.Code = statusError
	}
	return out
}

func unixNano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(attrs []Attr) []attribute {
	out := make([]attribute, len(attrs))
	for i, a := range attrs {
		out[i].Key = a.key
		if a.isNumber {
			out[i].Value.Number = new(strconv.FormatInt(a.number, 10))
		} else {
			out[i].Value.Text = new(strings.ToValidUTF8(a.text, "?"))
		}
	}
	return out
}
