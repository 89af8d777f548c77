package http2

import "encoding/binary"

// The frame types of RFC 9113 §6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameSettings     = 0x4
	framePush         = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindow       = 0x8
	frameContinuation = 0x9
)

// The flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// code is an error code of RFC 9113 §7.
type code uint32

const (
	codeNone        code = 0x0
	codeProtocol    code = 0x1
	codeInternal    code = 0x2
	codeFlow        code = 0x3
	codeClosed      code = 0x5
	codeFrameSize   code = 0x6
	codeRefused     code = 0x7
	codeCancel      code = 0x8
	codeCompression code = 0x9
	codeCalm        code = 0xb
)

// The settings of RFC 9113 §6.5.2.
const (
	settingTableSize  = 0x1
	settingPush       = 0x2
	settingStreamsMax = 0x3
	settingWindow     = 0x4
	settingFrameMax   = 0x5
	settingHeaderMax  = 0x6
)

const (
	frameHeader = 9
	// frameMax is the largest payload that a connection takes, and the default of its client.
	frameMax = 16 << 10
	// windowDefault is the first window of streams and connections.
	windowDefault = 65535
	windowMax     = 1<<31 - 1
)

// frame is the header of a frame, with its payload.
type frame struct {
	kind    byte
	flags   byte
	stream  uint32
	payload []byte
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// unpad takes the padding off the payload, and reports whether it was well formed.
func (f *frame) unpad() bool {
	if !f.has(flagPadded) {
		return true
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return false
	}
	f.payload = f.payload[1 : len(f.payload)-int(f.payload[0])]
	return true
}

// parseFrame reads the frame that b begins with. It returns its size: 0 if b has only a part of it, -1 if
// it is larger than frameMax.
func parseFrame(b []byte) (f frame, size int) {
	if len(b) < frameHeader {
		return f, 0
	}
	n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if n > frameMax {
		return f, -1
	}
	if len(b) < frameHeader+n {
		return f, 0
	}
	f = frame{kind: b[3], flags: b[4], stream: binary.BigEndian.Uint32(b[5:]) & windowMax, payload: b[frameHeader : frameHeader+n]}
	return f, frameHeader + n
}

// appendFrame appends the header of a frame with a payload of n bytes.
func appendFrame(b []byte, kind, flags byte, stream uint32, n int) []byte {
	return append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendReset(b []byte, stream uint32, c code) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frameReset, 0, stream, 4), uint32(c))
}

func appendWindow(b []byte, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, frameWindow, 0, stream, 4), n)
}

// appendGoAway says that no stream after last is served.
func appendGoAway(b []byte, last uint32, c code) []byte {
	b = appendFrame(b, frameGoAway, 0, 0, 8)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, last), uint32(c))
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}
