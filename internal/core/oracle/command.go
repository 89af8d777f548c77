package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/isotone/isotone/internal/core/timeline"
)

// Kind is the kind of a [Command]. The values are part of the log format.
type Kind uint8

const (
	// KindReserve raises the ceiling to Target and records Durable.
	KindReserve Kind = 1
	// KindRegister updates the record of Member.ID.
	KindRegister Kind = 2
	// KindLease grants or renews worker leases.
	KindLease Kind = 3
	// KindRelease ends worker leases early.
	KindRelease Kind = 4
	// KindLevel raises the feature level of the cluster to Level.
	KindLevel Kind = 5
	// KindUpdate sets the addresses in the record of Member.ID that Member has.
	KindUpdate Kind = 6
	// KindFloor raises the ceiling above Target: all timestamps issued after it have a larger
	// time.
	KindFloor Kind = 7
	// KindRevoke revokes a worker lease.
	KindRevoke Kind = 8
	// KindInterval says how long limits of the cluster clock may be that are told from here on, or that
	// none runs.
	KindInterval Kind = 9
	// KindTimeline changes the table of timelines. It needs timeline.Level.
	KindTimeline Kind = 10
	// KindHold changes who holds which lock. It needs HoldLevel.
	KindHold Kind = 11
)

// IntervalMax bounds the length of the limits of the cluster clock, in nanoseconds.
const IntervalMax = 10_000_000_000

// CeilingMax is the largest ceiling: the last nanosecond of a signed 64-bit unix time (year
// 2262), so that clients may read time as int64.
const CeilingMax = math.MaxInt64

// Limits of encoded commands and snapshots. Far beyond real clusters, they bound what a
// damaged message can make a decoder allocate.
const (
	// MembersMax is the largest number of members.
	MembersMax = 256
	// AddrMax is the longest address in bytes.
	AddrMax = 256
	// RemovedMax is the largest number of former members that are remembered, one for each
	// node.
	RemovedMax = 4096
)

// Command is one replicated change. Only the fields of its Kind count and are encoded.
type Command struct {
	Kind     Kind
	Target   uint64           // KindReserve: proposed ceiling, KindFloor: floor; unix nanoseconds
	Durable  []Durable        // KindReserve: at most MembersMax
	Digest   Digest           // KindReserve: the proposer's; zero for none
	Shared   uint64           // KindReserve: proposed ceiling of timelines, unix nanoseconds; 0: none. Needs timeline.Level
	Member   Member           // KindRegister: Durable is ignored, PeerAddr may be empty; KindUpdate: ID, PeerAddr, ClientAddr
	Level    uint64           // KindLevel
	Lease    LeaseRequest     // KindLease
	Release  Release          // KindRelease
	Revoke   Revocation       // KindRevoke
	Interval uint64           // KindInterval: nanoseconds, at most IntervalMax; 0: none runs
	Timeline timeline.Command // KindTimeline
	Holds    []HoldChange     // KindHold: at most HoldChangesMax
}

// Fences reports whether the owner of a timeline has to know of a command before it may answer. What cannot be decoded is one.
func Fences(data []byte) bool {
	if len(data) == 0 || Kind(data[0]) != KindTimeline {
		return false
	}
	c, err := DecodeCommand(data)
	return err != nil || c.Timeline.Fences()
}

// Durable says that member ID has the committed log up to Index on disk.
type Durable struct{ ID, Index uint64 }

// errEncoding is wrapped by every decoding error of this package.
var errEncoding = errors.New("oracle: malformed encoding")

