package proxy

import "bytes"

const (
	// headBytesMax bounds the head of a request or an answer. Cookies make requests of
	// some KiB; nginx allows 8 KiB a line, HAProxy 16 KiB in all.
	headBytesMax = 16 << 10
	methodMax    = 32
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
	size         int // of the head, in bytes
	method       int // bytes of the method
	target       int // where the target begins
	targetEnd    int
	minor        byte // of HTTP/1: 0 or 1
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
func (r *request) lasts() bool { return !r.conn.close && (r.minor == 1 || r.conn.keepAlive) }

func (r *request) methodIn(b []byte) []byte { return b[:r.method] }
func (r *request) targetIn(b []byte) []byte { return b[r.target:r.targetEnd] }

// http2Preface is how a client with prior knowledge begins (RFC 9113 §3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\n"

// parseRequest reads the head of a request at the front of b. What it returns as whole
// can be read in one way only.
func parseRequest(b []byte, r *request) (verdict, *fault) {
	if ok, err := hasHead(b, headBytesMax); err != nil {
		return invalid, err
	} else if !ok {
		return partial, nil
	}
	*r = request{fields: r.fields[:0], host: -1, id: -1, parent: -1, forwardedFor: -1}
	at, err := r.parseLine(b)
	if err != nil {
		return invalid, err
	}
	if r.fields, r.size, err = parseFields(b, at, r.fields); err != nil {
		return invalid, err
	}
	if err := r.understand(b); err != nil {
		return invalid, err
	}
	return whole, nil
}

// parseLine reads the first line. A blank line is in b, so there is no end to check for.
func (r *request) parseLine(b []byte) (next int, err *fault) {
	at := 0
	for classes[b[at]]&byteToken != 0 {
		at++
	}
	if r.method = at; at == 0 || at > methodMax || b[at] != ' ' {
		return 0, refuse("the request line does not begin with a method and a space")
	}
	at++
	r.target = at
	for classes[b[at]]&byteTarget != 0 {
		at++
	}
	if r.targetEnd = at; at == r.target || b[at] != ' ' {
		return 0, refuse("the target of the request is not valid")
	}
	target := r.targetIn(b)
	asterisk := string(target) == "*" && string(r.methodIn(b)) == "OPTIONS"
	connect := string(r.methodIn(b)) == "CONNECT"
	if target[0] != '/' && !asterisk && !connect {
		return 0, refuse("the target of the request is no path")
	}
	at++
	rest := b[at:]
	const version = "HTTP/1.1\r\n"
	switch {
	case bytes.HasPrefix(rest, []byte(version)):
		r.minor = 1
	case bytes.HasPrefix(rest, []byte("HTTP/1.0\r\n")):
	case len(rest) >= len(version) && bytes.HasPrefix(rest, []byte("HTTP/")) && string(rest[len(version)-2:len(version)]) == "\r\n":
		return 0, &fault{505, "this is HTTP/1.1"}
	default:
		return 0, refuse("the request line does not end with HTTP/1.1")
	}
	return at + len(version), nil
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
			if hosts++; hosts > 1 || f.value == f.valueEnd || !isClass(f.valueIn(b), byteHost) {
				return refuse("want one Host, with a name or address")
			}
		case kindLength:
			var ok bool
			if r.length, ok = parseLength(f.valueIn(b)); !ok || r.hasLength {
				return refuse("want one Content-Length, a number")
			}
			r.hasLength = true
		case kindTransfer:
			if r.chunked || r.minor == 0 || !equalFold(f.valueIn(b), "chunked") {
				return refuse("want at most one Transfer-Encoding, chunked, in HTTP/1.1")
			}
			r.chunked = true
		case kindConnection:
			if err := r.conn.parse(f.valueIn(b)); err != nil {
				return err
			}
		case kindUpgrade:
			r.upgrade = true
		case kindExpect:
			if r.expect = true; !equalFold(f.valueIn(b), "100-continue") {
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
	case hosts == 0 && r.minor == 1:
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
	switch method := r.methodIn(b); {
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
