package client

import (
	"context"
	"slices"

	"github.com/isotone/isotone"
)

// A request carries the trace context of the first call of its batch that is traced, so that the
// node's spans belong to that trace. A batch that is sent again carries it again.
//
// Nodes of older versions refuse the option. The connection then carries none, and the request
// is sent again: see conn.older.

// traceparentSize is the length of a traceparent of version 00.
const traceparentSize = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

// traceparent returns the trace context of a call, or "" if it is not traced.
func (c *Client) traceparent(ctx context.Context) string {
	if c.opt.TraceParent == nil {
		return ""
	}
	if text := c.opt.TraceParent(ctx); sampled(text) {
		return text
	}
	return ""
}

// sampled reports whether text is a traceparent of version 00 that is marked as sampled. A node
// refuses what is none.
func sampled(text string) bool {
	if len(text) != traceparentSize || text[:3] != "00-" {
		return false
	}
	trace, span, flags := text[3:35], text[36:52], text[53:]
	return text[35] == '-' && text[52] == '-' && isHex(trace) && isHex(span) && isHex(flags) &&
		!zero(trace) && !zero(span) && hexValue(flags[1])&1 != 0
}

// hexValue returns the value of a hexadecimal digit in lower case, and 0xff for all else.
func hexValue(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

func isHex(text string) bool {
	for i := range len(text) {
		if hexValue(text[i]) > 15 {
			return false
		}
	}
	return true
}

func zero(text string) bool {
	for i := range len(text) {
		if text[i] != '0' {
			return false
		}
	}
	return true
}

// joinTraced is queue.join for a call with a trace context. owns says that the batch carries it.
// No batch is sealed meanwhile.
func (o *order) joinTraced(q *queue, count uint64, trace string) (b *batch, at uint64, result joined, owns bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, at, result = q.join(count)
	if result <= joinedFirst && b.trace == "" {
		b.trace, owns = trace, true
	}
	return b, at, result, owns
}

// untrace removes the trace context of a call that leaves, unless the batch is on its way.
func (o *order) untrace(b *batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.state.Load()&stateSealed == 0 {
		b.trace = ""
	}
}

// older notes that the node has refused an option of b's request because its version does not
// know it, and reports whether the request is to be sent again. Trace contexts are newer than
// floors, so they are given up first. TS64 and timelines are newer than both: who refuses those says nothing about them.
func (cn *conn) older(b *batch, err error) bool {
	refusal, ok := err.(*isotone.Error)
	switch {
	case !ok || refusal.Code != isotone.CodeInvalidArgument || b.kind.is64() || b.order.timeline != nil:
		return false
	case b.traces:
		cn.untraced = true
	case b.carries:
		cn.plain = true
	default:
		return false
	}
	return true
}

// appendOption appends the request line with an option and its value. line is an array of less than eight bulk strings.
func appendOption(line []byte, name, value string) []byte {
	line = appendBulk(slices.Clone(line), name)
	line[len("*")] += 2 // the number of strings
	return appendBulk(line, value)
}
