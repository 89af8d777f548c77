package thriftrpc

import "encoding/binary"

// Types of the binary protocol.
const (
	binaryStop   = 0
	binaryI32    = 8
	binaryI64    = 10
	binaryString = 11
	binaryStruct = 12
	binaryMap    = 13
	binarySet    = 14
	binaryList   = 15
)

// binarySizes has the sizes of the types with a fixed size: bool, i8, double, i16, i32, i64,
// uuid.
var binarySizes = [17]uint8{2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8, 16: 16}

const (
	binaryVersion     = 0x8001_0000
	binaryVersionMask = 0xffff_0000 // the byte between version and type is unused
)

// binaryCodec is the binary protocol, with and without a version.
type binaryCodec struct{}

func (w binaryCodec) read(r *cursor, c *call) error {
	first, err := r.uint32()
	if err != nil {
		return err
	}
	if c.style = styleNormal; first&(1<<31) == 0 {
		c.style = styleUnversioned // the name's length
		if c.name, err = r.text(uint64(first)); err != nil {
			return err
		}
		if c.kind, err = r.byte(); err != nil {
			return err
		}
	} else {
		if first&binaryVersionMask != binaryVersion {
			return errVersion
		}
		c.kind = byte(first)
		if c.name, err = w.text(r); err != nil {
			return err
		}
	}
	if len(c.name) == 0 {
		return errNameEmpty
	}
	seq, err := r.uint32()
	if err != nil {
		return err
	}
	c.seq, c.headed = int32(seq), true
	return w.arguments(r, c)
}

func (w binaryCodec) arguments(r *cursor, c *call) error {
	for {
		kind, err := r.byte()
		if err != nil || kind == binaryStop {
			return err
		}
		field, err := r.uint16()
		if err != nil {
			return err
		}
		if field == fieldAgent && kind == binaryString {
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

func (binaryCodec) text(r *cursor) ([]byte, error) {
	n, err := r.uint32()
	if err != nil {
		return nil, err
	}
	return r.text(uint64(n))
}

// skip skips a value whose containers nest at most depth deep.
func (w binaryCodec) skip(r *cursor, kind byte, depth int) error {
	if int(kind) < len(binarySizes) && binarySizes[kind] != 0 {
		_, err := r.take(int(binarySizes[kind]))
		return err
	}
	if kind == binaryString {
		_, err := w.text(r)
		return err
	}
	if depth == 0 {
		return errDepth
	}
	switch kind {
	case binaryStruct:
		return w.skipStruct(r, depth-1)
	case binaryMap:
		return w.skipElements(r, 2, depth-1)
	case binarySet, binaryList:
		return w.skipElements(r, 1, depth-1)
	}
	return errType
}

func (w binaryCodec) skipStruct(r *cursor, depth int) error {
	for {
		kind, err := r.byte()
		if err != nil || kind == binaryStop {
			return err
		}
		if _, err := r.uint16(); err != nil {
			return err
		}
		if err := w.skip(r, kind, depth); err != nil {
			return err
		}
	}
}

// skipElements skips a container whose elements consist of parts values each.
func (w binaryCodec) skipElements(r *cursor, parts, depth int) error {
	kinds, err := r.take(parts)
	if err != nil {
		return err
	}
	size, err := r.uint32()
	if err != nil {
		return err
	}
	n, err := r.count(uint64(size))
	if err != nil {
		return err
	}
	for range n {
		for _, kind := range kinds {
			if err := w.skip(r, kind, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w binaryCodec) appendResult(b []byte, c *call, value int64) []byte {
	b = w.appendHead(b, c, kindReply)
	b = append(b, binaryI64, 0, fieldSuccess)
	b = binary.BigEndian.AppendUint64(b, uint64(value))
	return append(b, binaryStop)
}

func (w binaryCodec) appendFault(b []byte, c *call, e fault) []byte {
	b = w.appendHead(b, c, kindException)
	b = append(b, binaryString, 0, fieldMessage)
	b = w.appendText(b, e.message)
	b = append(b, binaryI32, 0, fieldKind)
	b = binary.BigEndian.AppendUint32(b, uint32(e.kind))
	return append(b, binaryStop)
}

func (w binaryCodec) appendHead(b []byte, c *call, kind byte) []byte {
	if c.style == styleUnversioned {
		b = binary.BigEndian.AppendUint32(b, uint32(len(c.name)))
		b = append(b, c.name...)
		b = append(b, kind)
	} else {
		b = binary.BigEndian.AppendUint32(b, binaryVersion|uint32(kind))
		b = binary.BigEndian.AppendUint32(b, uint32(len(c.name)))
		b = append(b, c.name...)
	}
	return binary.BigEndian.AppendUint32(b, uint32(c.seq))
}

func (binaryCodec) appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
