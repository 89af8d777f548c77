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
	// KindLease grants worker leases, or renews them.
	KindLease Kind = 4
	// KindRelease takes worker leases back.
	KindRelease Kind = 5
)

// CeilingMax is the largest ceiling: the last nanosecond that fits a signed
// 64-bit unix time (year 2262), so that clients may read time as int64.
const CeilingMax = math.MaxInt64

// Limits of encoded commands and snapshots. Far beyond real clusters, they bound
// what a damaged or hostile message can make a decoder allocate.
const (
	// MembersMax is the largest number of members.
	MembersMax = 256
	// AddrMax is the longest address in bytes.
	AddrMax = 256
)

// Command is one replicated change. Only the fields of its Kind are encoded.
type Command struct {
	Kind      Kind
	Target    uint64       // KindReserve: wanted ceiling, unix nanoseconds
	Durable   []Durable    // KindReserve
	ClusterID uint64       // KindName: not 0
	Member    Member       // KindRegister: all but PeerAddr and Durable
	Lease     LeaseRequest // KindLease
	Release   Release      // KindRelease
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
	case KindLease:
		b = c.Lease.append(b)
	case KindRelease:
		b = c.Release.append(b)
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
		if n := d.count(MembersMax); n > 0 {
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
	case KindLease:
		c.Lease = d.leaseRequest()
	case KindRelease:
		c.Release = d.release()
	default:
		d.fail(fmt.Sprintf("command kind %d is unknown; was it written by a newer version?", c.Kind))
	}
	return c, d.finish()
}

// The first byte of an encoded State. The second format has the worker leases as well.
// It is written only when there are any: a cluster that makes no ids can go back to a
// version that knows none.
const (
	stateFormat        = 1
	stateFormatWorkers = 2
)

// Append appends the encoding of s, as a snapshot carries it, to b.
func (s *State) Append(b []byte) []byte {
	format := byte(stateFormat)
	if s.Space != (Space{}) {
		format = stateFormatWorkers
	}
	b = append(b, format)
	b = appendU64(appendU64(b, s.ClusterID), s.Ceiling)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.Members)))
	for _, m := range s.Members {
		b = m.append(b)
	}
	if format == stateFormatWorkers {
		b = s.appendWorkers(b)
	}
	return b
}

// DecodeState reads what [State.Append] wrote. It never panics.
func DecodeState(b []byte) (State, error) {
	d := decoder{rest: b}
	format := d.byte()
	if format != stateFormat && format != stateFormatWorkers {
		d.fail(fmt.Sprintf("snapshot format %d, this version reads %d and %d", format, stateFormat, stateFormatWorkers))
	}
	s := State{ClusterID: d.u64(), Ceiling: d.u64()}
	if s.Ceiling > CeilingMax {
		d.fail("a ceiling beyond the year 2262")
	}
	last := uint64(0)
	for range d.count(MembersMax) {
		m := d.member()
		if m.ID <= last {
			d.fail("members out of order")
			break
		}
		last = m.ID
		s.Members = append(s.Members, m)
	}
	if format == stateFormatWorkers {
		d.workers(&s)
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
