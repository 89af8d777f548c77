package http2

import (
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// field is a header field, or a pseudo-header field.
type field = hpack.HeaderField

// request is a request as its fields say. It is reused.
type request struct {
	method, scheme, authority, path string
	fields                          []field // without pseudo-fields
	length                          int64   // of the body, by content-length; -1: unknown
	size                            int     // as in RFC 9113 §6.5.2
	sizeMax                         int
	regular                         bool // the pseudo-fields have ended
	malformed                       bool // RFC 9113 §8.1.1
	tooLong                         bool
}

func (r *request) reset(sizeMax int) {
	clear(r.fields)
	*r = request{fields: r.fields[:0], length: -1, sizeMax: sizeMax}
}

// add takes the next field of the block.
func (r *request) add(f field) {
	if r.size += int(f.Size()); r.size > r.sizeMax {
		r.tooLong = true
		return
	}
	if !isValue(f.Value) {
		r.malformed = true
	}
	if f.IsPseudo() {
		r.addPseudo(f)
		return
	}
	r.regular = true
	if !isName(f.Name) || isOfConnection(f) || f.Name == "content-length" && !r.setLength(f.Value) {
		r.malformed = true
	}
	r.fields = append(r.fields, f)
}

func (r *request) addPseudo(f field) {
	var to *string
	switch f.Name {
	case ":method":
		to = &r.method
	case ":scheme":
		to = &r.scheme
	case ":authority":
		to = &r.authority
	case ":path":
		to = &r.path
	default:
		r.malformed = true
		return
	}
	if *to != "" || r.regular || f.Value == "" && to != &r.authority {
		r.malformed = true
	}
	*to = f.Value
}

func (r *request) setLength(value string) bool {
	for i := range len(value) {
		if value[i] < '0' || value[i] > '9' {
			return false
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || r.length >= 0 && n != r.length {
		return false
	}
	r.length = n
	return true
}

// check finds what only the whole block shows. ends says that there is no body.
func (r *request) check(ends bool) {
	if r.method == "CONNECT" {
		r.malformed = r.malformed || r.scheme != "" || r.path != "" || r.authority == ""
	} else if r.method == "" || r.path == "" || r.scheme != "http" && r.scheme != "https" {
		r.malformed = true
	}
	if !isToken(r.method) || ends && r.length > 0 {
		r.malformed = true
	}
	for _, f := range r.fields {
		if f.Name != "host" {
			continue
		}
		if r.authority != "" && f.Value != r.authority {
			r.malformed = true // RFC 9113 §8.3.1
		}
	}
}

// isOfConnection reports whether f means a connection of HTTP/1 (RFC 9113 §8.2.2).
func isOfConnection(f field) bool {
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return true
	case "te":
		return f.Value != "trailers"
	}
	return false
}

// isValue reports whether a value is well formed (RFC 9113 §8.2.1).
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return s == "" || !isBlank(s[0]) && !isBlank(s[len(s)-1])
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isName(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return false
		}
	}
	return isToken(s)
}

// isToken reports whether s is one (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

var tokenBytes = func() (set [256]bool) {
	for c := range 256 {
		lower := c | 0x20
		set[c] = '0' <= c && c <= '9' || 'a' <= lower && lower <= 'z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		set[c] = true
	}
	return set
}()

// appendText spells a request without a body as in HTTP/1.1, if it can be hot: nil otherwise. No field has a line end in it,
// so nothing of it can be taken for something else.
func (r *request) appendText(b []byte) []byte {
	if r.method != "GET" || r.authority == "" {
		return nil
	}
	b = append(append(append(b, "GET "...), r.path...), " HTTP/1.1\r\nhost: "...)
	b = append(append(b, r.authority...), "\r\n"...)
	for _, f := range r.fields {
		if f.Name == "host" {
			continue // it is the same
		}
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// isStateless reports whether a block of fields (RFC 7541 §6) means the same each time, as long as no other block
// changes the dynamic table: it has no literal that is to be indexed, and does not resize the table.
func isStateless(b []byte) bool {
	for len(b) > 0 {
		first := b[0]
		switch {
		case first >= 0x80:
			_, b = cutInteger(b, 7)
		case first >= 0x20:
			return false
		default:
			var name int
			if name, b = cutInteger(b, 4); name == 0 {
				b = cutString(b)
			}
			b = cutString(b)
		}
		if b == nil {
			return false
		}
	}
	return true
}

// cutInteger reads an integer with a prefix of n bits, and returns what follows; nil if it is incomplete or
// large.
func cutInteger(b []byte, n uint) (value int, rest []byte) {
	if len(b) == 0 {
		return 0, nil
	}
	most := 1<<n - 1
	if value = int(b[0]) & most; value < most {
		return value, b[1:]
	}
	for i := 1; i < len(b) && i <= 3; i++ {
		value += int(b[i]&0x7f) << (7 * (i - 1))
		if b[i] < 0x80 {
			return value, b[i+1:]
		}
	}
	return 0, nil
}

// cutString returns what follows a string; nil if it is incomplete.
func cutString(b []byte) []byte {
	n, rest := cutInteger(b, 7)
	if rest == nil || n > len(rest) {
		return nil
	}
	return rest[n:]
}
