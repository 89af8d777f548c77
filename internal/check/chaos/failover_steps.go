//go:build linux

package chaos

import (
	"encoding/json"
	"strings"
	"time"
)

// failoverSteps are the steps of a failover in their order, and the lines of the successor's log, at
// debug level, that say that one is done.
var failoverSteps = []struct {
	name string
	is   func(line *logLine) bool
}{
	{"the connection has ended", func(l *logLine) bool { return l.Msg == "peer disconnected" }},
	{"the address refuses connections", func(l *logLine) bool { return l.Msg == "the address of the peer refuses connections" }},
	{"asks for pre-votes", func(l *logLine) bool { return l.raft("became pre-candidate") }},
	{"has enough pre-votes, writes its own vote", func(l *logLine) bool { return l.raft("became candidate") }},
	{"its own vote is durable, votes count", func(l *logLine) bool { return l.raft("received MsgVoteResp from") && l.own() }},
	{"is elected, writes the reservation", func(l *logLine) bool { return l.raft("became leader") }},
	{"the reservation is applied", func(l *logLine) bool { return l.Msg == "this node answers as the leader" }},
}

// logLine is one line of a node's log.
type logLine struct {
	Time time.Time
	Msg  string
}

// raft reports whether the line is one of Raft with these words.
func (l *logLine) raft(words string) bool {
	return strings.HasPrefix(l.Msg, "raft: ") && strings.Contains(l.Msg, words)
}

// own reports whether a line of Raft, "ID received … from ID …", is about a message of the node to
// itself.
func (l *logLine) own() bool {
	words := strings.Fields(strings.TrimPrefix(l.Msg, "raft: "))
	for i, word := range words {
		if word == "from" && i+1 < len(words) {
			return words[i+1] == words[0]
		}
	}
	return false
}

// StepTimes collects when steps were done.
type StepTimes struct {
	times   [][]time.Duration // of each step, and of the first answer
	slowest []time.Duration   // all of one event; 0: not seen
}

// Add reads when each step of a failover was done from the log of the successor: the latest line
// of each between the event and the first answer.
func (s *StepTimes) Add(log string, event, answer time.Time) {
	if s.times == nil {
		s.times = make([][]time.Duration, len(failoverSteps)+1)
	}
	last := len(failoverSteps)
	took := make([]time.Duration, last+1)
	for text := range strings.Lines(log) {
		var line logLine
		if json.Unmarshal([]byte(text), &line) != nil || line.Time.Before(event) || line.Time.After(answer) {
			continue
		}
		for i, step := range failoverSteps {
			if step.is(&line) {
				took[i] = line.Time.Sub(event)
			}
		}
	}
	took[last] = answer.Sub(event)
	for i, d := range took {
		if d > 0 {
			s.times[i] = append(s.times[i], d)
		}
	}
	if s.slowest == nil || took[last] > s.slowest[last] {
		s.slowest = took
	}
}

// Medians returns what was collected.
func (s *StepTimes) Medians() (list []StepTime) {
	for i, times := range s.times {
		name := "the first answer has arrived"
		if i < len(failoverSteps) {
			name = failoverSteps[i].name
		}
		list = append(list, StepTime{Step: name, Events: len(times), P50: milliseconds(Quantile(times, 0.5)), P90: milliseconds(Quantile(times, 0.9)), Slowest: milliseconds(s.slowest[i])})
	}
	return list
}
