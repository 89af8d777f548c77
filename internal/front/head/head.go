// Package head scans the head of an HTTP/1 message (RFC 9112): the request or status line and
// the header fields. It accepts only what can be read in one way. Lines end with CRLF, none is
// folded, no white space precedes a colon, and no control character but tab occurs in a value.
//
// It knows syntax only: which fields may repeat, and what they mean, is the caller's. Nothing
// allocates but an error. The hot recogniser of internal/front/http1 decides on incomplete heads
// and therefore has a scanner of its own.
package head

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Error says why a head is refused.
type Error struct {
	Status  int // for an answer to the sender: 400, 431 or 505
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

func malformed(message string) *Error { return &Error{400, message} }

// Complete reports whether b begins with a whole head of at most max bytes, by the blank line
// that ends it. It looks at line ends only, so that a sender that delivers single bytes does not
// cause a scan for each. The other functions of this package may be called once it has returned
// true.
func Complete(b []byte, max int) (bool, *Error) {
	begun := b[:min(len(b), max)]
	for at, previous := 0, -2; ; at++ {
		i := bytes.IndexByte(begun[at:], '\n')
		if i < 0 {
			break
		}
		switch at += i; {
		case at == 0 || begun[at-1] != '\r':
			return false, malformed("an LF without a CR")
		case at == previous+len("\r\n"):
			return true, nil
		}
		previous = at
	}
	if len(b) >= max {
		return false, &Error{431, "the header is too long"}
	}
	return false, nil
}

// methodMax bounds a method, in bytes.
const methodMax = 32

// RequestLine is the first line of a request. Its places are in the scanned message, which
// begins with the method.
type RequestLine struct {
	MethodEnd, TargetEnd int
	Minor                byte // of the version: 0 or 1
	End                  int  // where the next line begins
}

// Method returns the method of the request that b begins with.
func (l *RequestLine) Method(b []byte) []byte { return b[:l.MethodEnd] }

// Target returns its target: a path, "*" with OPTIONS, or anything with CONNECT.
func (l *RequestLine) Target(b []byte) []byte { return b[l.MethodEnd+1 : l.TargetEnd] }

// ParseRequestLine scans the request line at the front of b. b must contain an LF.
func ParseRequestLine(b []byte) (l RequestLine, err *Error) {
	at := Token.end(b, 0)
	if at == 0 || at > methodMax || b[at] != ' ' {
		return l, malformed("the request line does not begin with a method and a space")
	}
	l.MethodEnd = at
	if at = Target.end(b, at+1); at == l.MethodEnd+1 || b[at] != ' ' {
		return l, malformed("the request target is invalid")
	}
	l.TargetEnd = at
	if !IsTarget(l.Method(b), l.Target(b)) {
		return l, malformed("the request target is not a path")
	}
	const version = "HTTP/1.1\r\n"
	rest := b[at+1:]
	switch {
	case bytes.HasPrefix(rest, []byte(version)):
		l.Minor = 1
	case bytes.HasPrefix(rest, []byte("HTTP/1.0\r\n")):
	case len(rest) >= len(version) && bytes.HasPrefix(rest, []byte("HTTP/")) && string(rest[len(version)-2:len(version)]) == "\r\n":
		return l, &Error{505, "this is HTTP/1.1"}
	default:
		return l, malformed("the request line does not end with HTTP/1.1")
	}
	l.End = at + 1 + len(version)
	return l, nil
}

// IsTarget reports whether target has a form that goes with method.
func IsTarget[T string | []byte](method, target T) bool {
	return len(target) > 0 && target[0] == '/' || string(target) == "*" && string(method) == "OPTIONS" || string(method) == "CONNECT"
}

// IsMethod reports whether method is one that [ParseRequestLine] accepts.
func IsMethod(method string) bool {
	return method != "" && len(method) <= methodMax && Token.All([]byte(method))
}

// StatusLine is the first line of a response.
type StatusLine struct {
	Minor  byte // of the version: 0 or 1
	Status int  // 100 to 999
	End    int  // where the next line begins
}

// ParseStatusLine scans the status line at the front of b, with or without a reason. b must
// contain an LF.
func ParseStatusLine(b []byte) (l StatusLine, err *Error) {
	const end = len("HTTP/1.1 200")
	if len(b) < end+len("\r\n") || !bytes.HasPrefix(b, []byte("HTTP/1.")) || b[7] != '0' && b[7] != '1' || b[8] != ' ' {
		return l, malformed("the status line does not begin with HTTP/1.1 and a space")
	}
	l.Minor = b[7] - '0'
	status, ok := ParseLength(b[end-3 : end])
	if l.Status = int(status); !ok || status < 100 {
		return l, malformed("the status is not a number from 100 to 999")
	}
	at := end
	if b[at] == ' ' {
		at = valueEnd(b, at)
	}
	if l.End = at + len("\r\n"); b[at] != '\r' || b[at+1] != '\n' {
		return l, malformed("the status line has a control character or no end")
	}
	return l, nil
}

// Field is one header field. Its places are in the scanned message.
type Field struct {
	Line, NameEnd, ValueFrom, ValueTo int32 // the value is without the white space around it
	End                               int32 // where the next line begins
}

// Name returns the field's name in message b.
func (f *Field) Name(b []byte) []byte { return b[f.Line:f.NameEnd] }

// Value returns its value.
func (f *Field) Value(b []byte) []byte { return b[f.ValueFrom:f.ValueTo] }

// Scan scans the line at b[at:] into f. last reports that it is the blank line, behind which, at
// f.End, the body begins. b must contain the blank line.
func (f *Field) Scan(b []byte, at int) (last bool, err *Error) {
	f.Line = int32(at)
	at = Token.end(b, at)
	f.NameEnd = int32(at)
	if b[at] != ':' || f.NameEnd == f.Line {
		return f.scanOther(b, at)
	}
	for at++; b[at] == ' ' || b[at] == '\t'; {
		at++
	}
	f.ValueFrom = int32(at)
	at = valueEnd(b, at)
	if b[at] != '\r' || b[at+1] != '\n' {
		return false, malformed("a header field's value has a control character")
	}
	f.End = int32(at + len("\r\n"))
	for at > int(f.ValueFrom) && (b[at-1] == ' ' || b[at-1] == '\t') {
		at--
	}
	f.ValueTo = int32(at)
	return false, nil
}

// scanOther scans a line that does not begin with a name and a colon.
func (f *Field) scanOther(b []byte, at int) (last bool, err *Error) {
	switch {
	case f.NameEnd != f.Line:
	case b[at] == '\r' && b[at+1] == '\n':
		f.End = int32(at + len("\r\n"))
		return true, nil
	case b[at] == '\r':
		return false, malformed("a CR without an LF")
	case b[at] == ' ' || b[at] == '\t':
		return false, malformed("a folded header line")
	}
	return false, malformed("a header field's name has an invalid character")
}

// valueEnd returns where the value that contains b[at] ends: at the first control character but
// tab. It looks at eight bytes at a time for one below 0x20 or equal to 0x7f.
func valueEnd(b []byte, at int) int {
	const ones = 0x0101010101010101
	for len(b)-at >= 8 {
		x := binary.LittleEndian.Uint64(b[at:])
		del := x ^ 0x7f*ones
		found := ((x-0x20*ones)&^x | (del-ones)&^del) & (0x80 * ones)
		if found == 0 {
			at += 8
			continue
		}
		if at += bits.TrailingZeros64(found) / 8; b[at] != '\t' {
			return at
		}
		at++
	}
	return Value.end(b, at)
}

// ParseLength reads the value of Content-Length: 1 to 18 digits.
func ParseLength(value []byte) (n int64, ok bool) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, 0 < len(value) && len(value) <= 18
}

// EqualFold compares b with lower, which is in lower case, as ASCII without case.
func EqualFold(b []byte, lower string) bool {
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
