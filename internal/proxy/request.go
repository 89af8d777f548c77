package proxy

import "github.com/isotone/isotone/internal/front/head"

// headBytesMax bounds the head of a request or an answer. Cookies make requests of some KiB;
// nginx allows 8 KiB a line, HAProxy 16 KiB in all.
const headBytesMax = 16 << 10

// verdict classifies the bytes at the front of a connection.
type verdict uint8

const (
	partial verdict = iota // too few to decide
	whole                  // a valid head, and perhaps more
	invalid                // no valid head, whatever follows
)

// request is the head of a request. It is reused for the next one.
type request struct {
	head.RequestLine
	message
	upgrade bool
	expect  bool
	host    int // index in fields; -1: none
	id      int // likewise; -1 also if there are several
	parent  int
}

// persistent reports whether the client keeps the connection open.
func (r *request) persistent() bool { return r.conn.persistent(r.Minor) }

// http2Preface is the first line of a client with prior knowledge (RFC 9113 §3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\n"

// parseRequest reads the head of a request at the front of b. A whole one can be read in one
// way only.
func parseRequest(b []byte, r *request) (verdict, *httpError) {
	if ok, err := head.Complete(b, headBytesMax); err != nil {
		return invalid, errorOf(err)
	} else if !ok {
		return partial, nil
	}
	*r = request{message: message{fields: r.fields[:0]}, host: -1, id: -1, parent: -1}
	line, malformed := head.ParseRequestLine(b)
	if malformed != nil {
		return invalid, errorOf(malformed)
	}
	r.RequestLine = line
	if err := r.scanFields(b, r.End); err != nil {
		return invalid, err
	}
	if err := r.interpret(b); err != nil {
		return invalid, err
	}
	return whole, nil
}

// interpret evaluates the fields.
func (r *request) interpret(b []byte) *httpError {
	hosts, ids, parents := 0, 0, 0
	for i := range r.fields {
		switch f := &r.fields[i]; f.kind {
		case kindPlain:
		case kindHost:
			r.host = i
			if hosts++; hosts > 1 || f.ValueFrom == f.ValueTo || !head.Host.All(f.Value(b)) {
				return refuse("want one Host, with a name or address")
			}
		case kindUpgrade:
			r.upgrade = true
		case kindExpect:
			if r.expect = true; !head.EqualFold(f.Value(b), "100-continue") {
				return &httpError{417, "the only supported expectation is 100-continue"}
			}
		case kindID:
			ids++
			r.id = i
		case kindTraceparent:
			parents++
			r.parent = i
		default:
			if err := r.interpretFraming(b, f, r.Minor); err != nil {
				return err
			}
		}
	}
	switch {
	case r.hasLength && r.chunked:
		return errTwoLengths
	case hosts == 0 && r.Minor == 1:
		return refuse("no Host")
	}
	r.upgrade = r.upgrade || r.conn.upgrade
	if ids > 1 {
		r.id = -1
	}
	if parents > 1 {
		r.parent = -1
	}
	r.markNominated(b)
	return nil
}

// refusal returns the error for a valid request that is not forwarded, or nil.
func (r *request) refusal(b []byte) *httpError {
	switch method := r.Method(b); {
	case r.upgrade:
		return errUpgrade
	case string(method) == "CONNECT", string(method) == "TRACE":
		return errMethod
	}
	return nil
}

// isIdempotent reports whether a request with this method may be sent twice (RFC 9110
// §9.2.2).
func isIdempotent[T string | []byte](method T) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	return false
}
