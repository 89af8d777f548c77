package proxy

import "github.com/isotone/isotone/internal/front/head"

// answer is the head of a backend's answer. It is used again for the next.
type answer struct {
	head.StatusLine
	size      int
	length    int64
	hasLength bool
	chunked   bool
	conn      connection
	fields    []field
}

// framing is how the end of a body is known.
type framing uint8

const (
	framingNone    framing = iota // there is no body
	framingLength                 // by its length
	framingChunked                // by its last chunk
	framingClose                  // by the end of the connection; to the client, by a last chunk
)

// framing returns how the body ends, of an answer to a HEAD request if toHead (RFC 9112
// §6.3).
func (a *answer) framing(toHead bool) framing {
	switch {
	case toHead, a.Status < 200, a.Status == 204, a.Status == 304:
		return framingNone
	case a.chunked:
		return framingChunked
	case a.hasLength && a.length == 0:
		return framingNone
	case a.hasLength:
		return framingLength
	}
	return framingClose
}

// lasts reports whether the backend wants to go on with the connection.
func (a *answer) lasts() bool { return !a.conn.close && (a.Minor == 1 || a.conn.keepAlive) }

// parseAnswer reads the head of an answer at the front of b, as strictly as a request.
func parseAnswer(b []byte, a *answer) (verdict, *fault) {
	if ok, err := head.Complete(b, headBytesMax); err != nil {
		return invalid, faultAnswer
	} else if !ok {
		return partial, nil
	}
	*a = answer{fields: a.fields[:0]}
	line, e := head.ParseStatusLine(b)
	if e != nil {
		return invalid, faultAnswer
	}
	a.StatusLine = line
	var err *fault
	if a.fields, a.size, err = parseFields(b, a.End, a.fields); err != nil || !a.understand(b) {
		return invalid, faultAnswer
	}
	return whole, nil
}

// understand takes from the fields what the message means.
func (a *answer) understand(b []byte) bool {
	for i := range a.fields {
		f := &a.fields[i]
		switch f.kind {
		case kindLength:
			var ok bool
			if a.length, ok = head.ParseLength(f.Value(b)); !ok || a.hasLength {
				return false
			}
			a.hasLength = true
		case kindTransfer:
			if a.chunked || a.Minor == 0 || !head.EqualFold(f.Value(b), "chunked") {
				return false
			}
			a.chunked = true
		case kindConnection:
			if a.conn.parse(f.Value(b)) != nil {
				return false
			}
		case kindHost, kindExpect, kindForwarded, kindForwardedFor, kindTracestate:
			f.kind = kindPlain // mean nothing in an answer
		}
	}
	if a.conn.others {
		nominate(b, a.fields)
	}
	return !(a.hasLength && a.chunked)
}
