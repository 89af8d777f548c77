package thriftrpc

import (
	"fmt"
	"strings"
	"sync"
)

// Labels of user agents that are not named.
const (
	agentOther   = "other"   // one too many
	agentInvalid = "invalid" // no user agent at all
)

// agentTextMax bounds how much of a user agent an error repeats.
const agentTextMax = 64

// checkAgent returns what is wrong with a user agent, or "".
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

// agentLabels gives user agents the labels of a metric, and bounds how many there are.
type agentLabels struct {
	max   int
	mu    sync.RWMutex
	known map[string]struct{}
}

// label returns agent itself, for good, or "other".
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

// text makes s fit for a string of any protocol: valid UTF-8 of at most n bytes.
func text(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "?")
}
