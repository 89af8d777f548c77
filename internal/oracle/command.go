package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Kind says what a [Command] does. The values are part of the log format.
type Kind uint8

const (
	// KindReserve raises the ceiling to Target and records Durable.
	KindReserve Kind = 1
	// KindName gives the cluster its ClusterID, unless it has one.
	KindName Kind = 2
	// KindRegister records who stands behind Member.ID.
	KindRegister Kind = 3
)

// CeilingMax is the largest ceiling: the last nanosecond that fits a signed
// 64-bit unix time (year 2262), so that clients may read time as int64.
const CeilingMax = math.MaxInt64

// Limits of encoded commands and snapshots. Far beyond real clusters, they bound
// what a damaged or hostile message can make a decoder allocate.
const (
	membersMax = 256
	addrMax    = 256
)

// Command is one replicated change. Only the fields of its Kind are encoded.
type Command struct {
	Kind      Kind
	Target    uint64    // KindReserve: wanted ceiling, unix nanoseconds
	Durable   []Durable // KindReserve
	ClusterID uint64    // KindName: not 0
	Member    Member    // KindRegister: all but PeerAddr and Durable
}

// Durable says that a member holds the committed log up to Index on disk.
type Durable struct{ ID, Index uint64 }

// errEncoding is wrapped by every decoding error of this package.
var errEncoding = errors.New("oracle: malformed encoding")

// Append appends the encoding of c to b: a kind byte, then the fields in order,
// numbers as 8 big-endian bytes, lists and strings with a 2-byte length.
func (c Command) Append(b []byte) []byte {
	b = append(b, byte(c.Kind))
	switch c.Kind {
	case KindReserve:
		b = appendU64(b, c.Target)
		b = binary.BigEndian.AppendUint16(b, uint16(len(c.Durable)))
		for _, d := range c.Durable {
			b = appendU64(appendU64(b, d.ID), d.Index)
		}
	case KindName:
		b = appendU64(b, c.ClusterID)
	case KindRegister:
		b = c.Member.append(b)
	}
	return b
}

// DecodeCommand reads what [Command.Append] wrote. It never panics and accepts
// nothing that Append would not write.
func DecodeCommand(b []byte) (Command, error) {
	d := decoder{rest: b}
	c := Command{Kind: Kind(d.byte())}
	switch c.Kind {
	case KindReserve:
		c.Target = d.u64()
		if n := d.count(membersMax); n > 0 {
			c.Durable = make([]Durable, n)
			for i := range c.Durable {
				c.Durable[i] = Durable{ID: d.u64(), Index: d.u64()}
			}
		}
	case KindName:
		c.ClusterID = d.u64()
		if c.ClusterID == 0 {
			d.fail("a cluster ID of 0")
		}
	case KindRegister:
		c.Member = d.member()
	default:
		d.fail(fmt.Sprintf("command kind %d is unknown; was it written by a newer version?", c.Kind))
	}
	return c, d.finish()
}

// stateFormat is the first byte of an encoded State.
const stateFormat = 1

// Append appends the encoding of s, as a snapshot carries it, to b.
func (s *State) Append(b []byte) []byte {
	b = append(b, stateFormat)
	b = appendU64(appendU64(b, s.ClusterID), s.Ceiling)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.Members)))
	for _, m := range s.Members {
		b = m.append(b)
	}
	return b
}

// DecodeState reads what [State.Append] wrote. It never panics.
func DecodeState(b []byte) (State, error) {
	d := decoder{rest: b}
	if f := d.byte(); f != stateFormat {
		d.fail(fmt.Sprintf("snapshot format %d, this version reads %d", f, stateFormat))
	}
	s := State{ClusterID: d.u64(), Ceiling: d.u64()}
	if s.Ceiling > CeilingMax {
		d.fail("a ceiling beyond the year 2262")
	}
	last := uint64(0)
	for range d.count(membersMax) {
		m := d.member()
		if m.ID <= last {
			d.fail("members out of order")
			break
		}
		last = m.ID
		s.Members = append(s.Members, m)
	}
	return s, d.finish()
}

func (m Member) append(b []byte) []byte {
	b = appendU64(b, m.ID)
	b = appendString(b, m.PeerAddr)
	b = appendString(b, m.ClientAddr)
	b = appendU64(b, m.Incarnation)
	b = appendU64(b, m.Boot)
	b = appendU64(b, m.Session)
	return appendU64(b, m.Durable)
}

// AppendMember appends the encoding of m, as a membership change carries it.
func AppendMember(b []byte, m Member) []byte { return m.append(b) }

// DecodeMember reads what [AppendMember] wrote. It never panics.
func DecodeMember(b []byte) (Member, error) {
	d := decoder{rest: b}
	m := d.member()
	return m, d.finish()
}

func appendU64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

func appendString(b []byte, s string) []byte {
	if len(s) > addrMax {
		panic("oracle: an address longer than its limit passed validation")
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// decoder reads fields off the front of rest. After the first failure every read
// gives zero and finish returns that failure.
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
	return string(d.take(d.count(addrMax)))
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
