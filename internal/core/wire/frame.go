package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// FrameSizeMax is the largest value of a frame's length field, in bytes: type,
// payload and checksum. With [MessageSizeMax] it bounds the memory that one peer can
// make this node use. A larger frame comes from a defect or a stranger; a larger
// snapshot is sent in parts.
const FrameSizeMax = 4 << 20

const (
	// HandshakeSizeMax is the limit until a peer is admitted. It leaves room for the
	// hellos of later versions, whose version number must be readable for a refusal.
	HandshakeSizeMax = 4 << 10
	// storeSizeMax is the largest buffer kept for later frames, so that one large
	// message does not hold megabytes for the life of a connection.
	storeSizeMax = 256 << 10

	lengthSize   = 4
	typeSize     = 1
	checksumSize = 4
	// FrameOverhead is what a frame adds to its payload.
	FrameOverhead = lengthSize + typeSize + checksumSize
)

// Violations of the wire format. Each one ends the connection.
var (
	// ErrFrameSize: a frame is larger than allowed, or too small to be one.
	ErrFrameSize = errors.New("bad frame size")
	// ErrChecksum: a frame was damaged on its way.
	ErrChecksum = errors.New("bad frame checksum")
	// ErrProtocol: a well-formed frame with contents that the protocol forbids.
	ErrProtocol = errors.New("protocol violation")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FrameType is the kind of a frame's payload.
type FrameType uint8

// The frame types. Their numbers are part of the wire format.
const (
	FrameHello         FrameType = 1  // a [Hello], from the dialer
	FrameWelcome       FrameType = 2  // a [Hello], from the acceptor
	FrameRefusal       FrameType = 3  // a [Refusal], from either side
	FrameReady         FrameType = 4  // empty: the dialer admits the acceptor
	FramePing          FrameType = 5  // empty: the sender is alive
	FrameMessage       FrameType = 6  // a raftpb.Message in protobuf
	FrameHeartbeat     FrameType = 7  // a MsgHeartbeat with a RejectHint in fixed size
	FrameHeartbeatResp FrameType = 8  // a MsgHeartbeatResp with a RejectHint in fixed size
	FrameClock         FrameType = 9  // the sender's wall clock, unix nanoseconds in 8 bytes
	FrameUpdate        FrameType = 10 // a [Hello] with changed contents, from either side

	// frameOptional is the first type that a receiver skips if it does not know it.
	frameOptional FrameType = 128

	// FrameClockAsk asks for a reading of the cluster clock, FrameClockTold answers it. Members that
	// do not know them, or read no cluster clock, skip them.
	FrameClockAsk  FrameType = 128 // a nonce in 8 bytes
	FrameClockTold FrameType = 129 // an interval.Reading with the nonce, in interval.ReadingSize bytes

	// FrameCarry passes an operator's request on to the leader, FrameCarryAnswer is the answer. Members that do not know
	// them skip them.
	FrameCarry       FrameType = 130 // a nonce in 8 bytes and a [Carry] in JSON
	FrameCarryAnswer FrameType = 131 // the nonce, the status of HTTP in 2 bytes, and the body

	// A message that does not fit a frame is sent as one or more FramePart and a FrameLastPart, each with 1 to 1 MiB of its protobuf.
	// Other frames may come between them, but no message. Versions that do not know them skip them all, the last one too, so the
	// message is lost as if it had not been sent. They would close the connection at a type below frameOptional, and take
	// the last part for a message if it were a FrameMessage.
	FramePart     FrameType = 132
	FrameLastPart FrameType = 133

	// FrameOwnerAsk asks for the fence of a voter's log, FrameOwnerTold answers it; see package replica. Members of a level without timelines
	// skip them.
	FrameOwnerAsk  FrameType = 134 // session and round in 8 bytes each
	FrameOwnerTold FrameType = 135 // the same, and the fence in 8 bytes
)

// Frame is one unit of the wire format, its checksum verified.
type Frame struct {
	Type FrameType
	// Payload aliases the decoder's memory; see [Decoder.Next].
	Payload []byte
}

// AppendReady appends the dialer's confirmation to b.
func AppendReady(b []byte) []byte { return appendEmptyFrame(b, FrameReady) }

// AppendPing appends a sign of life to b.
func AppendPing(b []byte) []byte { return appendEmptyFrame(b, FramePing) }

// AppendClock appends the sender's wall clock, in unix nanoseconds, to b.
func AppendClock(b []byte, now int64) []byte {
	start := len(b)
	return sealFrame(binary.BigEndian.AppendUint64(openFrame(b, FrameClock), uint64(now)), start)
}

// parseClock reads the payload of a FrameClock.
func parseClock(p []byte) (now int64, err error) {
	if len(p) != 8 {
		return 0, fmt.Errorf("%w: clock of %d bytes", ErrProtocol, len(p))
	}
	return int64(binary.BigEndian.Uint64(p)), nil
}

func appendEmptyFrame(b []byte, t FrameType) []byte {
	return sealFrame(openFrame(b, t), len(b))
}

// openFrame appends the head of a frame. The caller appends the payload, then calls
// sealFrame.
func openFrame(b []byte, t FrameType) []byte {
	return append(b, 0, 0, 0, 0, byte(t))
}

// sealFrame fills in the length of the frame that begins at b[start] and appends
// the checksum. It panics if the frame is larger than FrameSizeMax.
func sealFrame(b []byte, start int) []byte {
	body := b[start+lengthSize:]
	size := len(body) + checksumSize
	if size > FrameSizeMax {
		panic(fmt.Sprintf("wire: sealing a frame of %d bytes", size))
	}
	binary.BigEndian.PutUint32(b[start:], uint32(size))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
}

// Decoder splits a stream of bytes into frames. It holds at most one incomplete frame
// and the bytes last fed. The zero Decoder allows frames up to [FrameSizeMax]. It is
// not safe for concurrent use.
type Decoder struct {
	// limit is the largest frame allowed; 0 means FrameSizeMax.
	limit uint32
	// rest has the bytes not yet returned: the tail of store if stored is true, else
	// of the slice given to Feed.
	rest   []byte
	stored bool
	store  []byte
	err    error
}

// SetHandshake limits frames to 4 KiB if on is true, else to [FrameSizeMax].
func (d *Decoder) SetHandshake(on bool) {
	d.limit = FrameSizeMax
	if on {
		d.limit = HandshakeSizeMax
	}
}

// Feed adds the next bytes of the stream. It may keep p instead of a copy, so p must not
// change until Next reports false.
func (d *Decoder) Feed(p []byte) {
	if len(d.rest) == 0 {
		d.rest, d.stored = p, false
		return
	}
	d.save()
	d.store = append(d.store, p...)
	d.rest = d.store
}

// Next returns the next complete frame, or false when more bytes are needed. Its
// payload is valid until the next call of Next or Feed. Errors match
// [ErrFrameSize] or [ErrChecksum] and are final. Four bytes suffice to refuse an
// oversized frame.
func (d *Decoder) Next() (Frame, bool, error) {
	if d.err != nil {
		return Frame{}, false, d.err
	}
	if len(d.rest) < lengthSize {
		d.save()
		return Frame{}, false, nil
	}
	size := binary.BigEndian.Uint32(d.rest)
	if d.err = d.checkSize(size); d.err != nil {
		return Frame{}, false, d.err
	}
	if len(d.rest)-lengthSize < int(size) {
		d.save()
		return Frame{}, false, nil
	}
	frame := d.rest[lengthSize : lengthSize+int(size)]
	body, sum := frame[:len(frame)-checksumSize], frame[len(frame)-checksumSize:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(sum) {
		d.err = fmt.Errorf("%w: frame type %d of %d bytes", ErrChecksum, body[0], size)
		return Frame{}, false, d.err
	}
	d.rest = d.rest[lengthSize+int(size):]
	return Frame{Type: FrameType(body[0]), Payload: body[typeSize:len(body):len(body)]}, true, nil
}

func (d *Decoder) checkSize(size uint32) error {
	limit := cmp.Or(d.limit, FrameSizeMax)
	if size < typeSize+checksumSize || size > limit {
		return fmt.Errorf("%w: %d bytes, want %d to %d", ErrFrameSize, size, typeSize+checksumSize, limit)
	}
	return nil
}

// save moves the remaining bytes to the front of the decoder's own memory.
func (d *Decoder) save() {
	if d.stored && len(d.rest) == len(d.store) {
		return
	}
	if cap(d.store) > storeSizeMax && len(d.rest) <= storeSizeMax {
		d.store = nil
	}
	d.store = append(d.store[:0], d.rest...)
	d.rest, d.stored = d.store, len(d.store) > 0
}
