package proxy

import "github.com/isotone/isotone/internal/front/head"

const (
	// headBytesMax bounds the head of a request or an answer. Cookies make requests of
	// some KiB; nginx allows 8 KiB a line, HAProxy 16 KiB in all.
	headBytesMax = 16 << 10
)

// verdict is what the bytes at the front of a connection are.
type verdict uint8

const (
	partial verdict = iota // too few to say
	whole                  // they begin with a valid head
	invalid                // they never will
)

// request is the head of a request. It is used again for the next.
type request struct {
	head.RequestLine
	size         int // of the head, in bytes
	length       int64
	hasLength    bool
	chunked      bool
	upgrade      bool
	expect       bool
	conn         connection
	fields       []field
	host         int // place in fields; -1: none
	id           int // likewise; -1 also if there are several
	parent       int
	forwardedFor int // the last
}

// lasts reports whether the client wants to go on with the connection.
func (r *request) lasts() bool { return !r.conn.close && (r.Minor == 1 || r.conn.keepAlive) }

// http2Preface is how a client with prior knowledge begins (RFC 9113 §3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\n"

// parseRequest reads the head of a request at the front of b. What it returns as whole
// can be read in one way only.
func parseRequest(b []byte, r *request) (verdict, *fault) {
	if ok, err := head.Complete(b, headBytesMax); err != nil {
		return invalid, faultOf(err)
	} else if !ok {
		return partial, nil
	}
	*r = request{fields: r.fields[:0], host: -1, id: -1, parent: -1, forwardedFor: -1}
	line, e := head.ParseRequestLine(b)
	if e != nil {
		return invalid, faultOf(e)
	}
	r.RequestLine = line
	var err *fault
	if r.fields, r.size, err = parseFields(b, r.End, r.fields); err != nil {
		return invalid, err
	}
	if err := r.understand(b); err != nil {
		return invalid, err
	}
	return whole, nil
}

// understand takes from the fields what the message means.
func (r *request) understand(b []byte) *fault {
	hosts, ids, parents := 0, 0, 0
	for i := range r.fields {
		f := &r.fields[i]
		switch f.kind {
		case kindPlain:
		case kindHost:
			r.host = i
			if hosts++; hosts > 1 || f.ValueFrom == f.ValueTo || !head.Host.All(f.Value(b)) {
				return refuse("want one Host, with a name or address")
			}
		case kindLength:
			var ok bool
			if r.length, ok = head.ParseLength(f.Value(b)); !ok || r.hasLength {
				return refuse("want one Content-Length, a number")
			}
			r.hasLength = true
		case kindTransfer:
			if r.chunked || r.Minor == 0 || !head.EqualFold(f.Value(b), "chunked") {
				return refuse("want at most one Transfer-Encoding, chunked, in HTTP/1.1")
			}
			r.chunked = true
		case kindConnection:
			if err := r.conn.parse(f.Value(b)); err != nil {
				return err
			}
		case kindUpgrade:
			r.upgrade = true
		case kindExpect:
			if r.expect = true; !head.EqualFold(f.Value(b), "100-continue") {
				return &fault{417, "of expectations only 100-continue is met"}
			}
		case kindID:
			ids++
			r.id = i
		case kindTraceparent:
			parents++
			r.parent = i
		case kindForwardedFor:
			r.forwardedFor = i
		}
	}
	switch {
	case r.hasLength && r.chunked:
		return refuse("both Content-Length and Transfer-Encoding")
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
	if r.conn.others {
		nominate(b, r.fields)
	}
	return nil
}

// refusal says why a valid request is not forwarded, or nil.
func (r *request) refusal(b []byte) *fault {
	switch method := r.Method(b); {
	case r.upgrade:
		return faultUpgrade
	case string(method) == "CONNECT", string(method) == "TRACE":
		return faultMethod
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
