package conformance

import (
	"time"

	"github.com/isotone/isotone/internal/core/interval"
)

// noReading is the answer of a node that has no reading of the cluster clock.
var noReading = faultLine("CLUSTERDOWN no reading of the cluster clock is valid")

var clockNodes = []Scenario{
	{Name: "a-clock-that-is-made-during-an-election", Rules: rules("C66", "C72"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		s.lead(-1)
		k := c.clock()
		for _, n := range s.nodes {
			n.awaitGot("INTERVAL", 3)
		}
		s.lead(1)
		k.made.want("C72")
		k.stamp("C70", 1)
	}},
	{Name: "a-clock-of-a-member-that-was-not-given", Rules: rules("C67", "C45"), play: func(s *stage) {
		s.start(2)
		c := s.open(at(s.nodes[0]))
		c.timestamp("C45")
		s.nodes[0].say("INTERVAL", -1, noReading)
		k := c.clock()
		k.made.want("C67")
		k.stamp("C70", 1)
	}},
	{Name: "connections-of-a-clock-that-end", Rules: rules("C67", "C43"), play: func(s *stage) {
		k := s.reading("C67", 2, limits(500*time.Millisecond))
		for _, n := range s.nodes {
			n.hangUp("INTERVAL", 3)
		}
		k.wait("C67", s.later(100*time.Millisecond))
		for _, n := range s.nodes {
			n.restart()
		}
		k.wait("C67", s.later(100*time.Millisecond))
	}},
	lostSource("falls-silent", func(n *node) { n.hold("INTERVAL", -1) }),
	lostSource("freezes", func(n *node) { n.freeze() }),
	lostSource("ends", func(n *node) { n.stop() }),
	lostSource("hangs-up", func(n *node) { n.hangUp("INTERVAL", -1) }),
	lostSource("has-no-reading", func(n *node) { n.say("INTERVAL", -1, noReading) }),
	lostSource("refuses", func(n *node) { n.say("INTERVAL", -1, faultLine("ERR unknown command")) }),
	lostSource("has-readings-past-their-limit", func(n *node) {
		n.on("INTERVAL", -1, func(r *request) answer {
			return answer{bytes: n.s.other(r, r.nonce(), func(told *interval.Reading) { told.Limit = told.Latest - 1 })}
		})
	}),
	clockRefused("invalid_argument", "ERR unknown command"), clockRefused("forbidden", "NOPERM the role timestamps is missing"),
	{Name: "a-clock-that-one-node-refuses", Rules: rules("C67", "C72"), play: func(s *stage) {
		s.start(2)
		s.nodes[0].say("INTERVAL", -1, faultLine("ERR unknown command"))
		k := s.open().clock()
		k.made.want("C72")
		k.stamp("C70", 1)
	}},
	{Name: "refused-clocks-are-paced", Rules: rules("C72"), play: func(s *stage) {
		s.start(1)
		s.open().clock().made.want("C72")
		s.nodes[0].say("INTERVAL", -1, faultLine("ERR unknown command"))
		before := len(s.nodes[0].got("INTERVAL"))
		s.paced("C72", s.nodes[0].awaitGot("INTERVAL", before+11)[before:], 120*time.Millisecond)
	}},
	{Name: "questions-without-a-reading-are-paced", Rules: rules("C47", "C67"), play: func(s *stage) {
		k := s.reading("C67", 1, limits(200*time.Millisecond))
		s.nodes[0].say("INTERVAL", -1, noReading)
		k.fails("no_leader")
		waits := k.do("stamp", count(1))
		before := len(s.nodes[0].got("INTERVAL"))
		s.paced("C47", s.nodes[0].awaitGot("INTERVAL", before+40)[before:], 100*time.Millisecond)
		s.answering()
		waits.want("C67")
	}},
	{Name: "questions-of-a-clock-are-paced", Rules: rules("C68"), play: func(s *stage) {
		// Six pauses of 250 ms.
		k := s.reading("C68", 1, limits(time.Second))
		before := len(s.nodes[0].got("INTERVAL"))
		s.paced("C68", s.nodes[0].awaitGot("INTERVAL", before+7)[before:], 750*time.Millisecond)
		k.wait("C68", s.later(300*time.Millisecond))
	}},
	{Name: "a-nearer-node", Rules: rules("C74"), play: func(s *stage) {
		s.start(2)
		s.nodes[0].on("INTERVAL", -1, func(r *request) answer {
			s.mu.Lock()
			defer s.mu.Unlock()
			return answer{bytes: s.tell(r, s.clock(), func(told *interval.Reading) { told.Earliest -= 2_000_000_000; told.Latest += 2_000_000_000 })}
		})
		down := s.nodes[1].say("INTERVAL", -1, noReading)
		k := s.open().clock()
		k.made.want("C72")
		s.nodes[1].off(down)
		s.await("many questions to the nearer node in a row", func() bool { return s.asked(8) == s.nodes[1] })
	}},
}

// lostSource: the node that a clock usually asks is lost, so others are asked.
func lostSource(name string, lose func(*node)) Scenario {
	return Scenario{Name: "a-node-of-a-clock-" + name, Rules: rules("C67"), play: func(s *stage) {
		k := s.reading("C67", 3, limits(400*time.Millisecond))
		lose(s.usual())
		for range 2 {
			k.wait("C67", s.later(100*time.Millisecond))
		}
		k.stamp("C70", 1)
	}}
}

// clockRefused: all nodes refuse the client.
func clockRefused(code, line string) Scenario {
	return Scenario{Name: "a-clock-refused-" + slug(code), Rules: rules("C72"), play: func(s *stage) {
		s.start(2)
		for _, n := range s.nodes {
			n.say("INTERVAL", -1, faultLine(line))
		}
		c := s.open()
		c.clock().made.fails("C72", code)
		s.answering()
		s.change("limits are short", func() { s.clock().length = uint64(200 * time.Millisecond) })
		k := c.clock()
		k.made.want("C72")
		for _, n := range s.nodes {
			n.say("INTERVAL", -1, faultLine(line))
		}
		s.limitPasses()
		k.fails(code)
		k.do("stamp", count(1)).fails("C72", code)
		s.answering()
		k.works()
		k.stamp("C72", 1)
	}}
}

// answering has all nodes answer as they should again.
func (s *stage) answering() {
	s.change("all nodes answer", func() {
		for _, n := range s.nodes {
			n.rules = nil
		}
	})
}
