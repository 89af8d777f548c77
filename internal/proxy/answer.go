package proxy

import "github.com/isotone/isotone/internal/front/head"

// answer is the head of a backend's answer. It is reused for the next one.
type answer struct {
	head.StatusLine
	message
}

// framing is what ends a body.
type framing uint8

const (
	framingNone    framing = iota // there is no body
	framingLength                 // its length
	framingChunked                // its last chunk
	framingClose                  // the end of the connection; for the client, a last chunk
)

// framing returns what ends the body (RFC 9112 §6.3). toHead says that the request was a HEAD.
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

// persistent reports whether the backend keeps the connection open.
func (a *answer) persistent() bool { return a.conn.persistent(a.Minor) }

// parseAnswer reads the head of an answer at the front of b, as strictly as a request.
func parseAnswer(b []byte, a *answer) (verdict, *httpError) {
	if ok, err := head.Complete(b, headBytesMax); err != nil {
		return invalid, errInvalidAnswer
	} else if !ok {
		return partial, nil
	}
	*a = answer{message: message{fields: a.fields[:0]}}
	line, err := head.ParseStatusLine(b)
	if a.StatusLine = line; err != nil || a.scanFields(b, a.End) != nil || a.interpret(b) != nil {
		return invalid, errInvalidAnswer
	}
	return whole, nil
}

// interpret evaluates the fields.
func (a *answer) interpret(b []byte) *httpError {
	for i := range a.fields {
		switch f := &a.fields[i]; f.kind {
		case kindPlain:
		case kindHost, kindExpect, kindForwarded, kindForwardedFor, kindTracestate:
			f.kind = kindPlain // without meaning in an answer
		default:
			if err := a.interpretFraming(b, f, a.Minor); err != nil {
				return err
			}
		}
	}
	if a.hasLength && a.chunked {
		return errTwoLengths
	}
	a.markNominated(b)
	return nil
}
