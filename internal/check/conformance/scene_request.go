package conformance

import (
	"cmp"
	"fmt"
	"strings"
)

// idMax is the largest number of 63 bits.
const idMax = 1<<63 - 1

var requests = []Scenario{
	badCount("timestamps", 0), badCount("timestamps", 1<<32+1), badCount("timestamps64", 0), badCount("timestamps64", 1<<18+1), badCount("ids", 0), badCount("ids", 1<<16+1),
	goodCount("timestamps", 1), goodCount("timestamps", 1<<32), goodCount("timestamps64", 1), goodCount("timestamps", 1<<18), goodCount("timestamps64", 1<<18), goodCount("ids", 1), goodCount("ids", 4096),
	goodCount("ids", 4097), goodCount("ids", 1<<16),
	{Name: "one-after-the-other", Rules: rules("C17", "C24", "C3"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		for range 10 {
			for _, method := range stampForms {
				c.get("C24", method, counted(method, 5))
			}
			c.get("C24", "id", 0)
		}
	}},
	neverJoins("timestamp", ""), neverJoins("timestamps", ""), neverJoins("timestamp64", ""), neverJoins("timestamp", "lease"), neverJoins("timestamps", "quorum"), neverJoins("id", ""), neverJoins("ids", ""),
	sharedRequests("calls-share-requests", "timestamp", "timestamps"), sharedRequests("calls-for-ids-share-requests", "id", "ids"),
	readModes("timestamp"), readModes("timestamps"), readModes("timestamp64"), readModes("timestamps64"),
	{Name: "the-read-mode-of-the-options", Rules: rules("C27"), play: func(s *stage) {
		c := s.serving("C27", 1, func(o *Options) { o.Mode = "lease" })
		c.get("C27", "timestamps64", 2)
		c.get("C27", "timestamps", 2, mode("quorum"))
		s.check(s.nodes[0].modes() == "LEASE LEASE QUORUM", "C27", "the modes are %s", s.nodes[0].modes())
	}},
	{Name: "calls-of-different-modes-share-nothing", Rules: rules("C26", "C27"), play: func(s *stage) {
		c := s.serving("C27", 1, connections(1))
		c.behind("C27", "timestamp", "", func() (calls []*call) { // the judge sees from which requests calls are answered
			for range 10 {
				calls = append(calls, c.begin("timestamps", 1000), c.begin("timestamps", 10, mode("lease")), c.begin("timestamps", 1, mode("quorum")))
			}
			return calls
		})
	}},
	answerAfter("an-answer-after-a-call-was-canceled", "timestamps", rules("C32", "C49", "C25")),
	answerAfter("an-answer-after-a-deadline", "timestamps", rules("C32", "C25"), within(short)),
	answerAfter("an-answer-for-ids-after-a-call-was-canceled", "ids", rules("C32", "C49")),
	twoAnswers("timestamp"), twoAnswers("timestamps"), twoAnswers("timestamp64"), twoAnswers("id"),
	endless("a-line-without-end", "TS", 1, "-", "x"), endless("a-list-without-end", "CLUSTER SLOTS", 3, "*1\r\n", "*1\r\n"),
	{Name: "ids-of-63-bits", Rules: rules("C31"), play: func(s *stage) {
		s.start(1)
		s.nextID = idMax - 4095 // an answer that is late may be asked for again
		c := s.open()
		for range 4 {
			c.get("C31", "id", 0)
		}
		c.get("C31", "ids", 8)
	}},
	{Name: "timestamps-with-large-fields", Rules: rules("C31"), play: func(s *stage) {
		s.start(1)
		s.last.Time, s.last.Index = 1<<63+12345, 1<<63
		c := s.open()
		c.timestamp("C31")
		c.get("C31", "timestamps", 1<<32)
		c.get("C31", "timestamp64", 0)
	}},
}

// modeOf returns the read mode that a request names.
func modeOf(r *request) string {
	for _, m := range []string{"QUORUM", "LEASE"} {
		if r.has(m) {
			return m
		}
	}
	return ""
}

// modes returns those of all requests for timestamps.
func (n *node) modes() string {
	var list []string
	for _, r := range n.got("") {
		if r.stamps() {
			list = append(list, cmp.Or(modeOf(r), "-"))
		}
	}
	return strings.Join(list, " ")
}

func badCount(method string, count uint64) Scenario {
	return Scenario{Name: fmt.Sprintf("wrong-count-%s-%d", method, count), Rules: rules("C23"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		cmd := Command{Do: "call", Client: c.name, Method: method, Count: &count, DeadlineMS: callDeadline.Milliseconds()}
		s.begin(cmd).fails("C23", "invalid_argument")
		for _, name := range []string{"TS", "TS64", "SNOWFLAKE"} {
			s.check(len(s.nodes[0].got(name)) == 0, "C23", "a request was sent")
		}
		c.timestamp("C23")
	}}
}

