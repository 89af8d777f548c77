package thriftrpc

import (
	"encoding/binary"
	"fmt"

	"github.com/isotone/isotone"
)

const errProtocol = malformed("this is no protocol that is spoken here")

// outBytesMax is how many bytes of answers are enough for a write.
const outBytesMax = 32 << 10

// session is what a connection has said and is told, without the connection.
type session struct {
	answerer
	call     call
	cursor   cursor
	protocol protocol // unknown until it has been told
	framed   bool
	left     int // bytes of the frame that is being read; all of them have arrived
}

func newSession(cfg *Config, labels *agentLabels) session {
	return session{answerer: answerer{cfg: cfg, labels: labels}, cursor: cursor{limits: &cfg.Limits}}
}

// work answers the calls at the start of in, appends the answers to out, and returns how
// much of in they took. It returns errShort when it needs more than there is in in, nil
// when the answers must be written before it can go on, and a malformed when the connection
// must end, after the answers.
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

// begin finds out what is spoken.
func (s *session) begin(in []byte) error {
	switch s.protocol, s.framed = tell(in, &s.cfg.Limits); s.protocol {
	case protocolUnknown:
		return errShort
	case protocolBinary:
		s.wire = binaryWire{}
	case protocolCompact:
		s.wire = compactWire{}
	case protocolJSON:
		s.wire = jsonWire{assume: []byte(s.cfg.AssumeMethod)}
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

// spaces returns how much space is at the start of in, which JSON allows around messages.
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

// message reads one message, and answers it unless more bytes are needed for that.
func (s *session) message(in, out []byte) (used int, _ []byte, err error) {
	s.call = call{}
	s.cursor.b, s.cursor.at = in, 0
	switch err := s.wire.read(&s.cursor, &s.call); {
	case err == errShort:
		return 0, out, err
	case err != nil:
		return 0, s.refuse(out, err), err
	}
	start := len(out)
	out = s.reserve(out)
	out = s.answer(out, &s.call)
	s.seal(out, start)
	return s.cursor.at, out, nil
}

// refuse appends what is wrong with the message, if it is known which it is.
func (s *session) refuse(out []byte, err error) []byte {
	if !s.call.headed {
		return out
	}
	s.observe(methodOther, "", string(isotone.CodeInvalidArgument))
	start := len(out)
	out = s.reserve(out)
	out = s.wire.appendFault(out, &s.call, fault{faultProtocol, fmt.Sprintf("not a call of %s: %v", excerpt(s.call.name, nameTextMax), err)})
	s.seal(out, start)
	return out
}

// reserve and seal put a frame around what is appended between them.
func (s *session) reserve(out []byte) []byte {
	if s.framed {
		return append(out, 0, 0, 0, 0)
	}
	return out
}

func (s *session) seal(out []byte, start int) {
	if s.framed {
		binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-frameHeadBytes))
	}
}
