package oracle

import (
	"encoding/binary"
	"fmt"
)

func appendU64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

func appendString(b []byte, s string) []byte {
	if len(s) > AddrMax {
		panic("oracle: an address longer than its limit passed validation")
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// decoder reads fields off the front of rest. After the first failure every read returns zero
// and finish returns the failure.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errEncoding, what)
	}
	d.rest = nil
}

func (d *decoder) take(n int) []byte {
	if len(d.rest) < n {
		d.fail("it ends early")
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// interval reads the length of the limits of the cluster clock.
func (d *decoder) interval() uint64 {
	v := d.u64()
	if v > IntervalMax {
		d.fail("limits of the cluster clock that are too long")
		return 0
	}
	return v
}

// count reads a length and refuses one above limit.
func (d *decoder) count(limit int) int {
	b := d.take(2)
	if b == nil {
		return 0
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > limit {
		d.fail("a length beyond its limit")
		return 0
	}
	return n
}

func (d *decoder) string() string {
	return string(d.take(d.count(AddrMax)))
}

func (d *decoder) member() Member {
	m := Member{
		ID: d.u64(), PeerAddr: d.string(), ClientAddr: d.string(),
		Incarnation: d.u64(), Boot: d.u64(), Session: d.u64(), Durable: d.u64(),
	}
	if m.ID == 0 {
		d.fail("a member ID of 0")
	}
	return m
}

func (d *decoder) finish() error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail(fmt.Sprintf("%d bytes too many", len(d.rest)))
	}
	return d.err
}
