// Package trace exports spans to an OpenTelemetry collector: OTLP over HTTP, encoded as JSON.
//
// It owns the decision which requests are traced, the queue of finished spans, and their wire
// format. It knows neither requests nor their headers. [Exporter.Add] never blocks; a goroutine
// of the exporter sends what is in the queue. A nil *Exporter traces nothing.
//
// Sources: OTLP 1.5 (opentelemetry.io/docs/specs/otlp), with traceId and spanId in hexadecimal
// as it says for JSON.
package trace

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

// Context identifies a span. The zero value is none.
type Context struct {
	Trace [16]byte
	Span  [8]byte
}

// Kind is what a span is to its trace, as OTLP numbers it.
type Kind int

// The kinds of spans.
const (
	Internal Kind = 1 // a step within the process
	Server   Kind = 2 // a request, on the side that answers it
)

// Span is one finished step of a trace.
type Span struct {
	Context
	Parent [8]byte // all zero: the trace begins here
	// Name is one of a fixed set.
	Name       string
	Kind       Kind
	Start, End time.Time
	// Failed says that the step failed here: not for a request that was wrong.
	Failed bool
	// Attrs is not to be changed after Add.
	Attrs []Attr
}

// Attr is an attribute of a span. Make it with [String] or [Int].
type Attr struct {
	key, text string
	number    int64
	isNumber  bool
}

// textBytesMax bounds the text of an attribute, which may come from a client.
const textBytesMax = 256

// String returns an attribute with a text, of which at most 256 bytes are kept.
func String(key, text string) Attr {
	if len(text) > textBytesMax {
		text = strings.Clone(text[:textBytesMax]) // not all of a long one is kept
	}
	return Attr{key: key, text: text}
}

// Int returns an attribute with a number.
func Int(key string, number int64) Attr { return Attr{key: key, number: number, isNumber: true} }

// Begin decides whether a request is traced, and returns its span. parent is the span of the
// caller, zero if it sent none; marked says that the caller has its own span traced, which
// decides. Otherwise one in Config.Sample is. Safe for concurrent use.
func (e *Exporter) Begin(parent Context, marked bool) (c Context, traced bool) {
	switch {
	case e == nil:
		return Context{}, false
	case parent != Context{}:
		if !marked {
			return Context{}, false
		}
		return parent.Child(), true
	case e.cfg.Sample == 0 || rand.Uint64N(uint64(e.cfg.Sample)) != 0:
		return Context{}, false
	}
	for c.Trace == [16]byte{} {
		fill(c.Trace[:8])
		fill(c.Trace[8:])
	}
	return c.Child(), true
}

// Child returns a new span of the same trace.
func (c Context) Child() Context {
	c.Span = [8]byte{}
	for c.Span == [8]byte{} {
		fill(c.Span[:])
	}
	return c
}

// fill sets eight bytes at random. Identifiers of traces need not be secret.
func fill(b []byte) {
	n := rand.Uint64()
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
}

type contextKey struct{}

// With returns a context that carries c.
func With(ctx context.Context, c Context) context.Context {
	return context.WithValue(ctx, contextKey{}, &c)
}

// Of returns what ctx carries, or nil.
func Of(ctx context.Context) *Context {
	c, _ := ctx.Value(contextKey{}).(*Context)
	return c
}
