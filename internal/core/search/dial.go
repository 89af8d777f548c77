package search

import (
	"maps"
	"slices"
	"time"
)

// This file paces dials and questions.

const (
	// PauseMin and PauseMax bound the pause after a failure, before jitter. An election may
	// take a few milliseconds only.
	PauseMin = time.Millisecond
	PauseMax = 100 * time.Millisecond
	// EagerPauseMax bounds the pause between two questions for the leader for the first
	// Eager of a search. Most elections end in that time.
	EagerPauseMax = 8 * time.Millisecond
	Eager         = time.Second
	// RefusedPauseMax bounds it for a node that refuses the client, which ends when somebody
	// changes the credentials here or there.
	RefusedPauseMax = time.Second
)

// Jitter draws a duration from 0 up to, and without, its argument.
type Jitter func(below time.Duration) time.Duration

// Pause returns the pause after that many failures in a row. It is exponential, with a jitter of
// up to half.
func (j Jitter) Pause(failures int, most time.Duration) time.Duration {
	pause := min(PauseMin<<min(failures, 16), most)
	return pause/2 + j(pause)
}

// DialWait returns how long to wait before the next dial of an address, if that is positive.
func (s *Search) DialWait(addr string, u Use, now time.Duration) time.Duration {
	return s.node(addr).dials[u].after - now
}

// Dialed records that a dial has succeeded. IDs come from any node: one that repeatedly connects
// and falls silent is tried less often, so the pauses get shorter one after the other.
func (s *Search) Dialed(addr string, u Use) {
	if d := &s.node(addr).dials[u]; u == IDs && d.failures > 0 {
		d.failures--
	}
}

// DialPauseMax bounds the pauses of the search.
func (s *Search) DialPauseMax(now time.Duration) time.Duration {
	if s.suspected && now-s.begun < Eager {
		return EagerPauseMax
	}
	return PauseMax
}

// Failed records that an address cannot be reached, or that its connections are unusable. The
// pause before the next dial is most, or longer if the node refuses the client. It reports whether
// a search begins.
func (s *Search) Failed(addr string, u Use, most, now time.Duration) (suspected bool) {
	n := s.node(addr)
	if n.outcome == Refuses {
		most = RefusedPauseMax
	}
	if d := &n.dials[u]; now >= d.after { // concurrent attempts count once
		d.after = now + s.jitter.Pause(d.failures, most)
		d.failures++
	}
	return u == Stamps && s.Suspect(addr)
}

// Hurry shortens the pauses of all nodes: now every one is needed.
func (s *Search) Hurry(u Use, now time.Duration) {
	for _, addr := range slices.Sorted(maps.Keys(s.nodes)) {
		d := &s.nodes[addr].dials[u]
		d.failures = min(d.failures, 1)
		d.after = now + s.jitter.Pause(d.failures, PauseMax)
	}
}
