package access

import (
	"maps"
	"slices"
	"sync/atomic"
)

// tally counts what a user has used, and what it was refused, since the start of the process.
type tally struct{ requests, timestamps, lackedRole, overQuota atomic.Uint64 }

// Use is what a user has used of this node since the process started.
type Use struct {
	// User is its name. It stands in parentheses for those who are no users of the list: clients without credentials, and others,
	// who come with a certificate where there is no list.
	User string
	// Requests were answered, with Timestamps: timestamps and IDs.
	Requests, Timestamps uint64
	// LackedRole and OverQuota were refused.
	LackedRole, OverQuota uint64
}

// anonymousName and othersName stand for clients without credentials, and for those who are not on the list. No user has such a name.
const anonymousName, othersName = "(anonymous)", "(others)"

// Uses returns what each user has used, by name, without those who have asked for nothing.
func (c *Control) Uses() []Use {
	uses := []Use{}
	add := func(name string, t *tally) {
		u := Use{User: name, Requests: t.requests.Load(), Timestamps: t.timestamps.Load(), LackedRole: t.lackedRole.Load(), OverQuota: t.overQuota.Load()}
		if u != (Use{User: name}) {
			uses = append(uses, u)
		}
	}
	add(anonymousName, &c.anonymous)
	add(othersName, &c.others)
	users := c.table.Load().users
	for _, name := range slices.Sorted(maps.Keys(users)) {
		add(name, &users[name].usage.tally)
	}
	return uses
}

// tally returns where the session's requests are counted.
func (s *Session) tally() *tally {
	s.refresh()
	switch {
	case s.user.usage != nil:
		return &s.user.usage.tally
	case s.user.name == "":
		return &s.control.anonymous
	}
	return &s.control.others
}

// Used counts requests that were answered, with a number of timestamps or IDs. The caller has called Charge or Spend for them.
func (s *Session) Used(requests, timestamps uint64) {
	if s.control == nil {
		return
	}
	t := s.tally()
	t.requests.Add(requests)
	if timestamps > 0 {
		t.timestamps.Add(timestamps)
	}
}
