package thriftrpc

import (
	"fmt"
	"strings"
	"sync"
)

// agentOther labels the calls of user agents that have no label of their own: those beyond
// Limits.AgentsMax, none, and those that isAgent refuses.
const agentOther = "other"

// isAgent reports whether a user agent may be a label: a letter, then letters, digits, "-",
// "_" and ".". Any other is served too: no rule of Twitter's file says what a user agent is, and
// clients send names such as "my_app", or none.
func isAgent(b []byte) bool {
	for i, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '-' && c != '_' && c != '.' && (c < '0' || c > '9')) {
			return false
		}
	}
	return len(b) > 0
}

// excerpt quotes at most n bytes of b, in ASCII.
func excerpt(b []byte, n int) string {
	if len(b) > n {
		return fmt.Sprintf("%+q…", b[:n])
	}
	return fmt.Sprintf("%+q", b)
}

// agentLabels maps user agents to a bounded set of labels for metrics.
type agentLabels struct {
	max      int
	bytesMax int
	mu       sync.RWMutex
	known    map[string]struct{}
}

// label returns agent, or "other". The answer for an agent never changes from the former.
func (a *agentLabels) label(agent []byte) string {
	if len(agent) > a.bytesMax || !isAgent(agent) {
		return agentOther
	}
	a.mu.RLock()
	_, known := a.known[string(agent)]
	full := len(a.known) >= a.max
	a.mu.RUnlock()
	switch {
	case known:
		return string(agent)
	case full:
		return agentOther
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := string(agent)
	if _, known := a.known[name]; !known {
		if len(a.known) >= a.max {
			return agentOther
		}
		a.known[name] = struct{}{}
	}
	return name
}

// text limits s to valid UTF-8 of at most n bytes, as all protocols require.
func text(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}
