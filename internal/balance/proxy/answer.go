package proxy

import "bytes"

// answer is the head of a backend's answer. It is used again for the next.
type answer struct {
	size      int
	status    int
	minor     byte
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

// framing returns how the body ends, of an answer to a HEAD request if head (RFC 9112
// §6.3).
func (a *answer) framing(head bool) framing {
	switch {
	case head, a.status < 200, a.status == 204, a.status == 304:
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
func (a *answer) lasts() bool { return !a.conn.close && (a.minor == 1 || a.conn.keepAlive) }

// parseAnswer reads the head of an answer at the front of b, as strictly as a request.
func parseAnswer(b []byte, a *answer) (verdict, *fault) {
	if ok, err := hasHead(b, headBytesMax); err != nil {
		return invalid, faultAnswer
	} else if !ok {
		return partial, nil
	}
	*a = answer{fields: a.fields[:0]}
	at, ok := a.parseLine(b)
	if !ok {
		return invalid, faultAnswer
	}
	var err *fault
	if a.fields, a.size, err = parseFields(b, at, a.fields); err != nil || !a.understand(b) {
		return invalid, faultAnswer
	}
	return whole, nil
}

// parseLine reads "HTTP/1.1 200 OK" with or without the words.
func (a *answer) parseLine(b []byte) (next int, ok bool) {
	const start = len("HTTP/1.1 200")
	if len(b) < start+len("\r\n") || !bytes.HasPrefix(b, []byte("HTTP/1.")) || b[7] != '0' && b[7] != '1' || b[8] != ' ' {
		return 0, false
	}
	a.minor = b[7] - '0'
	for _, c := range b[9:start] {
		if c < '0' || c > '9' {
			return 0, false
		}
		a.status = a.status*10 + int(c-'0')
	}
	at := start
	if b[at] == ' ' {
		for classes[b[at]]&byteValue != 0 {
			at++
		}
	}
	return at + 2, a.status >= 100 && b[at] == '\r' && b[at+1] == '\n'
}

// understand takes from the fields what the message means.
func (a *answer) understand(b []byte) bool {
	for i := range a.fields {
		f := &a.fields[i]
		switch f.kind {
		case kindLength:
			var ok bool
			if a.length, ok = parseLength(f.valueIn(b)); !ok || a.hasLength {
				return false
			}
			a.hasLength = true
		case kindTransfer:
			if a.chunked || a.minor == 0 || !equalFold(f.valueIn(b), "chunked") {
				return false
			}
			a.chunked = true
		case kindConnection:
			if a.conn.parse(f.valueIn(b)) != nil {
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

// fieldsAt returns where the line after the first begins.
func (a *answer) fieldsAt() int {
	if len(a.fields) > 0 {
		return int(a.fields[0].line)
	}
	return a.size - len("\r\n")
}
