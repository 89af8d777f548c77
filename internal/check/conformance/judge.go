package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

// This file has what the judge checks in every scenario. Its functions are called with stage.mu locked.

// Fault is a rule that the client broke.
type Fault struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// faultsMax bounds the faults that are kept: a client that is wrong is wrong often.
const faultsMax = 20

// fault records that the client broke a rule.
func (s *stage) fault(rule, format string, args ...any) {
	f := Fault{rule, fmt.Sprintf(format, args...)}
	s.note("%s: %s", rule, f.Text)
	if len(s.faults) < faultsMax && !slices.Contains(s.faults, f) {
		s.faults = append(s.faults, f)
	}
	s.broadcast()
}

var (
	countForm = regexp.MustCompile(`^[1-9][0-9]{0,9}$`)
	floorForm = regexp.MustCompile(`^[0-9a-f]{32}$`)
	session   = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// examine checks a request as it arrives.
func (s *stage) examine(r *request) {
	c := r.conn
	begins := r.name == "AUTH" || r.name == "HELLO" && (r.has("AUTH") || !s.secretive)
	if s.secretive && !c.authenticated && !begins {
		s.fault("C6", "%s begins with %s, not with AUTH", c.name, r.name)
	}
	c.authenticated = c.authenticated || begins
	if s.still {
		s.fault("C46", "%s got %s from an idle client", c.name, s.hidden(r))
	}
	if s.examineClock(r); !r.needsCluster() {
		return
	}
	if !c.checked {
		s.fault("C2", "%s got %s before the node had told its cluster", c.name, r)
	}
	if c.node.cluster != s.pin && s.pin != "" && c.node.cluster != unreported {
		s.fault("C14", "%s got %s, though it belongs to another cluster", c.name, r)
	}
	switch {
	case r.stamps():
		s.examineStamps(r)
	case r.name == "SNOWFLAKE" && len(r.args) > 1 && r.args[1] != "AS" && (!countForm.MatchString(r.args[1]) || r.count() > 16384):
		s.fault("C23", "%s got %s", c.name, r)
	case r.name == "WORKER LEASE" && (len(r.args) < 5 || !session.MatchString(r.args[2]) || strings.Trim(r.args[2], "0") == ""):
		s.fault("C54", "%s got %s", c.name, r)
	}
}

// examineStamps checks a request for timestamps.
func (s *stage) examineStamps(r *request) {
	most := uint64(isotone.RangeCountMax)
	if r.name == "TS64" {
		most = isotone.Range64CountMax
	}
	args := r.args[1:]
	if len(args) > 0 && (!countForm.MatchString(args[0]) || r.count() > most) {
		s.fault("C23", "%s got %s", r.conn.name, r)
	}
	if len(args) > 1 && (args[1] == "QUORUM" || args[1] == "LEASE") {
		args = args[1:]
	}
	for args = args[min(1, len(args)):]; len(args) > 0; args = args[min(2, len(args)):] {
		switch {
		case args[0] == "TRACEPARENT" && len(args) > 1:
		case args[0] != "FLOOR" || len(args) == 1 || !floorForm.MatchString(args[1]):
			s.fault("C22", "%s got %s", r.conn.name, r)
		}
	}
	floor, _ := r.floor()
	if !r.conn.answered && len(s.clients) == 1 && floor.Before(r.conn.floor) && s.keepsFloors {
		s.fault("C19", "%s got %s without the floor %v, before it has answered a request", r.conn.name, r, r.conn.floor)
	}
}

// given is what a call has received.
type given struct {
	call    *call
	issue   *issue
	first   isotone.Timestamp
	last    isotone.Timestamp
	firstID uint64
	count   uint64
}

// ended checks the end of a call.
func (s *stage) ended(c *call) {
	r := c.reply
	switch {
	case r.OK == nil && !slices.Contains(codes, r.Error):
		s.fault("driver", "%s: unknown error %q", c, r.Error)
	case r.OK == nil && r.Error == "unsupported":
		s.fault("driver", "%s: %s", c, r.Message)
	case r.OK == nil:
		s.endedBadly(c)
	case c.do == "next" || c.do == "try":
		s.gotMade(c)
	case c.clock != "":
		s.gotFromClock(c)
	case c.do != "call":
	case c.isID():
		s.gotIDs(c)
	default:
		s.gotStamps(c)
	}
}

// clockGrain is what clocks of a kit and a driver may differ by in a deadline: theirs have milliseconds.
const clockGrain = 2 * time.Millisecond

func (s *stage) endedBadly(c *call) {
	if took := c.endedAt.Sub(c.begunAt); c.reply.Error == "deadline_exceeded" && c.do != "end" && took < c.deadline-clockGrain {
		s.fault("C48", "%s: deadline_exceeded after %v, and its deadline is after %v", c, took, c.deadline)
	}
	if s.secret != "" && strings.Contains(c.reply.Message, s.secret) {
		s.fault("C7", "%s: the message contains the secret", c)
	}
}

// gotStamps checks the timestamps that a call got.
func (s *stage) gotStamps(c *call) {
	g := &given{call: c, count: c.count}
	if c.reply.OK.Count != c.count {
		s.fault("C24", "%s: %d timestamps", c, c.reply.OK.Count)
		return
	}
	is64 := strings.Contains(c.method, "64")
	if !g.read(c.reply.OK.First, is64) {
		s.fault("driver", "%s: %q is no timestamp", c, c.reply.OK.First)
		return
	}
	for _, i := range s.issues {
		if !i.isID && i.is64 == is64 && i.first.Compare(g.first) <= 0 && g.last.Compare(i.last) <= 0 && (g.issue == nil || i.void == "") {
			g.issue = i
		}
	}
	if !s.checkIssue(g, c.reply.OK.First) {
		return
	}
	for _, other := range s.given {
		if other.call.client == c.client && other.issue != nil && !other.issue.isID {
			s.checkOrder(g, other)
		}
	}
	s.given = append(s.given, g)
	if s.received.Before(g.last) {
		s.received = g.last
	}
}

// read sets the range from the text of its first.
func (g *given) read(text string, is64 bool) bool {
	if is64 {
		u, err := isotone.ParseTimestamp64(text)
		g.first, g.last = u.Timestamp(), (u + isotone.Timestamp64(g.count-1)).Timestamp()
		return err == nil
	}
	t, err := isotone.ParseTimestamp(text)
	g.first, g.last = t, isotone.Timestamp{Time: t.Time, Index: t.Index + g.count - 1}
	return err == nil
}

// checkIssue checks where the numbers of a call come from.
func (s *stage) checkIssue(g *given, first string) bool {
	switch i := g.issue; {
	case i == nil:
		s.fault("C24", "%s: no answer of the cluster has the %d numbers from %s on", g.call, g.count, first)
	case i.void != "":
		s.fault(i.void, "%s: %s is from an answer that no call may use, to %s", g.call, first, i.request)
	case i.request.seq < g.call.begun:
		s.fault("C25", "%s: %s is from a request that was sent before the call began", g.call, first)
	case !i.isID && modeOf(i.request) != g.call.mode:
		s.fault("C27", "%s in mode %q: %s is from the answer to %s", g.call, g.call.mode, first, i.request)
	default:
		return true
	}
	return false
}

// checkOrder checks one range of a client against another.
func (s *stage) checkOrder(g, other *given) {
	switch {
	case g.first.Compare(other.last) <= 0 && other.first.Compare(g.last) <= 0:
		s.fault("C24", "%s and %s got the same timestamp, %v or after it", other.call, g.call, g.first)
	case other.call.end < g.call.begun && g.first.Compare(other.last) <= 0:
		s.fault("C18", "%s got %v, after %s had got %v", g.call, g.first, other.call, other.last)
	}
}

// gotIDs checks the IDs that a call got: one after the other, and each from an answer.
func (s *stage) gotIDs(c *call) {
	if uint64(len(c.reply.OK.IDs)) != c.count {
		s.fault("C24", "%s: %d IDs", c, len(c.reply.OK.IDs))
	}
	for _, text := range c.reply.OK.IDs {
		id, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			s.fault("driver", "%s: %q is no ID", c, text)
			return
		}
		g := &given{call: c, firstID: id, count: 1}
		for _, i := range s.issues {
			if i.isID && i.firstID <= id && id < i.firstID+i.count && (g.issue == nil || i.void == "") {
				g.issue = i
			}
		}
		if !s.checkIssue(g, text) {
			return
		}
		if s.ids[id] {
			s.fault("C24", "%s: ID %s was received before", c, text)
		}
		s.ids[id] = true
	}
}

