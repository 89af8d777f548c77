package oracle

import (
	"cmp"
	"slices"

	"github.com/isotone/isotone/internal/core/mutant"
)

// State is what the cluster agrees on. It changes only by [State.Apply], [State.AddMember] and
// [State.RemoveMember], called for committed log entries in log order, and so is the same on
// every member at the same log index. The zero State is that of a cluster without ID and
// members.
type State struct {
	// ClusterID identifies the cluster: a hash of its first snapshot, or in clusters formed at
	// LevelFirst a random number. 0 until it is known, then constant.
	ClusterID uint64
	// Level is the feature level; 0 stands for LevelFirst.
	Level uint64
	// Ceiling is above the time of all issued timestamps (I1), in unix nanoseconds.
	Ceiling uint64
	// Members has a record for each voter and learner, sorted by ID; at most MembersMax.
	Members []Member
	// Space is the layout of ids: zero until the first worker was leased, then constant (I9).
	Space Space
	// Workers has a record for each worker that was ever leased, sorted by Worker.
	Workers []WorkerLease
}

// Member is the record of one member of the cluster.
type Member struct {
	ID uint64
	// PeerAddr is the address for other members, host:port.
	PeerAddr string
	// ClientAddr is the address for clients, host:port; empty until the member registered.
	ClientAddr string
	// Incarnation identifies the member's data directory. 0 until it is known, then constant
	// (I6).
	Incarnation uint64
	// Boot counts the starts of the directory up to the latest known one, for which its
	// process drew the random Session. Two processes that run from copies of one directory
	// differ in one of the two.
	Boot    uint64
	Session uint64
	// Durable is a committed log index that the member is known to have on disk. A member that
	// comes back with less has lost what it promised (I6).
	Durable uint64
	// Level is the newest feature level that the member's process knows, recorded from
	// LevelRecords on; 0 until then.
	Level uint64
}

// Member returns the record of id, if there is one.
func (s *State) Member(id uint64) (Member, bool) {
	i, ok := s.find(id)
	if !ok {
		return Member{}, false
	}
	return s.Members[i], true
}

func (s *State) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Members, id, func(m Member, id uint64) int { return cmp.Compare(m.ID, id) })
}

// Apply applies one committed command. The outcome is zero unless its kind is KindLease. Apply
// panics if the kind is unknown and not optional, which DecodeCommand never returns.
func (s *State) Apply(c Command) Outcome {
	switch c.Kind {
	case KindReserve:
		s.reserve(c)
	case KindName:
		if s.ClusterID == 0 {
			s.ClusterID = c.ClusterID
		}
	case KindRegister:
		s.register(c.Member)
	case KindLevel:
		s.Level = max(s.Level, c.Level)
	case KindLease:
		return s.lease(c.Lease)
	case KindRelease:
		s.release(c.Release)
	default:
		if c.Kind < kindOptional {
			panic("oracle: a command of unknown kind passed its decoder")
		}
	}
	return Outcome{}
}

// reserve raises the ceiling to the target, and by at least one nanosecond, so that a new
// leader has time to issue from even if it proposed before it had applied a higher ceiling of
// an earlier term.
func (s *State) reserve(c Command) {
	if s.Ceiling < CeilingMax {
		s.Ceiling = mutant.Pick(mutant.CeilingSinks, c.Target, max(s.Ceiling+1, min(c.Target, CeilingMax)))
	}
	for _, d := range c.Durable {
		if i, ok := s.find(d.ID); ok {
			s.Members[i].Durable = max(s.Members[i].Durable, d.Index)
		}
	}
}

// register updates a member record. Another incarnation than the first and a start older than
// the known one change nothing: the log decides, so all members refuse the same directory.
func (s *State) register(m Member) {
	i, ok := s.find(m.ID)
	if !ok {
		return
	}
	have := &s.Members[i]
	if have.Incarnation != 0 && (have.Incarnation != m.Incarnation || have.Boot > m.Boot) {
		return
	}
	have.Incarnation, have.Boot, have.Session = m.Incarnation, m.Boot, m.Session
	have.ClientAddr = m.ClientAddr
	if m.Level != 0 {
		have.Level = m.Level
		if m.PeerAddr != "" {
			have.PeerAddr = m.PeerAddr
		}
	}
}

// AddMember adds a record, or updates the peer address of an existing one unless m has none.
// It belongs to the membership change that makes m.ID a member.
func (s *State) AddMember(m Member) {
	i, ok := s.find(m.ID)
	if ok {
		if m.PeerAddr != "" {
			s.Members[i].PeerAddr = m.PeerAddr
		}
		return
	}
	s.Members = slices.Insert(s.Members, i, m)
}

// RemoveMember removes the record of id, if there is one. The ID must not be used again: its
// next owner would not know what the first one promised.
func (s *State) RemoveMember(id uint64) {
	if i, ok := s.find(id); ok {
		s.Members = slices.Delete(s.Members, i, i+1)
	}
}
