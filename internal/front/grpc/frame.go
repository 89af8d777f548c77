package grpc

import (
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/isotone/isotone"
)

const (
	// ContentType is the type of requests and answers.
	ContentType = "application/grpc"
	// contentTypeProto says the same.
	contentTypeProto = "application/grpc+proto"

	// prefixSize is the length of what stands before each message: a byte that says whether it is compressed, and its length.
	prefixSize = 5
	// MessageMax bounds the message of a request. Ours have some 50 bytes; names of symbols are longer.
	MessageMax = 4 << 10
	// readSize is how much is read at once.
	readSize = 2 * MessageMax
)

// IsContentType reports whether a value of Content-Type is that of gRPC with protobuf.
func IsContentType(value string) bool {
	if value == ContentType || value == contentTypeProto {
		return true
	}
	kind, _, err := mime.ParseMediaType(value)
	return err == nil && (kind == ContentType || kind == contentTypeProto)
}

// errCompressed is the error for a compressed message.
var errCompressed = &refusal{codeUnimplemented, isotone.Errorf(isotone.CodeInvalidArgument, "compressed messages are not supported: send them with the encoding identity")}

// errMessages is the error for a unary request with more or less than one message.
var errMessages = isotone.Errorf(isotone.CodeInvalidArgument, "the request has no message, or more than one: want one")

// ParseFrame returns the message that b begins with, and what follows it. The message is nil if b has only a part of it.
func ParseFrame(b []byte) (message, rest []byte, err error) {
	if len(b) < prefixSize {
		return nil, b, nil
	}
	if b[0] != 0 {
		return nil, b, errCompressed
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n > MessageMax {
		return nil, b, isotone.Errorf(isotone.CodeInvalidArgument, "a message of %d bytes: want at most %d", n, MessageMax)
	}
	end := prefixSize + int(n)
	if len(b) < end {
		return nil, b, nil
	}
	return b[prefixSize:end:end], b[end:], nil
}

// BeginFrame appends a prefix, and EndFrame completes it when the message, which goes to the end of b, has been appended. at is
// the length of b before BeginFrame.
func BeginFrame(b []byte) []byte { return append(b, 0, 0, 0, 0, 0) }

// EndFrame completes the prefix that [BeginFrame] has appended at a length of at.
func EndFrame(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-prefixSize))
	return b
}

var buffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// messages reads the messages of a request. The caller releases it.
type messages struct {
	body   io.Reader
	buffer *[readSize]byte // nil: nothing was read
	unread []byte          // in buffer
	err    error           // after that
}

// next returns the next message, which is valid until the next call, or io.EOF.
func (m *messages) next() ([]byte, error) {
	for {
		message, rest, err := ParseFrame(m.unread)
		if message != nil || err != nil {
			m.unread = rest
			return message, err
		}
		if m.err != nil {
			return nil, m.end()
		}
		m.fill()
	}
}

// fill reads what has come.
func (m *messages) fill() {
	if m.buffer == nil {
		m.buffer = buffers.Get().(*[readSize]byte)
	}
	had := copy(m.buffer[:], m.unread)
	n, err := m.body.Read(m.buffer[had:])
	m.unread, m.err = m.buffer[:had+n], err
}

// release gives the buffer back, with what next has returned last.
func (m *messages) release() {
	if m.buffer != nil {
		buffers.Put(m.buffer)
		m.buffer, m.unread = nil, nil
	}
}

// end says why there are no more messages.
func (m *messages) end() error {
	switch {
	case m.err == io.EOF && len(m.unread) == 0:
		return io.EOF
	case errors.Is(m.err, os.ErrDeadlineExceeded):
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no message came in time")
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "the request ends within a message: %v", m.err)
}

// ReadOnly reads the message of a unary request.
func ReadOnly(body io.Reader) ([]byte, error) {
	return (&messages{body: body, buffer: new([readSize]byte)}).only() // not of the pool, as the message is of it
}

// only returns the message of a unary request.
func (m *messages) only() ([]byte, error) {
	message, err := m.next()
	if err == io.EOF || err == nil && len(m.unread) > 0 {
		return nil, errMessages
	}
	return message, err
}

// timeoutUnits are those of the field grpc-timeout.
var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// ParseTimeout parses the field grpc-timeout: up to 8 digits, and a unit.
func ParseTimeout(value string) (time.Duration, error) {
	const digitsMax = 8
	if last := len(value) - 1; last > 0 && last <= digitsMax {
		unit, known := timeoutUnits[value[last]]
		if n, err := strconv.ParseUint(value[:last], 10, 32); err == nil && known && value[0] != '+' {
			const most = 1 << 62
			if n > uint64(most/unit) {
				return most, nil
			}
			return time.Duration(n) * unit, nil
		}
	}
	return 0, isotone.Errorf(isotone.CodeInvalidArgument, "grpc-timeout %.40q: want up to 8 digits and one of H, M, S, m, u, n", value)
}