// Append appends the encoding of c to b: a kind byte, then the fields, numbers as 8 big-endian
// bytes, lists and strings with a 2-byte length. It panics if an address is longer than
// AddrMax.
func (c Command) Append(b []byte) []byte {
	b = append(b, byte(c.Kind))
	switch c.Kind {
	case KindReserve:
		b = appendU64(b, c.Target)
		b = binary.BigEndian.AppendUint16(b, uint16(len(c.Durable)))
		for _, d := range c.Durable {
			b = appendU64(appendU64(b, d.ID), d.Index)
		}
		if c.Digest != (Digest{}) {
			b = appendSection(b, sectionDigest, appendU64(appendU64(nil, c.Digest.Index), c.Digest.Sum))
		}
		if c.Shared > 0 {
			b = appendSection(b, sectionShared, appendU64(nil, c.Shared))
		}
	case KindRegister:
		b = c.Member.appendSections(c.Member.append(b))
	case KindUpdate:
		b = appendString(appendString(appendU64(b, c.Member.ID), c.Member.PeerAddr), c.Member.ClientAddr)
	case KindFloor:
		b = appendU64(b, c.Target)
	case KindLevel:
		b = appendU64(b, c.Level)
	case KindLease:
		b = c.Lease.append(b)
	case KindRelease:
		b = c.Release.append(b)
	case KindRevoke:
		b = appendU64(binary.BigEndian.AppendUint16(b, c.Revoke.Worker), c.Revoke.Start)
	case KindInterval:
		b = appendU64(b, c.Interval)
	case KindTimeline:
		b = c.Timeline.Append(b)
	case KindHold:
		b = appendHoldChanges(b, c.Holds)
	}
	return b
}

// DecodeCommand decodes what [Command.Append] of this version or an earlier one encoded, and
// skips optional parts that a later one added. It never panics, and the command does not
// refer to b.
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
		d.sections(func(section byte, value *decoder) bool {
			switch section {
			case sectionDigest:
				c.Digest = Digest{Index: value.u64(), Sum: value.u64()}
			case sectionShared:
				c.Shared = value.u64()
			default:
				return false
			}
			return true
		})
	case KindRegister:
		c.Member = d.member()
		d.sections(memberSection(&c.Member))
	case KindUpdate:
		c.Member = Member{ID: d.u64(), PeerAddr: d.string(), ClientAddr: d.string()}
		d.sections(noSections)
	case KindFloor:
		c.Target = d.u64()
		d.sections(noSections)
	case KindLevel:
		c.Level = d.u64()
		d.sections(noSections)
	case KindLease:
		c.Lease = d.leaseRequest()
	case KindRelease:
		c.Release = d.release()
	case KindRevoke:
		c.Revoke = Revocation{Worker: d.u16(), Start: d.u64()}
		d.sections(noSections)
	case KindInterval:
		c.Interval = d.interval()
		d.sections(noSections)
	case KindTimeline:
		var err error
		if c.Timeline, err = timeline.DecodeCommand(d.rest); err != nil {
			return c, err
		}
		d.rest = nil
	case KindHold:
		c.Holds = d.holdChanges()
		d.sections(noSections)
	default:
		if c.Kind >= kindOptional {
			return c, nil
		}
		d.fail(fmt.Sprintf("command kind %d is unknown; was it written by a newer version?", c.Kind))
	}
	return c, d.finish()
}

// stateFormat is the first byte of an encoded State.
const stateFormat = 1

// Append appends the encoding of s, as in a snapshot, to b. A member record has a length before and
// sections after its fixed part. Sections may also follow the whole.
func (s *State) Append(b []byte) []byte {
	b = append(b, stateFormat)
	b = appendU64(appendU64(appendU64(b, s.Level), s.ClusterID), s.Ceiling)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.Members)))
	for _, m := range s.Members {
		record := m.appendSections(m.append(nil))
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(record))), record...)
	}
	if s.Space != (Space{}) {
		b = s.appendWorkers(append(b, 1))
	} else {
		b = append(b, 0)
	}
	if len(s.Removed) > 0 {
		var removed []byte
		for _, id := range s.Removed {
			removed = appendU64(removed, id)
		}
		b = appendSection(b, sectionRemoved, removed)
	}
	if s.Fence != (Fence{}) {
		b = appendSection(b, sectionFence, appendU64(appendU64(nil, s.Fence.Members), s.Fence.Clients))
	}
	if s.Interval != 0 {
		b = appendSection(b, sectionInterval, appendU64(nil, s.Interval))
	}
	if s.Timelines.Digest() != 0 {
		for part := range slices.Chunk(s.Timelines.Append(nil), sectionMax) {
			b = appendSection(b, sectionTimelines, part)
		}
	}
	return s.Holds.appendSections(b)
}

