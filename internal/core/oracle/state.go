package oracle

import (
	"cmp"
	"slices"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/timeline"
)

// State is what the cluster agrees on. It changes only by [State.Apply], [State.AddMember] and
// [State.RemoveMember], called for committed log entries in log order, and so is the same on
// every member at the same log index. The zero State is that of a cluster without ID and
// members.
type State struct {
	// ClusterID identifies the cluster: a hash of its first snapshot. 0 until it is known, then constant.
	ClusterID uint64
	// Level is the feature level; 0 stands for 1.
	Level uint64
	// Ceiling is above the time of all issued timestamps (I1), in unix nanoseconds.
	Ceiling uint64
	// Members has a record for each voter and learner, sorted by ID; at most MembersMax.
	Members []Member
	// Space is the layout of ids: zero until the first worker was leased, then constant (I9).
	Space Space
	// Workers has a record for each worker that was ever leased, sorted by Worker.
	Workers []WorkerLease
	// Removed has the latest former member of each node that had one, sorted by node; at
	// most RemovedMax. When there are as many, it lacks those that were replaced since.
	Removed []uint64
	// Fence is zero unless the cluster was restored from a backup; see [Restored].
	Fence Fence
	// Interval is how long the limits of the cluster clock may be that leaders of the present term and of
	// earlier ones have told, in nanoseconds; 0: none of them runs (I14).
	Interval uint64
	// Timelines are the orders beside the default one. Zero until the first one is created.
	Timelines timeline.Table
	// Holds are the locks that sessions hold.
	Holds Holds
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
	// Level is the newest feature level that the member's process knows; 0 until it registered.
	Level uint64
	// Promote is set for a learner that is to become a voter once it has caught up. The member
	// Replaces, if not 0, is removed then.
	Promote  bool
	Replaces uint64
	// Advertised is the client address that the member's process told last. ClientAddr is that or what an operator has set since.
	Advertised string
	// Configured is the peer address in the member's own settings, as its process told last;
	// empty if it told none. PeerAddr may differ: from a membership change, or
	// because an operator has set it since.
	Configured string
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

// Apply applies the committed command at a log index. The outcome is zero unless its kind is KindLease, KindRevoke, KindTimeline or KindHold. Apply
// panics if the kind is unknown and not optional, which DecodeCommand never returns.
func (s *State) Apply(index uint64, c Command) Outcome {
	switch c.Kind {
	case KindReserve:
		s.reserve(c)
	case KindRegister:
		s.register(c.Member)
	case KindLevel:
		s.Level = max(s.Level, c.Level)
	case KindUpdate:
		s.update(c.Member)
	case KindFloor:
		s.Ceiling = max(s.Ceiling, min(c.Target, CeilingMax-2)+2)
	case KindLease:
		return s.lease(c.Lease)
	case KindRelease:
		s.release(c.Release)
	case KindRevoke:
		return s.revoke(c.Revoke)
	case KindInterval:
		s.Interval = c.Interval
	case KindTimeline:
		if s.Timelines.Ceiling == 0 && s.Fence != (Fence{}) {
			// The cluster was restored from a backup that knows nothing of timelines. The former one may have had some since.
			s.Timelines.Ceiling = s.Ceiling
		}
		return Outcome{Timelines: s.Timelines.Apply(index, c.Timeline, s.isProcess)}
	case KindHold:
		return Outcome{Freed: s.Holds.apply(c.Holds)}
	default:
		if c.Kind < kindOptional {
			panic("oracle: a command of unknown kind passed its decoder")
		}
	}
	return Outcome{}
}

// isProcess reports whether a session is that of a member's process on record.
func (s *State) isProcess(id, session uint64) bool {
	m, ok := s.Member(id)
	return ok && m.Session == session
}

// reserve raises the ceiling to the target, and by at least one nanosecond, so that a new
// leader has time to issue from even if it proposed before it had applied a higher ceiling of
// an earlier term.
func (s *State) reserve(c Command) {
	if c.Shared > 0 {
		s.Timelines.Reserve(c.Shared)
	}
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
	if have.Advertised != m.ClientAddr {
		have.Advertised, have.ClientAddr = m.ClientAddr, m.ClientAddr
	}
	if m.Level != 0 {
		have.Level = m.Level
		if m.PeerAddr != "" {
			have.PeerAddr = m.PeerAddr
		}
	}
	if m.Configured != "" {
		have.Configured = m.Configured
	}
}

// update sets the addresses of a member that an operator has changed.
func (s *State) update(m Member) {
	i, ok := s.find(m.ID)
	if !ok {
		return
	}
	if m.PeerAddr != "" {
		s.Members[i].PeerAddr = m.PeerAddr
	}
	if m.ClientAddr != "" {
		s.Members[i].ClientAddr = m.ClientAddr
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

// EndPromotion notes that a member is a voter. What it replaces may still have to be removed.
func (s *State) EndPromotion(id uint64) {
	i, ok := s.find(id)
	if !ok {
		return
	}
	m := &s.Members[i]
	if _, remains := s.find(m.Replaces); !remains {
		m.Promote, m.Replaces = false, 0
	}
}

// RemoveMember removes the record of id, if there is one, and remembers it. The ID must not be used again: its next owner would not know what the first one
// promised.
func (s *State) RemoveMember(id uint64) {
	i, ok := s.find(id)
	if !ok {
		return
	}
	s.Members = slices.Delete(s.Members, i, i+1)
	if mutant.On(mutant.ForgetRemoved) {
		return
	}
	at, ok := s.findRemoved(NodeOf(id))
	switch {
	case ok:
		s.Removed[at] = max(s.Removed[at], id)
	case len(s.Removed) < RemovedMax:
		s.Removed = slices.Insert(s.Removed, at, id)
	}
}

// IsRemoved reports whether id is known to be that of a former member: it is in Removed, or a member is
// a later generation of its node.
func (s *State) IsRemoved(id uint64) bool {
	if _, member := s.find(id); member {
		return false
	}
	i, ok := s.findRemoved(NodeOf(id))
	return ok && GenerationOf(id) <= GenerationOf(s.Removed[i]) || s.isReplaced(id) && !mutant.On(mutant.ForgetReplaced)
}

// CanRemove reports whether IsRemoved will tell that id is that of a former member once it is removed.
// That takes no place in Removed if its node has one already or a later generation is a member.
func (s *State) CanRemove(id uint64) bool {
	_, ok := s.findRemoved(NodeOf(id))
	return ok || len(s.Removed) < RemovedMax || s.isReplaced(id)
}

// isReplaced reports whether a later generation of the node of id is a member.
func (s *State) isReplaced(id uint64) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool {
		return NodeOf(m.ID) == NodeOf(id) && GenerationOf(m.ID) > GenerationOf(id)
	})
}

// NextMember returns the ID of the member that can replace member id, or false if the
// generations of its node are used up.
func (s *State) NextMember(id uint64) (uint64, bool) {
	generation := GenerationOf(id)
	if i, ok := s.findRemoved(NodeOf(id)); ok {
		generation = max(generation, GenerationOf(s.Removed[i]))
	}
	for _, m := range s.Members {
		if NodeOf(m.ID) == NodeOf(id) {
			generation = max(generation, GenerationOf(m.ID))
		}
	}
	return MemberID(NodeOf(id), generation+1), generation < GenerationMax
}

func (s *State) findRemoved(node uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Removed, node, func(id, node uint64) int { return cmp.Compare(NodeOf(id), node) })
}

// A member ID is the ID of its node (NODE_ID) and, in the upper bits, a generation: how often
// the node's data directory was replaced. For Raft a node with a new directory is another
// member, as it has forgotten the promises of the one before (I6).
const (
	generationShift = 48
	// NodeMax is the largest ID of a node, GenerationMax that of a generation.
	NodeMax       = 1<<generationShift - 1
	GenerationMax = 1<<(64-generationShift) - 1
)

// MemberID returns the ID of a member.
func MemberID(node, generation uint64) uint64 { return generation<<generationShift | node }

// NodeOf returns the ID of a member's node.
func NodeOf(id uint64) uint64 { return id & NodeMax }

// GenerationOf returns how often a member's node was replaced.
func GenerationOf(id uint64) uint64 { return id >> generationShift }
