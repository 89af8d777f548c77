package pd

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// Who serves a keyspace. A split or a merge seals the timeline of a group and has others follow it in the file. So at no time two of its groups
// serve a keyspace, whichever nodes have read which file: a node that does not know the follower refuses. The follower serves once all that it
// will issue is above all that those before it have issued.

// served is who serves a keyspace: a group of the file, or nil for group 0.
type served struct{ group *group }

// id returns the ID of the group.
func (s served) id() uint32 {
	if s.group == nil {
		return 0
	}
	return s.group.id
}

// timeline returns its timeline, "" for the default order.
func (s served) timeline() string {
	if s.group == nil {
		return ""
	}
	return s.group.timeline
}

// serves returns who serves a keyspace by what table has, and the node that owns that group, 0 for none. Its errors match
// isotone.ErrNoLeader, and have the words by which clients of PD look for another server.
func (g *Groups) serves(keyspace uint32, table front.TimelineTable) (s served, owner uint64, err error) {
	var last *group
	bound := uint64(0)
	for _, s.group = range g.of(keyspace) {
		state, ok := table.Timeline(s.group.timeline)
		switch {
		case !ok:
			return s, 0, notServed("keyspace group %d is not served: there is no timeline %s; create it with: isotone timeline create %[2]s", s.group.id, s.group.timeline)
		case state.Bound != 0:
			last, bound = s.group, max(bound, state.Bound)
		case state.Base < bound:
			return s, 0, notServed("keyspace group %d is not served: it follows group %d, and is not above it yet; raise it with: isotone timeline floor %s %s",
				s.group.id, last.id, s.group.timeline, time.Unix(0, int64(bound)).UTC().Format(time.RFC3339Nano))
		default:
			return s, state.NodeID, nil
		}
	}
	if s.group != nil {
		return s, 0, notServed("keyspace %d is not served: group %d is sealed, and the file of PD_KEYSPACE_GROUPS has no group for it that follows", keyspace, s.group.id)
	}
	return s, 0, nil
}

func notServed(format string, args ...any) error {
	return isotone.Errorf(isotone.CodeNoLeader, format, args...)
}

// findGroup says which group a keyspace is in, and who serves that. After a failure, or without a primary, clients ask another server.
func (s *Server) findGroup(c call) ([]byte, error) {
	status := s.cfg.Status()
	keyspace, err := ParseFindGroup(c.request)
	if err == nil && status.ClusterID == 0 {
		err = errUnknownCluster
	}
	if err != nil {
		return AppendGroup(nil, status.ClusterID, 0, nil, -1, err), err
	}
	by, owner, err := s.cfg.Groups.serves(keyspace, s.cfg.Timelines)
	if by.group == nil {
		owner = s.leads(status, c.bound)
	}
	list, primary := s.servers(status, c.secure, owner)
	return AppendGroup(nil, status.ClusterID, by.id(), urlsOf(list), primary, err), err
}

// urlsOf returns the URLs of members; never nil.
func urlsOf(list []Member) []string {
	urls := make([]string, len(list))
	for i, m := range list {
		urls[i] = m.URL
	}
	return urls
}

// errMinTS must not have the word "Unimplemented": clients would take a timestamp of their own group instead, which is no minimum.
var errMinTS = isotone.Errorf(isotone.CodeNotFound, "GetMinTS is not served here: with keyspace groups, no node knows a time that none of them issues before")

func (s *Server) minTS(call) ([]byte, error) {
	return appendHeader(nil, s.cfg.Status().ClusterID, errMinTS), errMinTS
}
