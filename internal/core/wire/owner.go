package wire

import (
	"encoding/binary"
	"fmt"
)

// AppendOwnerAsk appends the question of an owner of timelines for the fence of a voter's log to b.
func AppendOwnerAsk(b []byte, session, round uint64) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint64(openFrame(b, FrameOwnerAsk), session)
	return sealFrame(binary.BigEndian.AppendUint64(b, round), start)
}

// AppendOwnerTold appends the answer to b.
func AppendOwnerTold(b []byte, session, round, fence uint64) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint64(openFrame(b, FrameOwnerTold), session)
	return sealFrame(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, round), fence), start)
}

// OnOwnerAsk has Parse call f with each question of an owner on the other side.
func (c *Codec) OnOwnerAsk(f func(session, round uint64)) { c.onOwnerAsk = f }

// OnOwnerTold has Parse call f with each answer of the other side to a question of this one.
func (c *Codec) OnOwnerTold(f func(session, round, fence uint64)) { c.onOwnerTold = f }

func (c *Codec) parseOwnerAsk(p []byte) error {
	if len(p) != 16 {
		return fmt.Errorf("%w: a question of an owner of %d bytes", ErrProtocol, len(p))
	}
	if c.onOwnerAsk != nil {
		c.onOwnerAsk(binary.BigEndian.Uint64(p), binary.BigEndian.Uint64(p[8:]))
	}
	return nil
}

func (c *Codec) parseOwnerTold(p []byte) error {
	if len(p) != 24 {
		return fmt.Errorf("%w: an answer to an owner of %d bytes", ErrProtocol, len(p))
	}
	if c.onOwnerTold != nil {
		c.onOwnerTold(binary.BigEndian.Uint64(p), binary.BigEndian.Uint64(p[8:]), binary.BigEndian.Uint64(p[16:]))
	}
	return nil
}
