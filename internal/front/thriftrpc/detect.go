package thriftrpc

// tlsHandshakeByte begins every TLS connection: the record type "handshake" (RFC 8446 §5.1).
const tlsHandshakeByte = 0x16

// protocol is what a connection speaks, on top of TLS or not.
type protocol uint8

const (
	protocolUnknown protocol = iota // more bytes are needed
	protocolNone                    // none that is spoken here
	protocolBinary
	protocolCompact
	protocolJSON
)

// frameHeadBytes is the length of a frame's length.
const frameHeadBytes = 4

// tell says what a connection speaks that begins with b. What it has decided stays decided,
// whatever follows:
//
//	80                      binary
//	82                      compact
//	"[" or "{"              json or simplejson
//	00 and three more       the length of a frame; the frame begins with one of the above,
//	                        or with 00: binary without a version
//	  and a letter or "_"   the length of a method's name, and the name: binary without a
//	                        version, not framed
//
// No frame is as long as to begin with another byte than 00.
func tell(b []byte, limits *Limits) (p protocol, framed bool) {
	if len(b) == 0 {
		return protocolUnknown, false
	}
	if b[0] != 0 {
		return tellMessage(b[0]), false
	}
	if len(b) < frameHeadBytes {
		return protocolUnknown, false
	}
	size := int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	if size == 0 || size > max(limits.MessageBytesMax, limits.StringBytesMax) {
		return protocolNone, false
	}
	if len(b) == frameHeadBytes {
		return protocolUnknown, false
	}
	switch first := b[frameHeadBytes]; {
	case first == 0:
		return protocolBinary, true
	case 'a' <= first && first <= 'z' || 'A' <= first && first <= 'Z' || first == '_':
		return protocolBinary, false
	default:
		return tellMessage(first), true
	}
}

// tellMessage tells by the first byte of a message.
func tellMessage(first byte) protocol {
	switch first {
	case binaryVersion >> 24:
		return protocolBinary
	case compactID:
		return protocolCompact
	case '[', '{':
		return protocolJSON
	}
	return protocolNone
}
