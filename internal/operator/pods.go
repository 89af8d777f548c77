package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// PodsMax is as many as PEERS may name in DNS.
const PodsMax = 64

// OrdinalPlace stands for the number of a pod in an address.
const OrdinalPlace = "{ordinal}"

// Step is one change of the members.
type Step struct {
	Change front.MemberChange
	What   string // as in "node 4 is removed"
}

// Plan says how to come from the present members to those that are wanted.
type Plan struct {
	Steps []Step // removals before additions
	// Blocked says why the first step has to wait, or is "".
	Blocked string
	// Notes are about members that are left as they are.
	Notes []string
}

// Pods is what the members are to be.
type Pods struct {
	Addrs         map[uint64]string // peer address by node ID
	Minimum       int               // voters
	before, after string            // of the address, around the ordinal
}

// NewPods returns those of an address with one [OrdinalPlace] in its host, whose node IDs are those of id.
func NewPods(addr string, count uint64, minimum int, id func(ordinal uint64) uint64) (s Pods, ok bool) {
	var found bool
	s = Pods{Addrs: map[uint64]string{}, Minimum: minimum}
	s.before, s.after, found = strings.Cut(addr, OrdinalPlace)
	_, _, err := net.SplitHostPort(s.before + "0" + s.after)
	for ordinal := range count {
		s.Addrs[id(ordinal)] = s.before + strconv.FormatUint(ordinal, 10) + s.after
	}
	return s, found && err == nil && !strings.Contains(s.after, OrdinalPlace)
}

// has reports whether an address is that of a node of the set, whatever its ordinal.
func (s Pods) has(addr string) bool {
	rest, ok := strings.CutPrefix(addr, s.before)
	number, isPod := strings.CutSuffix(rest, s.after)
	_, err := strconv.ParseUint(number, 10, 48)
	return ok && isPod && err == nil
}

// Plan decides what is to be done. It changes nothing, and fails if the members cannot become those
// that are wanted.
func (s Pods) Plan(l front.MemberList) (p Plan, err error) {
	var gone []front.MemberRecord
	found := false
	for _, m := range l.Members {
		want := s.Addrs[m.NodeID]
		switch {
		case want == "" && !s.has(m.PeerAddr):
			p.Notes = append(p.Notes, fmt.Sprintf("node %d, at %s, is none of these nodes, and is left alone", m.NodeID, m.PeerAddr))
			continue
		case want == "":
			gone = append(gone, m)
		case m.PeerAddr != want && m.PeerAddr != "" && !isReplaced(l, m):
			return p, fmt.Errorf("node %d is on record at %s, and is to be at %s: correct --peer-addr or --node-ids, or change the record (isotone member update %d %s); nothing was changed",
				m.NodeID, m.PeerAddr, want, m.NodeID, want)
		}
		found = true
	}
	if !found {
		return p, fmt.Errorf("no member is one of these nodes, which are at %s%s%s: correct --endpoint or --peer-addr; nothing was changed", s.before, OrdinalPlace, s.after)
	}
	added, err := s.missing(l)
	if err != nil {
		return p, err
	}
	p.remove(gone)
	p.Steps = append(p.Steps, added...)
	if slices.ContainsFunc(gone, isVoter) {
		p.Blocked, err = s.checkStaying(l, gone)
	}
	return p, err
}

// isReplaced reports whether a member is to go once its successor is a voter.
func isReplaced(l front.MemberList, m front.MemberRecord) bool {
	return m.Replaces == 0 && slices.ContainsFunc(l.Members, func(o front.MemberRecord) bool { return o.Replaces == m.NodeID })
}

func isVoter(m front.MemberRecord) bool { return m.Role != "learner" }

// missing returns the additions, by ID.
func (s Pods) missing(l front.MemberList) (steps []Step, err error) {
	for _, id := range s.IDs() {
		switch {
		case Has(l, id, IsAny):
		case slices.Contains(l.Removed, id):
			return nil, fmt.Errorf("node %d, at %s, was removed before, and an ID is used once: give that ordinal a new NODE_ID (NODE_ID=ordinal,ORDINAL=ID, and --node-ids here), and delete its old data directory; nothing was changed", id, s.Addrs[id])
		default:
			steps = append(steps, Step{
				front.MemberChange{Action: front.AddMember, NodeID: id, PeerAddr: s.Addrs[id]},
				fmt.Sprintf("node %d is added, at %s; it becomes a voter once it runs and has caught up", id, s.Addrs[id]),
			})
		}
	}
	return steps, nil
}

// remove adds the removals: learners first, then the highest ID. Of a node that is being replaced the
// successor goes first.
func (p *Plan) remove(gone []front.MemberRecord) {
	slices.SortFunc(gone, func(a, b front.MemberRecord) int {
		switch {
		case isVoter(a) != isVoter(b):
			return map[bool]int{false: -1, true: 1}[isVoter(a)]
		case MemberID(a) > MemberID(b):
			return -1
		}
		return 1
	})
	for _, m := range gone {
		what := fmt.Sprintf("node %d is removed", m.NodeID)
		if m.Replaces != 0 {
			what = fmt.Sprintf("the replacement of node %d is given up", m.NodeID)
		}
		p.Steps = append(p.Steps, Step{front.MemberChange{Action: front.RemoveMember, NodeID: m.NodeID, MemberID: MemberID(m)}, what})
	}
}

// checkStaying returns what the removal of voters has to wait for, or why it is refused.
func (s Pods) checkStaying(l front.MemberList, gone []front.MemberRecord) (blocked string, err error) {
	staying, leaving := 0, 0
	for _, m := range l.Members {
		switch {
		case !isVoter(m):
		case slices.ContainsFunc(gone, func(g front.MemberRecord) bool { return MemberID(g) == MemberID(m) }):
			leaving++
		case !m.Connected && blocked == "":
			blocked = fmt.Sprintf("node %d stays and is not connected: bring it back, or replace it", m.NodeID)
			staying++
		default:
			staying++
		}
	}
	if staying < s.Minimum {
		return "", fmt.Errorf("of %d voters %d would be left, and the minimum is %d: a cluster of fewer than three survives no failure (--minimum N allows it); nothing was changed", staying+leaving, staying, s.Minimum)
	}
	return blocked, nil
}

// Take sends one change. A cluster that cannot make it yet says why.
func (c *Client) Take(ctx context.Context, step Step) (why string, err error) {
	isDone := func(l front.MemberList) bool {
		if step.Change.Action == front.AddMember {
			return Has(l, step.Change.NodeID, IsAny)
		}
		return !Has(l, step.Change.NodeID, func(m front.MemberRecord) bool { return MemberID(m) == step.Change.MemberID })
	}
	_, err = c.Apply(ctx, step.Change, isDone)
	var told *Error
	if errors.As(err, &told) && (told.Code == isotone.CodeOverloaded || told.Code == isotone.CodeNoQuorum) {
		return told.Message, nil
	}
	return "", err
}

// IDs returns the node IDs, ascending.
func (s Pods) IDs() []uint64 { return slices.Sorted(maps.Keys(s.Addrs)) }
