package thriftrpc

import (
	"encoding/binary"
	"math"
)

// Types of the compact protocol.
const (
	compactStop   = 0
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactI16    = 4
	compactI32    = 5
	compactI64    = 6
	compactDouble = 7
	compactString = 8
	compactList   = 9
	compactSet    = 10
	compactMap    = 11
	compactStruct = 12
	compactUUID   = 13
)

const (
	compactID          = 0x82 // begins each message
	compactVersion     = 1    // lower bits of the second byte
	compactVersionMask = 0x1f
	compactKindShift   = 5 // upper bits of the second byte: the message's type
	compactDelta       = 4 // upper bits of a field's first byte: the number minus the previous one
)

// compactCodec is the compact protocol.
type compactCodec struct{}

func (w compactCodec) read(r *cursor, c *call) error {
	head, err := r.take(2)
	switch {
	case err != nil:
		return err
	case head[0] != compactID || head[1]&compactVersionMask != compactVersion:
		return errVersion
	}
	c.kind = head[1] >> compactKindShift
	seq, err := r.uvarint(32)
	if err != nil {
		return err
	}
	if c.name, err = w.text(r); err != nil {
		return err
	}
	if len(c.name) == 0 {
		return errNameEmpty
	}
	c.seq, c.headed = int32(uint32(seq)), true
	return w.arguments(r, c)
}

func (w compactCodec) arguments(r *cursor, c *call) error {
	var field int16
	for {
		kind, err := w.field(r, &field)
		if err != nil || kind == compactStop {
			return err
		}
		if field == fieldAgent && kind == compactString {
			c.agent, err = w.text(r)
			c.given = true
		} else {
			err = w.skip(r, kind, r.limits.DepthMax)
		}
		if err != nil {
			return err
		}
	}
}

// field reads the head of a field. last is the number of the previous field, then of this
// one.
func (compactCodec) field(r *cursor, last *int16) (kind byte, err error) {
	head, err := r.byte()
	if err != nil || head == compactStop {
		return compactStop, err
	}
	kind = head & (1<<compactDelta - 1)
	if kind == compactStop {
		return 0, errType
	}
	if delta := int16(head >> compactDelta); delta > 0 {
		if *last > math.MaxInt16-delta {
			return 0, errFieldID
		}
		*last += delta
		return kind, nil
	}
	zigzag, err := r.uvarint(32)
	if err != nil {
		return 0, err
	}
	if zigzag > math.MaxUint16 {
		return 0, errFieldID
	}
	*last = int16(zigzag>>1) ^ -int16(zigzag&1)
	return kind, nil
}

func (compactCodec) text(r *cursor) ([]byte, error) {
	n, err := r.uvarint(32)
	if err != nil {
		return nil, err
	}
	return r.text(n)
}

// skip skips a field's value, whose containers nest at most depth deep.
func (w compactCodec) skip(r *cursor, kind byte, depth int) (err error) {
	switch kind {
	case compactTrue, compactFalse:
		return nil // the type is the value
	case compactByte:
		_, err = r.byte()
		return err
	case compactI16, compactI32:
		_, err = r.uvarint(32)
		return err
	case compactI64:
		_, err = r.uvarint(64)
		return err
	case compactDouble:
		_, err = r.take(8)
		return err
	case compactString:
		_, err = w.text(r)
		return err
	case compactUUID:
		_, err = r.take(16)
		return err
	}
	if depth == 0 {
		return errDepth
	}
	switch kind {
	case compactStruct:
		return w.skipStruct(r, depth-1)
	case compactMap:
		return w.skipMap(r, depth-1)
	case compactSet, compactList:
		return w.skipList(r, depth-1)
	}
	return errType
}

func (w compactCodec) skipStruct(r *cursor, depth int) error {
	var field int16
	for {
		kind, err := w.field(r, &field)
		if err != nil || kind == compactStop {
			return err
		}
		if err := w.skip(r, kind, depth); err != nil {
			return err
		}
	}
}

func (w compactCodec) skipMap(r *cursor, depth int) error {
	size, err := r.uvarint(32)
	if err != nil || size == 0 {
		return err // an empty map has no types
	}
	n, err := r.count(size)
	if err != nil {
		return err
	}
	kinds, err := r.byte()
	if err != nil {
		return err
	}
	for range n {
		if err := w.skipElement(r, kinds>>4, depth); err != nil {
			return err
		}
		if err := w.skipElement(r, kinds&0xf, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w compactCodec) skipList(r *cursor, depth int) error {
	head, err := r.byte()
	if err != nil {
		return err
	}
	size := uint64(head >> 4)
	if size == 15 { // the size follows
		if size, err = r.uvarint(32); err != nil {
			return err
		}
	}
	n, err := r.count(size)
	if err != nil {
		return err
	}
	for range n {
		if err := w.skipElement(r, head&0xf, depth); err != nil {
			return err
		}
	}
	return nil
}

// skipElement skips a value in a container, where a bool has a byte of its own.
func (w compactCodec) skipElement(r *cursor, kind byte, depth int) error {
	if kind == compactTrue || kind == compactFalse {
		kind = compactByte
	}
	return w.skip(r, kind, depth)
}

func (w compactCodec) appendResult(b []byte, c *call, value int64) []byte {
	b = w.appendHead(b, c, kindReply)
	b = append(b, compactI64, fieldSuccess) // the long form: the first field's number is 0
	b = binary.AppendUvarint(b, uint64(value<<1^value>>63))
	return append(b, compactStop)
}

func (w compactCodec) appendFault(b []byte, c *call, e fault) []byte {
	b = w.appendHead(b, c, kindException)
	b = append(b, fieldMessage<<compactDelta|compactString)
	b = w.appendText(b, e.message)
	b = append(b, (fieldKind-fieldMessage)<<compactDelta|compactI32)
	b = binary.AppendUvarint(b, uint64(uint32(e.kind<<1^e.kind>>31)))
	return append(b, compactStop)
}

func (compactCodec) appendHead(b []byte, c *call, kind byte) []byte {
	b = append(b, compactID, kind<<compactKindShift|compactVersion)
	b = binary.AppendUvarint(b, uint64(uint32(c.seq)))
	b = binary.AppendUvarint(b, uint64(len(c.name)))
	return append(b, c.name...)
}

func (compactCodec) appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
