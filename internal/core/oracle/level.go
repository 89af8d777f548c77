package oracle

import "fmt"

// Feature levels (I12). Each release that writes something new, to the log, to snapshots or
// to peers, has a level of its own, one above the last. A cluster is at one level, which is
// part of its state; nobody writes what only a higher one can read. It is raised, by an
// operator, when every member runs a version that knows the new level, and never lowered: up
// to then the older version can be put back, from then on it is refused.
//
// Beside that, what is optional can be added at any time: who does not know it skips it.
const (
	// LevelFirst is that of commit a4b419b, which knew no levels.
	LevelFirst = 1
	// LevelRecords adds the level to member records and the digest to reservations. A
	// cluster that is formed at it has everyone's incarnation in its first snapshot.
	LevelRecords = 2
	// LevelNewest is the newest that this version knows.
	LevelNewest = LevelRecords
)

// Sections follow the fixed part of what is written from LevelRecords on: a byte that says
// which, two bytes of length, and the value. Those from sectionOptional on are skipped by
// who does not know them.
const (
	sectionLevel    = 1 // of a member record: 8 bytes
	sectionDigest   = 1 // of a reservation: index and digest, 8 bytes each
	sectionOptional = 128
)

// kindOptional: who does not know a command of this kind or above skips it. Such a command
// changes nothing in the state.
const kindOptional Kind = 128

// Digest is what a replica's state was at one log index, summed up.
type Digest struct{ Index, Sum uint64 }

// LevelOf returns the level that is needed to read c.
func LevelOf(c Command) uint64 {
	if c.Kind == KindLevel || c.Member.Level != 0 || c.Digest != (Digest{}) {
		return LevelRecords
	}
	return LevelFirst
}

// raise carries out a KindLevel.
func (s *State) raise(level uint64) { s.Level = max(s.Level, level) }

// CurrentLevel returns the level of the cluster.
func (s *State) CurrentLevel() uint64 { return max(s.Level, LevelFirst) }

// Digest sums up the state. It leaves out the peer addresses: clusters of LevelFirst began
// with those that each member was given for the others, which need not be the same.
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
		fixed := uint64(0)
		if l.Fixed {
			fixed = 1
		}
		add(uint64(l.Worker), uint64(l.Slot), fixed, l.Node, l.Session, l.Start, l.End)
	}
	return sum
}

// FNV-1a, 64 bits (Fowler, Noll, Vo).
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// appendSection appends one section to b.
func appendSection(b []byte, section byte, value []byte) []byte {
	b = append(b, section, byte(len(value)>>8), byte(len(value)))
	return append(b, value...)
}

// sections reads sections up to the end. known takes in those that it knows, and reports
// whether it did.
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

// memberSection takes in a section of a member record.
func memberSection(m *Member) func(byte, *decoder) bool {
	return func(section byte, value *decoder) bool {
		if section == sectionLevel {
			m.Level = value.u64()
		}
		return section == sectionLevel
	}
}