// gotMade checks the IDs that a generator made: they lie in its leases.
func (s *stage) gotMade(c *call) {
	if uint64(len(c.reply.OK.IDs)) != c.count {
		s.fault("C56", "%s: %d IDs", c, len(c.reply.OK.IDs))
	}
	for _, text := range c.reply.OK.IDs {
		id, err := snowflake.Parse(text)
		if err != nil {
			s.fault("driver", "%s: %q is no ID", c, text)
			return
		}
		in := slices.IndexFunc(s.grants, func(g *grant) bool { return g.has(id) })
		switch {
		case in < 0:
			s.fault("C56", "%s: ID %s is in no lease: %s", c, text, s.leases(id))
		case s.grants[in].released != 0 && s.grants[in].layout.Millis(id) >= s.grants[in].released:
			s.fault("C60", "%s: ID %s is of a millisecond that was released", c, text)
		case s.ids[uint64(id)]:
			s.fault("C56", "%s: ID %s was made before", c, text)
		}
		s.ids[uint64(id)] = true
	}
}

// has reports whether an ID lies in the lease.
func (g *grant) has(id snowflake.ID) bool {
	ms := g.layout.Millis(id)
	return g.layout.Worker(id) == g.worker && g.lease.Start <= ms && ms < g.lease.End
}

// leases describes an ID beside all leases.
func (s *stage) leases(id snowflake.ID) string {
	text := fmt.Sprintf("worker %d, millisecond %d by layout %s;", s.layout.Worker(id), s.layout.Millis(id), s.layout)
	for _, g := range s.grants {
		text += fmt.Sprintf(" worker %d from %d to %d;", g.worker, g.lease.Start, g.lease.End)
	}
	return text
}
