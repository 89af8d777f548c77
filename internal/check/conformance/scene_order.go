package conformance

import (
	"github.com/isotone/isotone"
)

var orders = []Scenario{
	floorCarried("timestamp", ""), floorCarried("timestamps", ""), floorCarried("timestamp64", ""), floorCarried("timestamps64", ""),
	floorCarried("timestamp", "lease"), floorCarried("timestamps", "quorum"),
	{Name: "floor-until-an-answer", Rules: rules("C19"), play: func(s *stage) {
		// The judge looks at the floor of each request: a refusal is no answer.
		c := s.serving("C19", 1, connections(1))
		s.nodes[0].say("TS", 3, faultLine("TRYAGAIN later"))
		s.nodes[0].restart()
		c.timestamp("C19")
	}},
	{Name: "floor-of-a-range-is-its-last", Rules: rules("C17", "C19"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		c.get("C17", "timestamps", 1_000_000)
		s.nodes[0].restart()
		c.timestamp("C19")
	}},
	{Name: "floor-at-another-leader", Rules: rules("C17", "C19"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		before := c.timestamp("C19")
		s.setBack(true)
		s.nodes[1].restart()
		s.lead(1)
		after := c.timestamp("C19")
		s.check(before.Before(after), "C18", "%v after %v", after, before)
	}},
	{Name: "floor-over-both-forms", Rules: rules("C17"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		for range 4 {
			c.get("C17", "timestamps64", 262144)
			c.get("C17", "timestamps", 7)
		}
		s.nodes[0].restart()
		c.timestamp("C19")
	}},
	setBack("timestamp"), setBack("timestamps"), setBack("timestamp64"), setBack("timestamps64"),
	{Name: "an-answer-equal-to-the-floor", Rules: rules("C18"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		got := c.timestamp("C18")
		s.nodes[0].on("TS", 1, func(r *request) answer { return answer{bytes: stamp(got)} })
		c.begin("timestamp", 0).fails("C18", "internal")
		c.timestamp("C18")
	}},
	{Name: "an-answer-out-of-order-ends-the-connection", Rules: rules("C18"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		got := c.timestamp("C18")
		liar := s.nodes[0].on("TS", 1, func(r *request) answer { return answer{bytes: stamp(isotone.Timestamp{Time: got.Time - 1})} })
		c.begin("timestamp", 0).fails("C18", "internal")
		s.nodes[0].off(liar)
		list := s.nodes[0].got("TS")
		s.nodes[0].awaitClosed("the end of the connection", list[len(list)-1].conn)
		s.rejected("internal")
		c.timestamp("C18")
	}},
	{Name: "an-answer-below-what-came-meanwhile", Rules: rules("C18"), Needs: needs(featConnections), play: func(s *stage) {
		// Two requests are under way. The one that was issued first is answered last: it is right, as it was above the floor
		// from when it was sent.
		c := s.serving("C18", 1, connections(2))
		opens := make(chan struct{})
		late := s.nodes[0].on("TS", 1, func(r *request) answer {
			a := s.proper(r)
			s.change("an answer is late", func() {})
			select {
			case <-opens:
			case <-s.ctx.Done():
			}
			return a
		})
		before := len(s.nodes[0].got("TS"))
		first := c.begin("timestamps", 2)
		s.nodes[0].awaitGot("TS", before+1)
		c.get("C18", "timestamps", 2)
		s.nodes[0].off(late)
		close(opens)
		first.want("C18")
	}},
	{Name: "floor-of-the-options", Rules: rules("C20", "C19"), play: func(s *stage) {
		s.start(1)
		floor := isotone.Timestamp{Time: s.last.Time + 5_000_000_000, Index: 3}
		c := s.open(func(o *Options) { o.Floor = floor.String() })
		got := c.timestamp("C20")
		s.check(floor.Before(got), "C20", "%v, not above the floor %v", got, floor)
	}},
	{Name: "an-answer-below-the-floor-of-the-options", Rules: rules("C20", "C18"), play: func(s *stage) {
		s.start(1)
		s.floors = false
		c := s.open(func(o *Options) { o.Floor = isotone.Timestamp{Time: s.last.Time + 5_000_000_000}.String() })
		c.begin("timestamp", 0).fails("C20", "internal")
	}},
	{Name: "floor-of-a-call", Rules: rules("C21", "C22"), Needs: needs(featAbove), play: func(s *stage) {
		s.start(1)
		c := s.open()
		got := c.timestamp("C21")
		floor := isotone.Timestamp{Time: got.Time + 1000, Index: 5}
		for _, method := range stampForms {
			r := c.get("C21", method, counted(method, 3), above(floor))
			s.check(s.nodes[0].carried(floor), "C21", "no request of the call carries %v: %v", floor, r)
			floor.Time += 1_000_000
		}
	}},
	{Name: "floor-of-a-call-below-that-of-the-client", Rules: rules("C21", "C18"), Needs: needs(featAbove), play: func(s *stage) {
		s.start(1)
		c := s.open()
		low := isotone.Timestamp{Time: 5}
		c.timestamp("C21")
		c.get("C21", "timestamp", 0, above(low))
		s.check(!s.nodes[0].carried(low), "C21", "a request carries the lower floor")
		s.nodes[0].restart()
		c.get("C21", "timestamps", 2, above(low))
	}},
	{Name: "an-answer-that-is-not-above-the-floor-of-a-call", Rules: rules("C21"), Needs: needs(featAbove), play: func(s *stage) {
		s.start(1)
		s.floors = false
		c := s.open()
		got := c.timestamp("C21")
		c.begin("timestamp", 0, above(isotone.Timestamp{Time: got.Time + 1000})).fails("C21", "regressed")
		c.timestamp("C21")
	}},
	{Name: "no-call-shares-the-request-of-a-floor", Rules: rules("C21"), Needs: needs(featAbove), play: func(s *stage) {
		s.start(1)
		c := s.open()
		first := c.timestamp("C21")
		gate := s.nodes[0].hold("TS", -1)
		held := []*call{c.begin("timestamp", 0)}
		gate.await(1)
		floor := isotone.Timestamp{Time: first.Time + 1000}
		for range 3 {
			held = append(held, c.begin("timestamps", 2), c.begin("timestamps", 2, above(floor)))
		}
		s.sync()
		gate.open()
		wantAll("C21", held...)
		for _, r := range s.nodes[0].got("TS") {
			if carried, _ := r.floor(); carried == floor {
				s.check(r.count() == 2, "C21", "%s is shared, though each call has a floor of its own", r)
			}
		}
	}},
	{Name: "a-floor-that-is-refused", Rules: rules("C21", "C38"), Needs: needs(featAbove), play: func(s *stage) {
		s.start(1)
		c := s.open()
		got := c.timestamp("C21")
		before := len(s.nodes[0].got("TS"))
		refuse := s.nodes[0].say("TS", -1, faultLine("REGRESSED the floor is far ahead of the clock"))
		c.begin("timestamp", 0, above(isotone.Timestamp{Time: got.Time * 2})).fails("C38", "regressed")
		s.check(len(s.nodes[0].got("TS")) == before+1, "C38", "the request was repeated")
		s.nodes[0].off(refuse)
		c.timestamp("C38")
	}},
}

