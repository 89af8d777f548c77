package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/core/interval"
)

var clockReadings = []Scenario{
	{Name: "a-question-that-is-slow", Rules: rules("C64"), play: func(s *stage) {
		// The node reads its clock when it answers: long after the client has asked.
		s.slow(func(r *request) answer {
			s.pause(30 * time.Millisecond)
			return s.proper(r)
		})
	}},
	{Name: "an-answer-that-is-slow", Rules: rules("C64"), play: func(s *stage) {
		// The node reads its clock when the question comes: long before the client has the answer.
		s.slow(func(r *request) answer {
			a := s.proper(r)
			s.pause(30 * time.Millisecond)
			return a
		})
	}},
	clockOfRate("fast", 800), clockOfRate("slow", -800),
	{Name: "answers-to-other-questions", Rules: rules("C63"), play: func(s *stage) {
		s.start(1)
		n := s.nodes[0]
		var late []byte
		n.on("INTERVAL", -1, func(r *request) answer {
			right, stray := s.proper(r).bytes, s.other(r, r.nonce()+1, anHour)
			s.mu.Lock()
			defer s.mu.Unlock()
			a := answer{bytes: slices.Concat(late, stray, right)}
			late = right
			return a
		})
		k := s.open().clock()
		k.made.want("C63")
		for i := range 3 {
			n.awaitGot("INTERVAL", 2*i+2)
			k.do("interval").want("C63")
		}
	}},
	{Name: "nothing-but-answers-to-other-questions", Rules: rules("C63", "C67"), play: func(s *stage) {
		s.leaves("C63", func(r *request) answer {
			var a answer
			for i := range uint64(100) {
				a.bytes = append(a.bytes, s.other(r, r.nonce()+1+i, anHour)...)
			}
			return a
		})
	}},
	{Name: "a-reading-of-another-cluster", Rules: rules("C65", "C14", "C15"), play: func(s *stage) {
		s.start(1)
		foreign := func(r *request) answer {
			return answer{bytes: s.other(r, r.nonce(), func(told *interval.Reading) { told.Cluster++; anHour(told) })}
		}
		rule := s.nodes[0].on("INTERVAL", -1, foreign)
		c := s.open()
		s.eventually("C15", "wrong_cluster", func() *call { return c.clock(within(short)).made })
		s.rejected("wrong_cluster")
		s.nodes[0].off(rule)
		s.change("limits are short", func() { s.clock().length = uint64(200 * time.Millisecond) })
		k := c.clock()
		k.made.want("C65")
		s.nodes[0].on("INTERVAL", -1, foreign)
		k.fails("no_leader")
	}},
	{Name: "a-clock-past-its-limit", Rules: rules("C66", "C71"), play: func(s *stage) {
		k := s.reading("C66", 2, limits(300*time.Millisecond))
		ts := k.stamp("C70", 1)
		k.wait("C71", ts)
		k.leaderless()
		s.check(k.do("past", of(ts)).want("C66").Past, "C66", "%v was past, and is not any more", ts)
		k.wait("C66", ts)
		calls := []*call{k.do("stamp", count(1)), k.do("wait", of(s.later(time.Millisecond)))}
		s.lead(1)
		wantAll("C66", calls...)
	}},
	{Name: "readings-past-their-limit", Rules: rules("C66", "C72"), play: func(s *stage) {
		s.start(1)
		past := s.nodes[0].on("INTERVAL", -1, func(r *request) answer {
			return answer{bytes: s.other(r, r.nonce(), func(told *interval.Reading) { told.Limit = told.Latest - 1 })}
		})
		c := s.open()
		c.clock(within(short)).made.fails("C66", "deadline_exceeded")
		k := c.clock()
		s.nodes[0].off(past)
		k.made.want("C72")
	}},
	{Name: "a-later-term", Rules: rules("C64"), play: func(s *stage) { s.laterTerm(time.Hour) }},
	// Readings of the earlier term contradict nothing here: a client that counts them goes on beyond the limit of the later term.
	{Name: "an-earlier-term", Rules: rules("C64"), play: func(s *stage) { s.laterTerm(0) }},
	{Name: "readings-that-contradict-each-other", Rules: rules("C69"), play: func(s *stage) { s.contradict() }},
	badBytes("of-three-bytes", "$3\r\nabc\r\n"), badBytes("that-is-null", "$-1\r\n"), badBytes("that-is-a-number", ":5\r\n"), badBytes("that-is-ok", "+OK\r\n"),
	badBytes("that-is-an-array", "*1\r\n:5\r\n"), badBytes("of-49-bytes", "$49\r\n"+strings.Repeat("x", 49)+"\r\n"), badBytes("that-is-huge", "$999999999\r\n"),
	badNumbers("without-a-term", func(r *interval.Reading) { r.Term = 0 }),
	badNumbers("without-a-cluster", func(r *interval.Reading) { r.Cluster = 0 }),
	badNumbers("that-is-upside-down", func(r *interval.Reading) { r.Earliest = r.Latest + 1 }),
	badNumbers("of-64-bits", func(r *interval.Reading) { r.Latest |= 1 << 63 }),
	badNumbers("with-a-limit-of-64-bits", func(r *interval.Reading) { r.Limit |= 1 << 63 }),
}

