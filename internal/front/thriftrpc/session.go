package thriftrpc

import (
	"encoding/binary"
	"fmt"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

const errProtocol = malformed("unknown protocol")

// outBytesMax bounds the answers that are collected before a write, in bytes.
const outBytesMax = 32 << 10

// session turns the input of a connection into answers. It does no I/O.
type session struct {
	answerer
	call     call
	cursor   cursor
	protocol protocol // unknown until it has been detected
	framed   bool
	left     int // unread bytes of the current frame; all of them have arrived
}

func newSession(cfg *Config, labels *agentLabels) session {
	return session{answerer: answerer{cfg: cfg, labels: labels, access: &access.Session{}}, cursor: cursor{limits: &cfg.Limits}}
}

// work answers the calls at the start of in, appends the answers to out, and returns how
// much of in it used. The error is errShort if the next call is incomplete, nil if the
// answers must be written first, and a malformed if the connection must end after the
// answers.
func (s *session) work(in, out []byte) (used int, _ []byte, err error) {
	if s.protocol == protocolUnknown {
		if err := s.begin(in); err != nil {
			return 0, out, err
		}
	}
	for range s.cfg.Limits.PipelineMax {
		if len(out) >= outBytesMax {
			break
		}
		var n int
		if s.framed {
			n, out, err = s.frame(in[used:], out)
		} else {
			n, out, err = s.stream(in[used:], out)
		}
		used += n
		if err != nil {
			return used, out, err
		}
	}
	return used, out, nil
}

// begin detects the protocol.
func (s *session) begin(in []byte) error {
	switch s.protocol, s.framed = detect(in, &s.cfg.Limits); s.protocol {
	case protocolUnknown:
		return errShort
	case protocolBinary:
		s.codec = binaryCodec{}
	case protocolCompact:
		s.codec = compactCodec{}
	case protocolJSON:
		s.codec = jsonCodec{assume: []byte(s.cfg.AssumeMethod)}
	default:
		return errProtocol
	}
	return nil
}

// stream answers one call of a connection without frames.
func (s *session) stream(in, out []byte) (used int, _ []byte, err error) {
	used = s.spaces(in)
	in = in[used:min(len(in), used+s.cfg.Limits.MessageBytesMax)]
	n, out, err := s.message(in, out)
	if err == errShort && len(in) == s.cfg.Limits.MessageBytesMax {
		return used, s.refuse(out, errMessageLong), errMessageLong
	}
	return used + n, out, err
}

// spaces counts the white space at the start of in, which JSON allows around messages.
func (s *session) spaces(in []byte) (n int) {
	if s.protocol == protocolJSON {
		for n < len(in) && isSpace(in[n]) {
			n++
		}
	}
	return n
}

// frame answers one call of a connection with frames. A frame has one or more.
func (s *session) frame(in, out []byte) (used int, _ []byte, err error) {
	if s.left == 0 {
		if len(in) < frameHeadBytes {
			return 0, out, errShort
		}
		size := binary.BigEndian.Uint32(in)
		switch {
		case size == 0:
			return 0, out, errFrame
		case size > uint32(s.cfg.Limits.MessageBytesMax):
			return 0, out, errMessageLong
		case uint32(len(in)-frameHeadBytes) < size:
			return 0, out, errShort
		}
		used, s.left = frameHeadBytes, int(size)
	}
	in = in[used : used+s.left]
	n, out, err := s.message(in, out)
	if err == errShort {
		return used, s.refuse(out, errFrame), errFrame
	}
	n += s.spaces(in[n:])
	s.left -= n
	return used + n, out, err
}

// message reads and answers one message, if it is complete.
func (s *session) message(in, out []byte) (used int, _ []byte, err error) {
	s.call = call{}
	s.cursor.b, s.cursor.at = in, 0
	switch err := s.codec.read(&s.cursor, &s.call); {
	case err == errShort:
		return 0, out, err
	case err != nil:
		return 0, s.refuse(out, err), err
	}
	start := len(out)
	out = s.beginFrame(out)
	out = s.answer(out, &s.call)
	s.endFrame(out, start)
	return s.cursor.at, out, nil
}

// refuse answers a malformed message, if its head could be read.
func (s *session) refuse(out []byte, err error) []byte {
	if !s.call.headed {
		return out
	}
	s.observe(methodOther, "", string(isotone.CodeInvalidArgument))
	start := len(out)
	out = s.beginFrame(out)
	out = s.codec.appendFault(out, &s.call, fault{faultProtocol, fmt.Sprintf("not a call of %s: %v", excerpt(s.call.name, nameTextMax), err)})
	s.endFrame(out, start)
	return out
}

// beginFrame and endFrame put a frame around what is appended between them.
func (s *session) beginFrame(out []byte) []byte {
	if s.framed {
		return append(out, 0, 0, 0, 0)
	}
	return out
}

func (s *session) endFrame(out []byte, start int) {
	if s.framed {
		binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-frameHeadBytes))
	}
}
