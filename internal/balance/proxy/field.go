package proxy

import "bytes"

// kind is what a header field means here. Fields of all kinds but kindPlain are not
// copied as they are.
type kind uint8

const (
	kindPlain kind = iota // copied
	kindHop               // ends here: RFC 9110 §7.6.1
	kindHost
	kindLength
	kindTransfer
	kindConnection
	kindUpgrade
	kindExpect
	kindID
	kindTraceparent
	kindTracestate
	kindForwardedFor // and the others: replaced
	kindForwarded
	kindNominated // named by Connection: ends here, too
)

const fieldNameMax = 19

// kinds has the names that mean something by their length, in lower case.
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
	add(kindForwarded, "x-forwarded-proto", "x-forwarded-host", "forwarded")
	return table
}()

type kindName struct {
	name string
	kind kind
}

func kindOf(name []byte) kind {
	if len(name) <= fieldNameMax {
		for i := range kinds[len(name)] {
			if k := &kinds[len(name)][i]; equalFold(name, k.name) {
				return k.kind
			}
		}
	}
	return kindPlain
}

// equalFold compares ASCII without case. lower is in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// field is one line of a header. The places are in the message.
type field struct {
	kind                       kind
	line, value, valueEnd, end int32 // where the line, its value and the next line begin
	name                       int32 // bytes of the name, which is where the line begins
}

func (f *field) nameIn(b []byte) []byte  { return b[f.line : f.line+f.name] }
func (f *field) valueIn(b []byte) []byte { return b[f.value:f.valueEnd] }

// fieldsMax bounds the fields of one message.
const fieldsMax = 100

// The classes of bytes.
const (
	byteToken  = 1 << iota // in names and methods
	byteValue              // in field values: no control characters but tab
	byteTarget             // in request targets
	byteHost               // in names, addresses and ports
	byteHex
)

var classes = func() (table [256]uint8) {
	for c := range 256 {
		lower := byte(c) | 0x20
		alphanumeric := '0' <= c && c <= '9' || 'a' <= lower && lower <= 'z' && c < 0x80
		if alphanumeric {
			table[c] |= byteToken | byteHost
		}
		if '0' <= c && c <= '9' || 'a' <= lower && lower <= 'f' && c < 0x80 {
			table[c] |= byteHex
		}
		if c >= ' ' && c != 0x7f || c == '\t' {
			table[c] |= byteValue
		}
		if c > ' ' && c < 0x7f && c != '#' {
			table[c] |= byteTarget
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		table[c] |= byteToken
	}
	for _, c := range []byte("-._:[]~%") {
		table[c] |= byteHost
	}
	return table
}()

func isClass(b []byte, class uint8) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

// parseFields reads header lines from b[at:], up to and with the blank line, which must
// be in b. It appends them to list, and returns where the body begins.
func parseFields(b []byte, at int, list []field) (_ []field, next int, err *fault) {
	for {
		if b[at] == '\r' {
			if b[at+1] != '\n' {
				return list, 0, refuse("a CR without an LF")
			}
			return list, at + 2, nil
		}
		if len(list) == fieldsMax {
			return list, 0, &fault{status: 431, message: "too many header fields"}
		}
		f := field{line: int32(at)}
		for classes[b[at]]&byteToken != 0 {
			at++
		}
		f.name = int32(at) - f.line
		switch {
		case f.name == 0 && (b[at] == ' ' || b[at] == '\t'):
			return list, 0, refuse("a folded header line")
		case f.name == 0, b[at] != ':':
			return list, 0, refuse("a header field's name has a character that none has")
		}
		f.kind = kindOf(b[f.line:at])
		for at++; b[at] == ' ' || b[at] == '\t'; {
			at++
		}
		f.value = int32(at)
		for classes[b[at]]&byteValue != 0 {
			at++
		}
		if b[at] != '\r' || b[at+1] != '\n' {
			return list, 0, refuse("a header field's value has a control character")
		}
		end := at
		for end > int(f.value) && (b[end-1] == ' ' || b[end-1] == '\t') {
			end--
		}
		f.valueEnd = int32(end)
		at += 2
		f.end = int32(at)
		list = append(list, f)
	}
}

const blankLine = "\r\n\r\n"

// hasHead looks for a whole head at the front of b, of at most max bytes. While it is
// incomplete it only looks at the ends of lines, so that a client that sends byte by byte
// has no parser run for each.
func hasHead(b []byte, max int) (bool, *fault) {
	if i := bytes.Index(b[:min(len(b), max)], []byte(blankLine)); i >= 0 {
		return true, nil
	}
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			break
		}
		if at += i; at == 0 || b[at-1] != '\r' {
			return false, refuse("an LF without a CR")
		}
		at++
	}
	if len(b) >= max {
		return false, &fault{status: 431, message: "the header is too long"}
	}
	return false, nil
}

// parseLength reads the value of Content-Length: digits only, one value.
func parseLength(value []byte) (int64, bool) {
	if len(value) == 0 || len(value) > 18 {
		return 0, false
	}
	n := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// connection is what the Connection fields of a message say.
type connection struct {
	close, keepAlive, upgrade bool
	others                    bool // it names other fields
}

// parse reads one value.
func (c *connection) parse(value []byte) *fault {
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
		case !isClass(option, byteToken):
			return refuse("Connection names what is no field")
		case equalFold(option, "close"):
			c.close = true
		case equalFold(option, "keep-alive"):
			c.keepAlive = true
		case equalFold(option, "upgrade"):
			c.upgrade = true
		default:
			switch kindOf(option) {
			case kindPlain, kindHop:
				c.others = true
			default:
				// To take these away would change what the message means, or who it is from.
				return refuse("Connection names a field that cannot be left out")
			}
		}
	}
	return nil
}

// nominate marks the fields that Connection names.
func nominate(b []byte, list []field) {
	for i := range list {
		if list[i].kind != kindConnection {
			continue
		}
		for option := range bytes.SplitSeq(list[i].valueIn(b), []byte(",")) {
			option = bytes.Trim(option, " \t")
			for j := range list {
				if f := &list[j]; f.kind == kindPlain && bytes.EqualFold(f.nameIn(b), option) {
					f.kind = kindNominated
				}
			}
		}
	}
}

// appendPlain appends the lines of plain fields, as they are.
func appendPlain(out, b []byte, list []field) []byte {
	for i := 0; i < len(list); i++ {
		if list[i].kind != kindPlain {
			continue
		}
		begin := list[i].line
		for i+1 < len(list) && list[i+1].kind == kindPlain {
			i++
		}
		out = append(out, b[begin:list[i].end]...)
	}
	return out
}