// slow plays a node that answers slowly to a clock, and reads that a few times.
func (s *stage) slow(act func(*request) answer) {
	s.start(1)
	s.nodes[0].on("INTERVAL", -1, act)
	k := s.open().clock()
	k.made.want("C64")
	for i := range 3 {
		k.do("interval").want("C64")
		k.wait("C71", k.stamp("C70", 1))
		s.nodes[0].awaitGot("INTERVAL", i+2)
	}
}

// clockOfRate: the cluster clock has the largest error of its rate, and no node answers for a while.
func clockOfRate(name string, millionths int64) Scenario {
	return Scenario{Name: "a-cluster-clock-that-is-" + name, Rules: rules("C64"), play: func(s *stage) {
		k := s.reading("C64", 1, fast(millionths))
		s.lead(-1)
		for began := time.Now(); time.Since(began) < 1500*time.Millisecond; s.breathe() {
			k.do("interval").want("C66")
		}
		k.wait("C71", k.stamp("C70", 1))
	}}
}

// laterTerm begins a term whose clock is ahead of that of the one before, while a node tells readings of that one.
func (s *stage) laterTerm(ahead time.Duration) {
	k := s.reading("C64", 2, limits(time.Second))
	k.stamp("C70", 1)
	former := s.clock()
	s.nodes[0].on("INTERVAL", -1, func(r *request) answer {
		s.mu.Lock()
		defer s.mu.Unlock()
		return answer{bytes: s.tell(r, former)}
	})
	s.nextTerm(ahead)
	s.lead(1)
	s.nodes[0].stop() // so that the client asks the other one
	k.until("the later term", func(r Reply) bool { return r.OK != nil && r.OK.Term == "8" })
	s.nodes[0].start()
	k.stamp("C70", 1)
	s.nodes[1].stop() // so that it asks the first one, which has nothing but the earlier term
	k.fails("no_leader")
	s.nodes[1].start()
	k.works()
}

// contradict has the cluster clock jump, and waits until it is believed again.
func (s *stage) contradict() {
	k := s.reading("C69", 1, limits(400*time.Millisecond))
	ts := k.stamp("C70", 1)
	k.wait("C71", ts)
	jumped := time.Now()
	s.change("the cluster clock jumps", func() { s.wrong, s.clock().shown = true, s.clock().shown+uint64(time.Hour) })
	k.fails("clock")
	k.do("stamp", count(1), within(short)).fails("C69", "clock")
	s.check(!k.do("past", of(ts)).want("C69").Past, "C69", "a timestamp is past though no clock is believed")
	waits := k.do("stamp", count(1))
	for ; time.Since(jumped) < 10*time.Second; s.breathe() {
		k.do("interval", within(short)).fails("C69", "clock")
	}
	k.works()
	waits.want("C69")
}

// leaves plays a node whose answer ends the connection, and another one, which the client has to ask instead.
func (s *stage) leaves(rule string, act func(*request) answer) {
	s.start(2)
	s.nodes[0].on("INTERVAL", -1, act)
	down := s.nodes[1].say("INTERVAL", -1, noReading)
	k := s.open().clock()
	asked := s.nodes[0].awaitGot("INTERVAL", 1)[0]
	s.nodes[0].awaitClosed("the end of a connection with an answer that is none", asked.conn)
	s.nodes[1].off(down)
	k.made.want(rule)
	k.do("interval").want(rule)
}

// badReading: what is no reading ends the connection.
func badReading(name string, wire func(*stage, *request) []byte) Scenario {
	return Scenario{Name: "a-reading-" + name, Rules: rules("C63", "C29"), play: func(s *stage) {
		s.leaves("C63", func(r *request) answer { return answer{bytes: wire(s, r)} })
	}}
}

// badBytes is badReading with the same bytes always.
func badBytes(name, wire string) Scenario {
	return badReading(name, func(*stage, *request) []byte { return []byte(wire) })
}

// badNumbers is badReading with a reading that is changed so.
func badNumbers(name string, change func(*interval.Reading)) Scenario {
	return badReading(name, func(s *stage, r *request) []byte { return s.other(r, r.nonce(), change) })
}
