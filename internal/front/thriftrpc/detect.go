package thriftrpc

// tlsHandshakeByte begins every TLS connection: the record type "handshake" (RFC 8446 §5.1).
const tlsHandshakeByte = 0x16

// protocol is the protocol of a connection, inside TLS or not.
type protocol uint8

const (
	protocolUnknown protocol = iota // more bytes are needed
	protocolNone                    // not supported
	protocolBinary
	protocolCompact
	protocolJSON
)

// frameHeadBytes is the size of the length in front of a frame.
const frameHeadBytes = 4

// detect returns the protocol of a connection that begins with b. Once it is decided, further
// bytes do not change it:
//
//	80                      binary
//	82                      compact
//	"[" or "{"              json or simplejson
//	00 and three more       the length of a frame; the frame begins with one of the above,
//	                        or with 00: binary without a version
//	  and a letter or "_"   the length of a method's name, and the name: binary without a
//	                        version, not framed
//
// Every frame is short enough to begin with 00.
func detect(b []byte, limits *Limits) (p protocol, framed bool) {
	if len(b) == 0 {
		return protocolUnknown, false
	}
	if b[0] != 0 {
		return detectMessage(b[0]), false
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
		return detectMessage(first), true
	}
}

// detectMessage detects by the first byte of a message.
func detectMessage(first byte) protocol {
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
