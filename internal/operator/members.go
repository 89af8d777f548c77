package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/front"
)

// MembersPath is where the members are read and changed.
const MembersPath = "/admin/members"

// Apply sends a change of membership. An attempt whose answer was lost, with the leader or with the
// terminal of an earlier command, may have its effect at any moment, and then this one is
// refused: so isDone tells from the members whether there is nothing left to do.
func (c *Client) Apply(ctx context.Context, change front.MemberChange, isDone func(front.MemberList) bool) (l front.MemberList, err error) {
	err = c.Do(ctx, http.MethodPost, MembersPath, change, &l)
	var unsure *UnsureError
	var told *Error
	var now front.MemberList
	mayBeDone := errors.As(err, &unsure) || errors.As(err, &told) && told.Code == isotone.CodeInvalidArgument
	if !mayBeDone || c.Do(ctx, http.MethodGet, MembersPath, nil, &now) != nil {
		return l, err
	}
	switch {
	case isDone(now):
		return now, nil
	case unsure != nil:
		return l, unsure.Cause
	}
	return l, err
}

// Has reports whether a record of a node has a property.
func Has(l front.MemberList, node uint64, property func(front.MemberRecord) bool) bool {
	return slices.ContainsFunc(l.Members, func(m front.MemberRecord) bool { return m.NodeID == node && property(m) })
}

// IsAny is true of every record.
func IsAny(front.MemberRecord) bool { return true }

// IsSuccessor reports whether a record is that of a node that is to replace another one.
func IsSuccessor(m front.MemberRecord) bool { return m.Replaces != 0 }

// poll is the time between two looks at the members.
const poll = 250 * time.Millisecond

// Pause waits until the members are worth another look. It returns the cause if ctx is done.
func Pause(ctx context.Context) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// UntilVoter waits until a generation of a node is a voter and the one that it replaces is
// gone, or the limit of the client is over. It tells what it waits for, each time that changes.
func (c *Client) UntilVoter(ctx context.Context, node, generation uint64, wait time.Duration, tell func(string)) (l front.MemberList, err error) {
	const after = "node %d is not a voter after %v%s; the cluster goes on by itself, see: isotone member list"
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf(after, node, wait, ""))
	defer cancel()
	if c.limit != nil {
		ctx, cancel = context.WithDeadlineCause(ctx, c.limit.until, fmt.Errorf(after, node, c.limit.of, ", the --timeout"))
		defer cancel()
	}
	told := ""
	for {
		text, done := "", false
		l = front.MemberList{} // what an answer leaves out must not remain
		err := c.Do(ctx, http.MethodGet, MembersPath, nil, &l)
		switch {
		case ctx.Err() != nil:
			return l, context.Cause(ctx)
		case errors.As(err, new(UsageError)):
			return l, err
		case err != nil: // it may not last
			text = err.Error()
		case Newest(l, node).Generation < generation || !Has(l, node, IsAny):
			return l, fmt.Errorf("node %d does not become a voter any more: somebody else has given that up", node)
		default:
			text, done = Progress(l, node)
		}
		if done {
			return l, nil
		}
		if text != told {
			told = text
			tell(text)
		}
		if err := Pause(ctx); err != nil {
			return l, err
		}
	}
}

// Newest returns the record of a node with the highest generation; zero if it has none.
func Newest(l front.MemberList, node uint64) front.MemberRecord {
	return RecordOf(l, node, IsAny)
}

// RecordOf returns the newest record of a node with a property; zero if it has none.
func RecordOf(l front.MemberList, node uint64, property func(front.MemberRecord) bool) (m front.MemberRecord) {
	for _, o := range l.Members { // by generation
		if o.NodeID == node && property(o) {
			m = o
		}
	}
	return m
}

// MemberID returns the ID of a member, 0 for the zero record.
func MemberID(m front.MemberRecord) uint64 { return oracle.MemberID(m.NodeID, m.Generation) }

// Progress says how far a node is on its way to become a voter.
func Progress(l front.MemberList, node uint64) (text string, done bool) {
	var records []front.MemberRecord
	for _, m := range l.Members {
		if m.NodeID == node {
			records = append(records, m)
		}
	}
	if len(records) == 0 {
		return fmt.Sprintf("node %d is no member", node), false
	}
	m := records[len(records)-1]
	switch {
	case m.Role != "learner" && len(records) == 1:
		return "", true
	case m.Role != "learner":
		return fmt.Sprintf("node %d is a voter, and its former data directory is being removed", node), false
	case m.Incarnation == "":
		return fmt.Sprintf("node %d has not been started yet: %s", node, StartLine(m)), false
	case !m.Connected:
		return fmt.Sprintf("node %d is not connected", node), false
	default:
		return fmt.Sprintf("node %d is connected and catches up", node), false
	}
}

// StartLine is what to run on the machine of a node that joins.
func StartLine(m front.MemberRecord) string {
	return fmt.Sprintf("start it with an empty data directory: NODE_ID=%d RAFT_ADDR=%s JOIN=CLIENT_ADDRESS_OF_A_MEMBER isotone serve", m.NodeID, m.PeerAddr)
}