// carried reports whether any request for timestamps carried that floor.
func (n *node) carried(floor isotone.Timestamp) bool {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	for _, r := range n.s.requests {
		if got, ok := r.floor(); ok && got == floor && r.conn.node == n && r.stamps() {
			return true
		}
	}
	return false
}

// setBack sets the cluster back to an older copy. If it keeps floors, it moves beyond what its clients have.
func (s *stage) setBack(keeps bool) {
	s.change("the cluster is set back", func() {
		s.floors = keeps
		s.last = isotone.Timestamp{Time: s.last.Time - 1_000_000_000, Index: 7}
	})
}

// floorCarried: a client that reconnects to a cluster that was set back gets larger timestamps all the same.
func floorCarried(method, readMode string) Scenario {
	name := "floor-on-new-connections-" + method
	if readMode != "" {
		name += "-" + readMode
	}
	return Scenario{Name: name, Rules: rules("C19", "C17"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		for range 3 {
			for range 5 {
				c.get("C19", method, counted(method, 3), mode(readMode))
			}
			s.setBack(true)
			s.nodes[0].restart()
		}
		c.get("C19", method, counted(method, 3), mode(readMode))
	}}
}

// setBack: a cluster that was set back and keeps no floors. The client must not use its answers.
func setBack(method string) Scenario {
	return Scenario{Name: "an-answer-out-of-order-" + method, Rules: rules("C18"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		c.get("C18", method, counted(method, 3))
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		s.setBack(false)
		c.begin(method, counted(method, 3)).fails("C18", "internal")
		s.rejected("internal")
		s.change("the cluster is right again", func() { s.last = last })
		c.get("C18", method, counted(method, 3))
	}}
}