// DecodeState decodes what [State.Append] of this version or an earlier one encoded. It never
// panics, and the state does not refer to b.
func DecodeState(b []byte) (State, error) {
	d := decoder{rest: b}
	if format := d.byte(); format != stateFormat {
		d.fail(fmt.Sprintf("snapshot format %d, and this version reads format %d; was it written by another version?", format, stateFormat))
	}
	s := State{Level: d.u64()}
	s.ClusterID, s.Ceiling = d.u64(), d.u64()
	if s.Ceiling > CeilingMax {
		d.fail("a ceiling beyond the year 2262")
	}
	last := uint64(0)
	for range d.count(MembersMax) {
		m := d.stateMember()
		if m.ID <= last {
			d.fail("members out of order")
			break
		}
		last = m.ID
		s.Members = append(s.Members, m)
	}
	switch d.byte() {
	case 0:
	case 1:
		d.workers(&s)
	default:
		d.fail("neither with worker leases nor without")
	}
	var timelines []byte
	d.sections(func(section byte, value *decoder) bool {
		if section == sectionTimelines {
			timelines = append(timelines, value.rest...)
			return true
		}
		return s.decodeSection(section, value)
	})
	if len(timelines) > 0 && d.err == nil {
		s.Timelines, d.err = timeline.Decode(timelines)
	}
	return s, d.finish()
}

// decodeSection decodes a section of a snapshot.
func (s *State) decodeSection(section byte, value *decoder) bool {
	switch section {
	case sectionFence:
		s.Fence = Fence{Members: value.u64(), Clients: value.u64()}
		return true
	case sectionInterval:
		s.Interval = value.interval()
		return true
	case sectionHolds:
		s.Holds.decodeSection(value)
		return true
	}
	if section != sectionRemoved {
		return false
	}
	last := uint64(0)
	for len(value.rest) > 0 {
		id := value.u64()
		if len(s.Removed) == RemovedMax || NodeOf(id) <= last {
			value.fail("too many former members, or out of order")
			return true
		}
		last = NodeOf(id)
		s.Removed = append(s.Removed, id)
	}
	return true
}

// stateMember decodes a member record of a snapshot.
func (d *decoder) stateMember() Member {
	record := decoder{rest: d.take(int(d.u16())), err: d.err}
	m := record.member()
	record.sections(memberSection(&m))
	if record.err != nil && d.err == nil {
		d.err, d.rest = record.err, nil
	}
	return m
}

func noSections(byte, *decoder) bool { return false }

// appendSections appends the sections of a member record.
func (m Member) appendSections(b []byte) []byte {
	if m.Level != 0 {
		b = appendSection(b, sectionLevel, appendU64(nil, m.Level))
	}
	if m.Promote {
		b = appendSection(b, sectionPromotion, appendU64([]byte{1}, m.Replaces))
	}
	if m.Advertised != "" {
		b = appendSection(b, sectionAdvertised, appendString(nil, m.Advertised))
	}
	if m.Configured != "" {
		b = appendSection(b, sectionConfigured, appendString(nil, m.Configured))
	}
	return b
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

// AppendMember appends the encoding of m, as in a membership change, to b. It panics if an
// address is longer than AddrMax.
func AppendMember(b []byte, m Member) []byte { return m.appendSections(m.append(b)) }

// DecodeMember decodes what [AppendMember] encoded. It never panics.
func DecodeMember(b []byte) (Member, error) {
	d := decoder{rest: b}
	m := d.member()
	d.sections(memberSection(&m))
	return m, d.finish()
}
