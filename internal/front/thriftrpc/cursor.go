package thriftrpc

import (
	"encoding/binary"
	"errors"
)

// errShort says that a message is incomplete.
var errShort = errors.New("thriftrpc: the message is incomplete")

// malformed says why input is not a valid message. It ends the connection.
type malformed string

func (m malformed) Error() string { return string(m) }

const (
	errMessageLong = malformed("the message is too long")
	errFrame       = malformed("a frame must hold whole messages, and at least one")
	errStringLong  = malformed("a string is too long")
	errNameEmpty   = malformed("the method has no name")
	errVersion     = malformed("the protocol version is not 1")
	errType        = malformed("there is no such type")
	errFieldID     = malformed("a field's number is outside of 16 bits")
	errVarint      = malformed("a number has too many bytes")
	errDepth       = malformed("containers nest too deep")
	errCount       = malformed("a container has more elements than a message has bytes")
)

// cursor reads the bytes of a message. What it returns points into b.
type cursor struct {
	b      []byte
	at     int
	limits *Limits
}

func (r *cursor) take(n int) ([]byte, error) {
	if n > len(r.b)-r.at {
		return nil, errShort
	}
	r.at += n
	return r.b[r.at-n : r.at], nil
}

func (r *cursor) byte() (byte, error) {
	if r.at == len(r.b) {
		return 0, errShort
	}
	r.at++
	return r.b[r.at-1], nil
}

func (r *cursor) uint16() (uint16, error) {
	b, err := r.take(2)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint16(b), nil
}

func (r *cursor) uint32() (uint32, error) {
	b, err := r.take(4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

// uvarint reads a varint of at most bits bits.
func (r *cursor) uvarint(bits int) (uint64, error) {
	var v uint64
	for shift := 0; shift < bits; shift += 7 {
		b, err := r.byte()
		if err != nil {
			return 0, err
		}
		if bits-shift < 7 && b>>(bits-shift) != 0 {
			return 0, errVarint
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errVarint
}

// text returns a string of n bytes.
func (r *cursor) text(n uint64) ([]byte, error) {
	if n > uint64(r.limits.StringBytesMax) {
		return nil, errStringLong
	}
	return r.take(int(n))
}

// count checks the number of elements of a container. Each has at least one byte, so a larger
// one is refused without waiting for its elements.
func (r *cursor) count(n uint64) (int, error) {
	if n > uint64(r.limits.MessageBytesMax) {
		return 0, errCount
	}
	return int(n), nil
}
