package access

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/isotone/isotone"
)

// nameMax is the largest length of the name of a lock or of a group of writers, in bytes.
const nameMax = 128

// names are the locks, and the groups of writers, that a user may use: names, and beginnings of names that end with '*' or '/'. nil allows all of them.
type names []string

// parseNames reads the value of the key "names" of a user, which is nil if the user has no such key.
func parseNames(text json.RawMessage) (n names, err error) {
	if text == nil {
		return nil, nil
	}
	if json.Unmarshal(text, &n) != nil || len(n) == 0 || len(n) > patternsMax || slices.ContainsFunc(n, func(p string) bool { return p == "" || len(p) > nameMax }) {
		return nil, fmt.Errorf(`names: want a list of 1 to %d names of locks and groups, or of their beginnings, such as ["shop/"]; leave the key out for all`, patternsMax)
	}
	return n, nil
}

// beginningOf returns what a pattern begins with, and whether more may follow.
func beginningOf(pattern string) (prefix string, open bool) {
	prefix, open = prefixOf(pattern)
	return prefix, open || strings.HasSuffix(prefix, "/")
}

// String returns the names with commas between, or "all".
func (n names) String() string {
	if n == nil {
		return "all"
	}
	return strings.Join(n, ",")
}

func (n names) allows(name string) bool {
	return n == nil || slices.ContainsFunc(n, func(p string) bool {
		prefix, open := beginningOf(p)
		return name == prefix || open && strings.HasPrefix(name, prefix)
	})
}

func (n names) allowsAll(list []string) bool {
	return !slices.ContainsFunc(list, func(name string) bool { return !n.allows(name) })
}

// allowsBelow reports whether all names are allowed that begin with a prefix.
func (n names) allowsBelow(prefix string) bool {
	return n == nil || slices.ContainsFunc(n, func(p string) bool {
		begin, open := beginningOf(p)
		return open && strings.HasPrefix(prefix, begin)
	})
}

// RequireName returns nil if the user may use the locks, or the groups of writers, with these names, and otherwise an error that matches isotone.ErrForbidden and is logged.
func (s *Session) RequireName(list ...string) error {
	if s.control == nil {
		return nil
	}
	s.refresh()
	for _, name := range list {
		if !s.user.names.allows(name) {
			return s.lacksName(fmt.Sprintf("the lock or group %.64q", name))
		}
	}
	return nil
}

// RequireNamesBelow returns nil if the user may use all locks whose names begin with a prefix, and otherwise an error that matches isotone.ErrForbidden and is logged.
func (s *Session) RequireNamesBelow(prefix string) error {
	if s.control == nil {
		return nil
	}
	if s.refresh(); s.user.names.allowsBelow(prefix) {
		return nil
	}
	return s.lacksName(fmt.Sprintf("all locks whose names begin with %.64q", prefix))
}

func (s *Session) lacksName(what string) error {
	s.tally().lackedRole.Add(1)
	s.control.audit.denied("name", s.user.name, s.addr, what)
	return isotone.Errorf(isotone.CodeForbidden, "user %s may not use %s", s.user.name, what)
}