func goodCount(method string, count uint64) Scenario {
	return Scenario{Name: fmt.Sprintf("count-%s-%d", method, count), Rules: rules("C23", "C24"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		c.get("C24", method, count)
		c.get("C24", method, count)
	}}
}

// commandOf returns the command that a method sends.
func commandOf(method string) string {
	switch {
	case method == "id" || method == "ids":
		return "SNOWFLAKE"
	case strings.Contains(method, "64"):
		return "TS64"
	}
	return "TS"
}

// behind begins a call, and others while its request is under way. Then all are answered.
func (c *client) behind(rule, method, readMode string, others func() []*call) {
	gate := c.s.nodes[0].hold(commandOf(method), -1)
	held := []*call{c.begin(method, counted(method, 3), mode(readMode))}
	gate.await(1)
	held = append(held, others()...)
	c.s.sync()
	gate.open()
	wantAll(rule, held...)
}

func sharedRequests(name, one, many string) Scenario {
	return Scenario{Name: name, Rules: rules("C26", "C24", "C25"), play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		c.get("C24", one, 0)
		c.behind("C24", one, "", func() (calls []*call) {
			for i := range 60 {
				calls = append(calls, c.begin(many, uint64(1+i%7)))
			}
			return calls
		})
		n := len(s.nodes[0].got(commandOf(one)))
		s.check(n < 50, "C26", "%d requests for 62 calls, 60 of which waited at the same time", n)
	}}
}

// neverJoins: a request is under way when another call begins. The judge sees if that got a number of it.
func neverJoins(method, readMode string) Scenario {
	name := "no-call-joins-a-request-under-way-" + method
	if readMode != "" {
		name += "-" + readMode
	}
	return Scenario{Name: name, Rules: rules("C25"), play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		c.get("C25", method, counted(method, 3), mode(readMode))
		c.behind("C25", method, readMode, func() (calls []*call) {
			for range 8 {
				calls = append(calls, c.begin(method, counted(method, 3), mode(readMode)))
			}
			return calls
		})
	}}
}

// answerAfter: an answer comes when its only call has left: it has a deadline, or it is canceled.
func answerAfter(name, method string, checks []string, deadline ...arg) Scenario {
	return Scenario{Name: name, Rules: checks, play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		c.get("C32", method, 1)
		gate := s.nodes[0].hold(commandOf(method), -1)
		gone := c.begin(method, 5, deadline...)
		gate.await(1)
		if deadline == nil {
			gone.cancel()
			gone.fails("C49", "canceled")
		} else {
			gone.fails("C48", "deadline_exceeded")
		}
		next := c.begin(method, 7)
		s.sync()
		gate.open()
		next.want("C32")
	}}
}

// endless: a node begins answers that do not end.
func endless(name, command string, times int, head, piece string) Scenario {
	return Scenario{Name: name, Rules: rules("C29"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		s.nodes[0].on(command, times, func(r *request) answer {
			block := []byte(strings.Repeat(piece, 64<<10/len(piece)))
			_, err := r.conn.Write([]byte(head))
			for sent := 0; err == nil; sent += len(block) {
				if sent > 64<<20 {
					s.blame("C29", "the client has read %d bytes of one answer", sent)
					break
				}
				_, err = r.conn.Write(block)
			}
			return answer{end: true}
		})
		if command != "TS" {
			s.nodes[0].say("TS", times, faultLine("TRYAGAIN later")) // it has the client ask for the leader
		}
		c.timestamp("C29")
	}}
}

func readModes(method string) Scenario {
	return Scenario{Name: "read-modes-" + method, Rules: rules("C27"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		for _, m := range []string{"", "quorum", "lease", ""} {
			c.get("C27", method, counted(method, 2), mode(m))
		}
		s.check(s.nodes[0].modes() == "- QUORUM LEASE -", "C27", "the modes are %s", s.nodes[0].modes())
	}}
}

// twoAnswers: a node answers twice. The second answer must not be taken for that of the next request.
func twoAnswers(method string) Scenario {
	return Scenario{Name: "two-answers-to-one-request-" + method, Rules: rules("C28"), play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		c.get("C28", method, counted(method, 2))
		for range 6 {
			s.nodes[0].on(commandOf(method), 1, func(r *request) answer {
				first, second := s.proper(r), s.proper(r)
				s.mu.Lock()
				second.issued.void = "C28" // a client may use the first one, or may not
				s.mu.Unlock()
				first.bytes = append(first.bytes, second.bytes...)
				return first
			})
			for range 3 {
				c.get("C28", method, counted(method, 2))
			}
		}
	}}
}
