package wire

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
)

// MessageSizeMax is the largest message, in bytes of protobuf. One that does not fit a frame is sent in parts.
const MessageSizeMax = 16 << 20

// partSizeMax is the largest payload of a part.
const partSizeMax = 1 << 20

// appendParts appends an encoded message to b, in parts of at most size bytes. It has more than one part.
func appendParts(b, message []byte, size int) []byte {
	for len(message) > size {
		b = appendPart(b, FramePart, message[:size])
		message = message[size:]
	}
	return appendPart(b, FrameLastPart, message)
}

func appendPart(b []byte, t FrameType, part []byte) []byte {
	return sealFrame(append(openFrame(b, t), part...), len(b))
}

// SetFrameMax has Append send messages in parts if their frame would have a length field above n, instead of [FrameSizeMax]; n
// is at least 6 and at most that. Heartbeats of fixed size stay whole. Any receiver takes such parts. It is for simulations, whose
// messages are small.
func (c *Codec) SetFrameMax(n int) { c.frameMax = n }

// parsePart takes in one part of a message, and appends the message to msgs if it is the last. The memory grows with what arrives.
func (c *Codec) parsePart(msgs []*raftpb.Message, f Frame) ([]*raftpb.Message, error) {
	last := f.Type == FrameLastPart
	switch n := len(f.Payload); {
	case n == 0 || n > partSizeMax:
		return msgs, fmt.Errorf("%w: a part of %d bytes", ErrProtocol, n)
	case len(c.parts)+n > MessageSizeMax:
		return msgs, fmt.Errorf("%w: a message in parts of more than %d bytes", ErrProtocol, MessageSizeMax)
	case last && len(c.parts) == 0:
		return msgs, fmt.Errorf("%w: the last part of a message that has no other", ErrProtocol)
	}
	c.parts = append(c.parts, f.Payload...)
	if !last {
		return msgs, nil
	}
	whole := mutant.Pick(mutant.LastPartIsWhole, f.Payload, c.parts)
	c.parts = nil
	return c.parseMessage(msgs, Frame{FrameMessage, whole})
}
