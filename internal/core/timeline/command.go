package timeline

import "github.com/isotone/isotone/internal/core/mutant"

// Kind is the kind of a [Command]. The values are part of the log format.
type Kind uint8

const (
	// KindGrant makes processes owners of groups, and raises the shared ceiling to Target.
	KindGrant Kind = 1
	// KindCreate creates timelines, and raises the shared ceiling to Target.
	KindCreate Kind = 2
	// KindDelete deletes the timeline Name.
	KindDelete Kind = 3
	// KindMove puts the timeline Name into Group, and raises the shared ceiling to Target.
	KindMove Kind = 4
	// KindFloor has the timeline Name issue above Time.
	KindFloor Kind = 5
	// KindSeal ends the timeline Name: its name stays, and it issues no timestamps any more.
	KindSeal Kind = 6
	// KindQuota sets the quota of the timeline Name.
	KindQuota Kind = 7
	// KindMake makes Group, or sets which nodes it prefers.
	KindMake Kind = 8
	// KindDrop removes Group, which has no timelines and was made by an operator.
	KindDrop Kind = 9
	// KindLeaseOn allows the owner of Group to answer by a lease, and later owners as well.
	KindLeaseOn Kind = 10
	// KindLeaseOff: no process answers by the lease of Group since Lease any more. It takes effect once that is ending, and a leader
	// proposes it when every lease of before has run out.
	KindLeaseOff Kind = 11
	// KindLeaseEnd begins the end of the lease of Group since Lease: an owner that has applied it answers by none.
	KindLeaseEnd Kind = 12
)

const (
	// GrantsMax and CreationsMax bound the parts of one command.
	GrantsMax    = GroupsMax
	CreationsMax = 256
)

// Command is one replicated change of the table. Only the fields of its kind count and are encoded.
type Command struct {
	Kind      Kind
	Grants    []Grant
	Target    uint64 // in unix nanoseconds
	Creations []Creation

	// Name names a timeline, and ID is its ID: a command that comes late does not meet another timeline of that name. 0: whichever there is.
	Name  string
	ID    uint64
	Group string
	Time  uint64 // in unix nanoseconds
	Quota Quota
	// Prefer has at most PreferMax nodes.
	Prefer []uint64
	// Lease is that of the group, with KindLeaseEnd and KindLeaseOff: one that comes late does not meet another lease.
	Lease uint64
}

// Fences reports whether the owner of a timeline has to have applied c before it answers a request that came after c was committed: c changes
// what a process owns, begins or ends a timeline, raises its floor, or ends a lease.
func (c Command) Fences() bool {
	switch c.Kind {
	case KindGrant, KindCreate, KindDelete, KindMove, KindFloor, KindSeal:
		return true
	case KindLeaseEnd:
		return !mutant.On(mutant.LeaseEndUnfenced)
	}
	return false
}

// Grant makes a process the owner of a group, if its tenure is the one that it replaces.
type Grant struct {
	Group           string
	Member, Session uint64
	Replaces        uint64 // Group.Grant
}

// Creation creates a timeline.
type Creation struct {
	Name string
	// Group is its group; "" stands for GroupOf(Name).
	Group string
	// Above is a time, in unix nanoseconds, that all its timestamps are above: for what another system has issued. 0: none.
	Above uint64
	Quota Quota
}

// Refusal says why a command, or a part of one, changes nothing.
type Refusal uint8

const (
	// Done: it is applied.
	Done Refusal = iota
	// NotFound: there is no such timeline, or it has another ID.
	NotFound
	// NoGroup: there is no such group.
	NoGroup
	// Exists: there is such a timeline.
	Exists
	// Sealed: the timeline is sealed.
	Sealed
	// Leased: the owner of the group may answer by a lease, which has to end first.
	Leased
	// Superseded: the group has another tenure or another lease by now.
	Superseded
	// NoMember: the process that would own a group is not that of a member.
	NoMember
	// Full: there are as many timelines, groups, or ceilings of deleted timelines as there may be.
	Full
	// NotEmpty: the group has timelines.
	NotEmpty
	// Fixed: a group of hash slots cannot be removed.
	Fixed
	// TooLate: the time is so near the end of all times that no timestamp would be above it.
	TooLate
)
