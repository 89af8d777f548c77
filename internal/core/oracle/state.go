package oracle

import (
	"slices"
)

// State is what the cluster agrees on. It changes only by Apply* calls made for
// committed log entries, in log order, and is therefore the same on every member
// at the same log index.
//
// The zero State is that of a cluster without name and members.
type State struct {
	// ClusterID names the cluster. Random, chosen by the first leader, never
	// changed; 0 until then.
	ClusterID uint64
	// Level is the feature level, 0 standing for LevelFirst; see level.go.
	Level uint64
	// Ceiling bounds all issued time from above (I1), unix nanoseconds.
	Ceiling uint64
	// Members is sorted by ID. There is one record for each voter and learner.
	Members []Member
	// Space is how ids are made; zero until the first worker was leased, and from then on
	// the same for ever (I9).
	Space Space
	// Workers is sorted by Worker. There is one record for each that was ever leased.
	Workers []WorkerLease
}

// Member is the record of one member of the cluster.
type Member struct {
	ID uint64
	// PeerAddr is where other members connect to, host:port.
	PeerAddr string
	// ClientAddr is where clients connect to, host:port; empty until the member
	// was first heard of.
	ClientAddr string
	// Incarnation identifies the member's data directory; 0 until the member was
	// first heard of, and from then on the same for ever (I6).
	Incarnation uint64
	// Boot is the number of the member's latest known start, and Session the
	// random number that the process drew then. Two processes that run from
	// copies of one directory differ in one of them.
	Boot    uint64
	Session uint64
	// Durable is a committed log index that the member is known to hold on disk.
	// A member that comes back with less has lost what it once promised (I6).
	Durable uint64
	// Level is the newest feature level that the member's process knows; 0 until it was
	// recorded, which begins at LevelRecords.
	Level uint64
}

// Member returns the record of id.
func (s *State) Member(id uint64) (Member, bool) {
	i, ok := s.find(id)
	if !ok {
		return Member{}, false
	}
	return s.Members[i], true
}

func (s *State) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Members, id, func(m Member, id uint64) int {
		switch {
		case m.ID < id:
			return -1
		case m.ID > id:
			return 1
		}
		return 0
	})
}

// Apply carries out one committed command. Only of a KindLease there is an outcome.
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
		s.raise(c.Level)
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

// reserve raises the ceiling to the target, and by at least one nanosecond: a new
// leader may have proposed before it had applied all that earlier terms left in
// the log, and needs some time of its own to issue from.
func (s *State) reserve(c Command) {
	if s.Ceiling < CeilingMax {
		s.Ceiling = mutateCeiling(max(s.Ceiling+1, min(c.Target, CeilingMax)), c.Target)
	}
	for _, d := range c.Durable {
		if i, ok := s.find(d.ID); ok {
			s.Members[i].Durable = max(s.Members[i].Durable, d.Index)
		}
	}
}

// register updates who stands behind a member ID. The first incarnation wins, and
// a start that is older than the known one changes nothing: both are decided by
// log order, so that all members refuse the same directory.
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

// AddMember adds a record, or updates the peer address of an existing one. It is
// applied with the membership change that makes m.ID a member.
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

// RemoveMember drops the record of id, if there is one. The ID must not be used
// again: its next owner would be a stranger to what the first one promised.
func (s *State) RemoveMember(id uint64) {
	if i, ok := s.find(id); ok {
		s.Members = slices.Delete(s.Members, i, i+1)
	}
}
