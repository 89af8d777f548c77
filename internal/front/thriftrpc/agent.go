package thriftrpc

import (
	"fmt"
	"strings"
	"sync"
)

// Labels in place of a user agent.
const (
	agentOther   = "other"   // beyond Limits.AgentsMax
	agentInvalid = "invalid" // missing or malformed
)

// agentTextMax bounds the bytes of a user agent that an error quotes.
const agentTextMax = 64

// checkAgent returns the error in a user agent, or "".
func checkAgent(c *call, bytesMax int) string {
	switch {
	case !c.given:
		return "there is no user agent"
	case len(c.agent) <= bytesMax && isAgent(c.agent):
		return ""
	}
	return fmt.Sprintf("user agent %s: want a letter, then letters, digits and \"-\", at most %d in all",
		excerpt(c.agent, agentTextMax), bytesMax)
}

func isAgent(b []byte) bool {
	for i, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
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
	max   int
	mu    sync.RWMutex
	known map[string]struct{}
}

// label returns agent, or "other". The answer for an agent never changes from the former.
func (a *agentLabels) label(agent []byte) string {
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
