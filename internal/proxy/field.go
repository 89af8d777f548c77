package proxy

import (
	"bytes"

	"github.com/isotone/isotone/internal/front/head"
)

// kind is the meaning of a header field for the proxy. Only fields of kindPlain are copied
// unchanged.
type kind uint8

const (
	kindPlain kind = iota // copied
	kindHop               // hop by hop (RFC 9110 §7.6.1): removed
	kindHost
	kindLength
	kindTransfer
	kindConnection
	kindUpgrade
	kindExpect
	kindID
	kindTraceparent
	kindTracestate
	kindForwardedFor
	kindForwarded // the other fields about the client; replaced or removed like kindForwardedFor
	kindNominated // named by Connection: removed
)

const fieldNameMax = 19

// kinds has the names of all other kinds than kindPlain in lower case, by their length.
var kinds = func() (table [fieldNameMax + 1][]kindName) {
	add := func(k kind, names ...string) {
		for _, name := range names {
			table[len(name)] = append(table[len(name)], kindName{name, k})
		}
	}
	add(kindHop, "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer")
	add(kindHost, "host")
	add(kindLength, "content-length")
	add(kindTransfer, "transfer-encoding")
	add(kindConnection, "connection")
	add(kindUpgrade, "upgrade")
	add(kindExpect, "expect")
	add(kindID, "x-request-id")
	add(kindTraceparent, "traceparent")
	add(kindTracestate, "tracestate")
	add(kindForwardedFor, "x-forwarded-for")
	add(kindForwarded, "forwarded", "x-real-ip") // and all with forwardedPrefix
	return table
}()

type kindName struct {
	name string
	kind kind
}

// forwardedPrefix begins the names of fields that say something about the client.
const forwardedPrefix = "x-forwarded-"

func kindOf(name []byte) kind {
	if bytes.IndexByte(name, '_') >= 0 {
		// Gateways such as CGI (RFC 3875) make one name of X-Forwarded-For and X_Forwarded_For. One that
		// could be taken for a field that the proxy sets or interprets is removed.
		if kindOf(bytes.ReplaceAll(name, []byte{'_'}, []byte{'-'})) != kindPlain {
			return kindHop
		}
		return kindPlain
	}
	if len(name) <= fieldNameMax {
		for i := range kinds[len(name)] {
			if k := &kinds[len(name)][i]; head.EqualFold(name, k.name) {
				return k.kind
			}
		}
	}
	if hasForwardedPrefix(name) {
		return kindForwarded
	}
	return kindPlain
}

func hasForwardedPrefix(name []byte) bool {
	return len(name) >= len(forwardedPrefix) && head.EqualFold(name[:len(forwardedPrefix)], forwardedPrefix)
}

// field is one header field.
type field struct {
	head.Field
	kind kind
}

// fieldsMax bounds the fields of one message.
const fieldsMax = 100

// message is what the heads of requests and answers have in common.
type message struct {
	size      int // of the head, in bytes
	length    int64
	hasLength bool
	chunked   bool
	conn      connection
	fields    []field
}

// scanFields scans the fields of message b, whose head is complete, from at on.
func (m *message) scanFields(b []byte, at int) *httpError {
	for {
		if len(m.fields) == fieldsMax && b[at] != '\r' {
			return &httpError{431, "too many header fields"}
		}
		m.fields = append(m.fields, field{}) // scanned in place: a copy of what was just written is slow
		f := &m.fields[len(m.fields)-1]
		last, err := f.Scan(b, at)
		if at = int(f.End); err != nil {
			return errorOf(err)
		} else if last {
			m.size, m.fields = at, m.fields[:len(m.fields)-1]
			return nil
		}
		f.kind = kindOf(f.Name(b))
	}
}

// interpretFraming evaluates one field that says how the body or the connection ends.
func (m *message) interpretFraming(b []byte, f *field, minor byte) *httpError {
	switch f.kind {
	case kindLength:
		var ok bool
		if m.length, ok = head.ParseLength(f.Value(b)); !ok || m.hasLength {
			return refuse("want one Content-Length, a number")
		}
		m.hasLength = true
	case kindTransfer:
		if m.chunked || minor == 0 || !head.EqualFold(f.Value(b), "chunked") {
			return refuse("want at most one Transfer-Encoding, chunked, in HTTP/1.1")
		}
		m.chunked = true
	case kindConnection:
		return m.conn.parse(f.Value(b))
	}
	return nil
}

// connection has the options of a message's Connection fields.
type connection struct {
	close, keepAlive, upgrade bool
	others                    bool // names of fields
}

// persistent reports whether the sender keeps the connection open; minor is of its version.
func (c *connection) persistent(minor byte) bool { return !c.close && (minor == 1 || c.keepAlive) }

// parse reads one value.
func (c *connection) parse(value []byte) *httpError {
	for len(value) > 0 {
		option := value
		if i := bytes.IndexByte(value, ','); i >= 0 {
			option, value = value[:i], value[i+1:]
		} else {
			value = nil
		}
		option = bytes.Trim(option, " \t")
		switch {
		case len(option) == 0:
		case !head.Token.All(option):
			return refuse("Connection contains an invalid field name")
		case head.EqualFold(option, "close"):
			c.close = true
		case head.EqualFold(option, "keep-alive"):
			c.keepAlive = true
		case head.EqualFold(option, "upgrade"):
			c.upgrade = true
		default:
			switch kindOf(option) {
			case kindPlain, kindHop:
				c.others = true
			default:
				// To remove these would change the meaning or the origin of the message.
				return refuse("Connection names a field that must not be removed")
			}
		}
	}
	return nil
}

// markNominated marks the fields that Connection names.
func (m *message) markNominated(b []byte) {
	if !m.conn.others {
		return
	}
	for i := range m.fields {
		if m.fields[i].kind != kindConnection {
			continue
		}
		for option := range bytes.SplitSeq(m.fields[i].Value(b), []byte(",")) {
			option = bytes.Trim(option, " \t")
			for j := range m.fields {
				if f := &m.fields[j]; f.kind == kindPlain && bytes.EqualFold(f.Name(b), option) {
					f.kind = kindNominated
				}
			}
		}
	}
}

// appendPlain appends the lines of plain fields unchanged.
func (m *message) appendPlain(out, b []byte) []byte {
	list := m.fields
	for i := 0; i < len(list); i++ {
		if list[i].kind != kindPlain {
			continue
		}
		begin := list[i].Line
		for i+1 < len(list) && list[i+1].kind == kindPlain {
			i++
		}
		out = append(out, b[begin:list[i].End]...)
	}
	return out
}
