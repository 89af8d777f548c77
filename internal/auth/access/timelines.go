package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
)

// patternsMax bounds the names and patterns of one user.
const patternsMax = 64

// orders are the timelines that a user may name, and the one that it has in place of the default order. The zero value allows all of
// them, and the default order.
type orders struct {
	// bound is what a request has that names no timeline; "": see only.
	bound string
	// only are names, and prefixes with a '*' after them. If there is one, or bound, everything else is refused, the default order too.
	only []string
}

// parseOrders reads the values of the keys "timeline" and "timelines" of a user, which are nil if the user has no such key.
func parseOrders(bound, only json.RawMessage) (o orders, err error) {
	var faults []error
	if bound != nil {
		if json.Unmarshal(bound, &o.bound) != nil || timeline.CheckName(o.bound) != nil {
			faults = append(faults, errors.New(`timeline: want the name of one timeline, such as "orders"; leave the key out for the default order`))
		}
	}
	if only != nil {
		if json.Unmarshal(only, &o.only) != nil || len(o.only) == 0 || len(o.only) > patternsMax {
			faults = append(faults, fmt.Errorf(`timelines: want a list of 1 to %d names or prefixes, such as ["tenant-7/*"]; leave the key out for all timelines`, patternsMax))
		}
		for _, p := range o.only {
			if prefix, _ := prefixOf(p); p != allTimelines && timeline.CheckName(prefix) != nil {
				faults = append(faults, fmt.Errorf(`timelines: %.80q: want a name of letters, digits, and . _ / - only, at most %d bytes, or the beginning of one with a * after it`, p, timeline.NameMax))
			}
		}
	}
	return o, errors.Join(faults...)
}

// allTimelines is the pattern of all names.
const allTimelines = "*"

// prefixOf returns what a pattern begins with, and whether more may follow.
func prefixOf(pattern string) (prefix string, open bool) { return strings.CutSuffix(pattern, "*") }

// isOpen reports whether o allows everything.
func (o *orders) isOpen() bool { return o.bound == "" && o.only == nil }

// allows reports whether a timeline may be named. The default order has no name.
func (o *orders) allows(name string) bool {
	if o.isOpen() || name == "" {
		return o.isOpen()
	}
	return name == o.bound || slices.ContainsFunc(o.only, func(p string) bool {
		prefix, open := prefixOf(p)
		return name == prefix || open && strings.HasPrefix(name, prefix)
	})
}

// allowsBelow reports whether all names may be named that begin with a prefix.
func (o *orders) allowsBelow(prefix string) bool {
	return o.isOpen() || slices.ContainsFunc(o.only, func(p string) bool {
		begin, open := prefixOf(p)
		return open && strings.HasPrefix(prefix, begin)
	})
}

// of returns the timeline that a request is for which names one, or "" if it names none.
func (o *orders) of(named string) (name string, ok bool) {
	switch {
	case o.isOpen():
		return named, true
	case named == "":
		return o.bound, o.bound != ""
	}
	return named, o.allows(named)
}

func (o *orders) equal(other *orders) bool {
	return o.bound == other.bound && slices.Equal(o.only, other.only)
}

// String returns the orders as words: "all", or names and patterns with commas between, of which one in front with a '=' is the bound one.
func (o *orders) String() string {
	list := o.only
	if o.bound != "" {
		list = append([]string{"=" + o.bound}, list...)
	}
	if list == nil {
		return "all"
	}
	return strings.Join(list, ",")
}

// Timeline returns the timeline that a request for timestamps is for which names one, or "" if it names none: in the answer, "" is the
// default order. It is not ok if the user may not have timestamps of it. Every front asks this before it looks at
// a request any further, so that nobody reaches an order but by the list of users. It is cheap for users who may have all.
func (s *Session) Timeline(named string) (name string, ok bool) {
	if s.control == nil {
		return named, true
	}
	s.refresh()
	return s.user.orders.of(named)
}

// RequireTimeline is Timeline with an error, which matches isotone.ErrForbidden and is logged.
func (s *Session) RequireTimeline(named string) (name string, err error) {
	name, ok := s.Timeline(named)
	if ok {
		return name, nil
	}
	if named == "" {
		return "", s.lacksTimeline("the default order", "name one that it may use")
	}
	return "", s.lacksTimeline(fmt.Sprintf("the timeline %.64q", named), "")
}

// MayClock reports whether the user may have readings of the cluster clock, and timestamps made of them. These belong to the default order.
func (s *Session) MayClock() bool {
	if s.control == nil {
		return true
	}
	s.refresh()
	return s.user.orders.isOpen()
}

// RequireClock is MayClock with an error, which matches isotone.ErrForbidden and is logged.
func (s *Session) RequireClock() error { return s.RequireDefault("the cluster clock, which belongs") }

// RequireDefault returns nil if the user may have what belongs to the default order, and otherwise an error that matches isotone.ErrForbidden and is logged.
func (s *Session) RequireDefault(what string) error {
	if s.MayClock() {
		return nil
	}
	return s.lacksTimeline(what+" to the default order", "")
}

// RequireTimelines returns nil if the user may create and delete timelines with these names, and otherwise an error that matches isotone.ErrForbidden.
func (s *Session) RequireTimelines(names []string) error {
	for _, name := range names {
		if !s.ordersNow().allows(name) {
			return s.lacksTimeline(fmt.Sprintf("the timeline %.64q", name), "")
		}
	}
	return nil
}

// RequireBelow returns nil if the user may see all timelines whose names begin with a prefix, and otherwise an error that matches isotone.ErrForbidden.
func (s *Session) RequireBelow(prefix string) error {
	if s.ordersNow().allowsBelow(prefix) {
		return nil
	}
	return s.lacksTimeline(fmt.Sprintf("all timelines whose names begin with %.64q", prefix), "ask for a name, or for a prefix on its list")
}

// ordersNow returns what the list in force allows.
func (s *Session) ordersNow() *orders {
	if s.control == nil {
		return &orders{}
	}
	s.refresh()
	return &s.user.orders
}

func (s *Session) lacksTimeline(what, hint string) error {
	s.tally().lackedRole.Add(1)
	s.control.audit.denied("timeline", s.user.name, s.addr, what)
	if hint != "" {
		hint = "; " + hint
	}
	return isotone.Errorf(isotone.CodeForbidden, "user %s may not use %s%s", s.user.name, what, hint)
}
