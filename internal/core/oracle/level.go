package oracle

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/timeline"
)

// Feature levels (I12; docs/decisions/0012-feature-levels.md). Each release that writes
// something new to the log, to snapshots or to peers has a level, one above the last. The
// cluster's level is part of its state, and nobody writes what only a higher level can read.
// An operator raises it when every member runs a version that knows the new level. It is
// never lowered: until it is raised the older version can be put back, then it is refused.
//
// Optional parts need no level: a version that does not know them skips them.

// LevelNewest is the newest level that this version knows. A process may be told to know the one after
// it, as a version to come would: that is how the simulator and the tests change versions.
const LevelNewest = 3

// Sections follow the fixed part of what is written: a type byte, two bytes of length, and the value. A
// version skips unknown types from sectionOptional on and refuses the others.
const (
	sectionLevel      = 1 // of a member record: 8 bytes
	sectionPromotion  = 2 // of a member record: 1 if it is to become a voter, and the ID that it replaces
	sectionAdvertised = 3 // of a member record: the address
	// sectionConfigured is optional, as it says nothing about the state that others must agree on: a
	// leader of a version that does not know it changes no address.
	sectionConfigured = sectionOptional // of a member record: the address
	sectionDigest     = 1               // of a reservation: index and digest, 8 bytes each
	sectionShared     = 2               // of a reservation: 8 bytes
	sectionRemoved    = 1               // of a snapshot: IDs, 8 bytes each
	sectionFence      = 2               // of a snapshot: for members and for clients, 8 bytes each
	sectionInterval   = 3               // of a snapshot: 8 bytes
	sectionTimelines  = 4               // of a snapshot: a part of the table of timelines; the parts follow each other
	sectionHolds      = 5               // of a snapshot: some of the holds; the sections follow each other
	sectionOptional   = 128
)

// sectionMax is the longest section.
const sectionMax = math.MaxUint16

// kindOptional is the first kind of commands that a version skips if it does not know them.
// They must not change the state.
const kindOptional Kind = 128

// Digest is [State.Digest] of a replica after it applied the entry at log index Index.
type Digest struct{ Index, Sum uint64 }

// LevelOf returns the level that is needed to read c.
func LevelOf(c Command) uint64 {
	if c.Kind == KindTimeline || c.Shared > 0 {
		return timeline.Level
	}
	if c.Kind == KindHold {
		return HoldLevel
	}
	return max(c.Level, 1)
}

// CurrentLevel returns the feature level of the cluster, at least 1.
func (s *State) CurrentLevel() uint64 { return max(s.Level, 1) }

// Digest returns a 64-bit FNV-1a hash (Fowler, Noll, Vo) of the state without the peer
// addresses: versions that do not know sectionConfigured drop it.
func (s *State) Digest() uint64 {
	sum := uint64(fnvOffset)
	add := func(values ...uint64) {
		for _, v := range values {
			for range 8 {
				sum = (sum ^ v&0xff) * fnvPrime
				v >>= 8
			}
		}
	}
	text := func(t string) {
		add(uint64(len(t)))
		for i := range len(t) {
			sum = (sum ^ uint64(t[i])) * fnvPrime
		}
	}
	add(s.Level, s.ClusterID, s.Ceiling, uint64(len(s.Members)))
	for _, m := range s.Members {
		add(m.ID, m.Incarnation, m.Boot, m.Session, m.Durable, m.Level)
		text(m.ClientAddr)
	}
	b := s.Space
	add(uint64(b.TimeBits), uint64(b.DatacenterBits), uint64(b.WorkerBits), uint64(b.SequenceBits), uint64(b.Epoch), uint64(len(s.Workers)))
	for _, l := range s.Workers {
		add(uint64(l.Worker), uint64(l.Slot), uint64(l.flags()), l.Node, l.Session, l.Start, l.End)
	}
	for _, m := range s.Members {
		promote := uint64(0)
		if m.Promote {
			promote = 1
		}
		add(promote, m.Replaces)
		text(m.Advertised)
	}
	add(uint64(len(s.Removed)))
	add(s.Removed...)
	add(s.Fence.Members, s.Fence.Clients, s.Interval)
	if timelines := s.Timelines.Digest(); timelines != 0 { // a version of level 1 adds nothing
		add(timelines)
	}
	if s.Holds.sum != 0 && !mutant.On(mutant.DigestMissesHolds) { // a version of level 2 adds nothing
		add(uint64(sectionHolds), s.Holds.sum)
	}
	return sum
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// appendSection appends one section to b.
func appendSection(b []byte, section byte, value []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(b, section), uint16(len(value))), value...)
}

// sections decodes sections up to the end. known decodes one and reports whether it knows its
// type.
func (d *decoder) sections(known func(section byte, value *decoder) bool) {
	for len(d.rest) > 0 && d.err == nil {
		section := d.byte()
		value := decoder{rest: d.take(int(d.u16()))}
		if d.err != nil {
			return
		}
		switch {
		case known(section, &value):
			if value.err != nil {
				d.fail(fmt.Sprintf("section %d is too short", section))
			}
		case section < sectionOptional:
			d.fail(fmt.Sprintf("section %d is unknown; was it written by a newer version?", section))
		}
	}
}

// memberSection decodes sections of a member record.
func memberSection(m *Member) func(byte, *decoder) bool {
	return func(section byte, value *decoder) bool {
		switch section {
		case sectionLevel:
			m.Level = value.u64()
		case sectionPromotion:
			m.Promote, m.Replaces = value.byte() == 1, value.u64()
		case sectionAdvertised:
			m.Advertised = value.string()
		case sectionConfigured:
			m.Configured = value.string()
		default:
			return false
		}
		return true
	}
}
