package requestid

import "encoding/hex"

// Trace is the content of a traceparent.
type Trace struct {
	// ID identifies the trace. It is never all zero.
	ID [16]byte
	// Span identifies one step in it. It is never all zero.
	Span [8]byte
	// Flags are those of version 00; bit 0: the caller may have recorded it.
	Flags byte
}

// TraceparentBytes is the length of a traceparent of version 00:
//
//	00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
const TraceparentBytes = 2 + 1 + 32 + 1 + 16 + 1 + 2

// The places of the parts.
const (
	traceAt = 3
	spanAt  = traceAt + 32 + 1
	flagsAt = spanAt + 16 + 1
)

// traceparentBytesMax bounds one of a later version, which may be longer.
const traceparentBytesMax = 512

// ParseTraceparent parses a traceparent as strictly as the recommendation: lower case only,
// no identifier that is all zero, no version ff. It accepts later versions that begin in the
// same way.
func ParseTraceparent[T string | []byte](s T) (t Trace, ok bool) {
	if len(s) < TraceparentBytes || len(s) > traceparentBytesMax {
		return Trace{}, false
	}
	if s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return Trace{}, false
	}
	var version, flags [1]byte
	ok = decode(version[:], s[:2]) && decode(t.ID[:], s[traceAt:]) && decode(t.Span[:], s[spanAt:]) && decode(flags[:], s[flagsAt:])
	switch {
	case !ok, version[0] == 0xff, t.ID == [16]byte{}, t.Span == [8]byte{}:
		return Trace{}, false
	case len(s) > TraceparentBytes && (version[0] == 0 || s[TraceparentBytes] != '-'):
		return Trace{}, false
	}
	t.Flags = flags[0]
	return t, true
}

// decode fills b with the hexadecimal digits that s begins with.
func decode[T string | []byte](b []byte, s T) bool {
	for i := range b {
		hi, lo := digits[s[2*i]], digits[s[2*i+1]]
		if hi|lo > 15 {
			return false
		}
		b[i] = hi<<4 | lo
	}
	return true
}

// digits has the values of the lower-case hexadecimal digits, and 0xff for all else.
var digits = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		table[c] = byte(i)
	}
	return table
}()

// Append appends the traceparent of version 00 to b. Only the flag that version 00
// knows goes on.
func (t Trace) Append(b []byte) []byte {
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t.ID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, t.Span[:])
	return append(b, '-', '0', '0'+t.Flags&1)
}

// String returns the traceparent.
func (t Trace) String() string { return string(t.Append(make([]byte, 0, TraceparentBytes))) }
