package conformance

import (
	"fmt"
	"sync"
	"time"
)

var leaders = []Scenario{
	movedFollowed("timestamp"), movedFollowed("timestamps"), movedFollowed("timestamp64"),
	{Name: "moved-to-a-node-that-was-not-known", Rules: rules("C42", "C45"), play: func(s *stage) {
		s.start(1)
		c := s.open(at(s.nodes[0]))
		c.timestamp("C42")
		s.add().start()
		s.lead(1)
		c.timestamp("C42")
	}},
	{Name: "moved-three-times", Rules: rules("C42"), play: func(s *stage) {
		c := s.serving("C42", 4)
		for i := range 3 {
			s.nodes[i].say("TS", -1, faultLine("MOVED 0 "+s.nodes[i+1].addr))
		}
		s.lead(3)
		c.timestamp("C42")
	}},
	{Name: "nodes-that-redirect-to-each-other", Rules: rules("C42", "C47"), play: func(s *stage) {
		c := s.serving("C42", 2, connections(1))
		loop := []*rule{
			s.nodes[0].say("TS", -1, faultLine("MOVED 0 "+s.nodes[1].addr)),
			s.nodes[1].say("TS", -1, faultLine("MOVED 0 "+s.nodes[0].addr)),
		}
		call := c.begin("timestamp", 0)
		// Pauses grow to 50 ms at the least, so there are some 70 redirects in 3 s, half of them to this node.
		s.nodes[1].awaitGot("TS", 1)
		s.quiet(3 * time.Second)
		const most = 45
		n := len(s.nodes[1].got("TS"))
		s.check(n <= most, "C42", "%d redirects to one of two nodes in 3 s, want %d at most", n, most)
		s.nodes[0].off(loop[0])
		s.nodes[1].off(loop[1])
		call.want("C42")
	}},
	{Name: "a-node-that-redirects-to-itself", Rules: rules("C42", "C47"), play: func(s *stage) {
		c := s.serving("C42", 1, connections(1))
		self := s.nodes[0].say("TS", -1, faultLine("MOVED 0 "+s.nodes[0].addr))
		call := c.begin("timestamp", 0)
		s.paced("C47", s.nodes[0].awaitGot("TS", 24), 150*time.Millisecond)
		s.nodes[0].off(self)
		call.want("C42")
	}},
	{Name: "moved-to-a-dead-node", Rules: rules("C42", "C43"), play: func(s *stage) {
		c := s.serving("C42", 3)
		s.nodes[1].stop()
		s.nodes[0].say("TS", -1, faultLine("MOVED 0 "+s.nodes[1].addr))
		s.lead(2)
		c.timestamp("C43")
	}},
	{Name: "an-election", Rules: rules("C34", "C40"), play: func(s *stage) {
		c := s.serving("C34", 3)
		s.lead(-1)
		calls := []*call{c.begin("timestamp", 0), c.begin("timestamps", 5), c.begin("timestamp64", 0)}
		for _, n := range s.nodes {
			n.awaitGot("CLUSTER SLOTS", 4)
		}
		s.lead(2)
		wantAll("C40", calls...)
	}},
	{Name: "a-leader-that-dies", Rules: rules("C43", "C40"), play: func(s *stage) {
		c := s.serving("C43", 3)
		s.lead(1)
		s.nodes[0].stop()
		c.timestamp("C43")
		s.lead(2)
		s.nodes[1].stop()
		c.timestamp("C43")
	}},
	{Name: "a-leader-that-dies-with-requests-under-way", Rules: rules("C43", "C30"), play: func(s *stage) {
		c := s.serving("C43", 3)
		gate := s.nodes[0].hold("TS", -1)
		calls := []*call{c.begin("timestamp", 0), c.begin("timestamps", 5), c.begin("timestamps", 7, mode("lease"))}
		gate.await(1)
		s.lead(1)
		s.nodes[0].stop()
		wantAll("C30", calls...)
	}},
	{Name: "a-leader-that-dies-after-half-an-answer", Rules: rules("C30", "C43"), play: func(s *stage) {
		c := s.serving("C30", 2)
		s.nodes[0].spoil("C30", "TS", 1, func(a answer) answer {
			s.lead(1)
			return answer{bytes: a.bytes[:12], end: true}
		})
		c.timestamp("C30")
		c.get("C30", "timestamps", 5)
	}},
	{Name: "all-nodes-die-and-come-back", Rules: rules("C43", "C40"), play: func(s *stage) {
		c := s.serving("C43", 3)
		for _, n := range s.nodes {
			n.stop()
		}
		c.begin("timestamp", 0, within(short)).fails("C48", "deadline_exceeded")
		s.nodes[2].start()
		s.lead(2)
		c.timestamp("C43")
	}},
	{Name: "a-silent-leader", Rules: rules("C44", "C41"), play: func(s *stage) {
		c := s.serving("C44", 3)
		gate := s.nodes[0].freeze()
		call := c.begin("timestamp", 0)
		gate.await(1)
		s.lead(1)
		call.want("C44")
		c.timestamp("C44")
		gate.open()
	}},
	{Name: "a-silent-leader-that-answers-after-all", Rules: rules("C44"), play: func(s *stage) {
		// No other node leads. The client searches, and goes on listening: the answer is good.
		c := s.serving("C44", 2, connections(1))
		gate := s.nodes[0].hold("TS", 1)
		down := s.nodes[1].say("CLUSTER SLOTS", -1, faultLine("CLUSTERDOWN no leader is known"))
		before := len(s.nodes[1].got("CLUSTER SLOTS"))
		call := c.begin("timestamps", 3)
		gate.await(1)
		s.nodes[1].awaitGot("CLUSTER SLOTS", before+1)
		gate.open()
		call.want("C44")
		s.nodes[1].off(down)
	}},
	{Name: "followers-that-have-not-noticed-a-death", Rules: rules("C41"), play: func(s *stage) {
		c := s.serving("C41", 3)
		stale := s.nodes[1].say("CLUSTER SLOTS", -1, slots(s.nodes[0].addr, s.nodes[1].addr, s.nodes[2].addr))
		s.nodes[0].stop()
		s.lead(2)
		c.timestamp("C41")
		s.nodes[1].off(stale)
	}},
	{Name: "a-node-that-only-claims-to-lead", Rules: rules("C41", "C34"), play: func(s *stage) {
		s.start(3)
		s.lead(2)
		claim := s.nodes[0].say("CLUSTER SLOTS", -1, slots(s.nodes[0].addr, s.nodes[1].addr, s.nodes[2].addr))
		s.nodes[0].say("TS", -1, faultLine("CLUSTERDOWN no leader is known"))
		c, made := s.make(callDeadline)
		made.want("C41")
		call := c.begin("timestamp", 0)
		s.nodes[0].awaitGot("CLUSTER SLOTS", 1)
		s.nodes[0].off(claim)
		call.want("C41")
	}},
	{Name: "members-are-learned", Rules: rules("C45"), play: func(s *stage) {
		s.start(3)
		c := s.open(at(s.nodes[0]))
		c.timestamp("C45")
		s.nodes[0].stop()
		s.lead(2)
		c.timestamp("C45")
	}},
	{Name: "given-addresses-are-not-forgotten", Rules: rules("C45"), play: func(s *stage) {
		s.start(3)
		s.change("node 2 is no member", func() { s.members = []int{0, 1} })
		c := s.open()
		c.timestamp("C45")
		s.nodes[0].stop()
		s.nodes[1].stop()
		s.change("node 2 is a member, and leads", func() { s.members, s.leader = []int{2}, 2 })
		c.timestamp("C45")
	}},
	{Name: "members-are-asked-for-again", Rules: rules("C46", "C45"), play: func(s *stage) {
		// All other members are replaced while the client has calls. It has to learn the new ones before the leader dies.
		s.start(3)
		c := s.open(at(s.nodes[0]))
		c.timestamp("C46")
		for range 2 {
			s.add().start()
		}
		s.change("the other members are replaced", func() { s.members = []int{0, 3, 4} })
		s.nodes[1].stop()
		s.nodes[2].stop()
		before := len(s.nodes[0].got("CLUSTER SLOTS"))
		for began := time.Now(); len(s.nodes[0].got("CLUSTER SLOTS")) == before; {
			if time.Since(began) > s.patience+10*time.Second {
				panic(broken{"the leader was not asked for the members again"})
			}
			c.timestamp("C46")
			s.breathe()
		}
		c.timestamp("C46")
		s.lead(3)
		s.nodes[0].stop()
		c.timestamp("C46")
	}},
	{Name: "a-member-that-hangs-delays-nothing", Rules: rules("C40"), play: func(s *stage) {
		c := s.serving("C40", 3)
		s.nodes[1].freeze()
		s.lead(2)
		s.nodes[0].stop()
		c.timestamp("C40")
	}},
	{Name: "questions-are-paced", Rules: rules("C40", "C47"), play: func(s *stage) {
		c := s.serving("C40", 2)
		s.lead(-1)
		call := c.begin("timestamp", 0)
		before := len(s.nodes[1].got("CLUSTER SLOTS"))
		// After the first second each pause has at least 50 ms. A client may ask for other reasons, too.
		eager := s.nodes[1].awaitGot("CLUSTER SLOTS", before+1)[before].at.Add(1100 * time.Millisecond)
		const times = 20
		var late []*request
		s.await("more questions", func() bool {
			late = nil
			for _, r := range s.nodes[1].gotLocked("CLUSTER SLOTS")[before:] {
				if r.at.After(eager) {
					late = append(late, r)
				}
			}
			return len(late) >= times
		})
		s.paced("C40", late[:times], 800*time.Millisecond)
		s.lead(0)
		call.want("C40")
	}},
	{Name: "requests-are-paced", Rules: rules("C47", "C34"), Needs: needs(featConnections), play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		n := s.nodes[0]
		busy := n.say("TS", -1, faultLine("TRYAGAIN too many requests are waiting"))
		call := c.begin("timestamp", 0)
		s.paced("C47", n.awaitGot("TS", 30), 250*time.Millisecond)
		n.off(busy)
		call.want("C34")
	}},
	{Name: "an-idle-client-sends-nothing", Rules: rules("C46"), play: func(s *stage) {
		// A first quiet moment may end what a client begins beside its calls. After that nothing may come for longer than C46 says.
		c := s.serving("C46", 2)
		c.get("C46", "id", 0)
		s.quiet(2 * time.Second)
		s.change("the client is idle", func() { s.still = true })
		s.quiet(10 * time.Second)
		s.change("the client has calls again", func() { s.still = false })
		c.timestamp("C46")
	}},
	{Name: "a-node-without-a-host", Rules: rules("C40"), play: func(s *stage) {
		s.start(1)
		n := s.nodes[0]
		port := n.addr[len("127.0.0.1:"):]
		n.say("CLUSTER SLOTS", -1, fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:%s\r\n$1\r\nx\r\n", port))
		s.open().timestamp("C40")
	}},
	{Name: "a-leader-that-drains", Rules: rules("C42", "C43"), play: func(s *stage) {
		// It answers what it has, redirects what comes later, and ends all connections.
		s.start(3)
		c := s.open()
		gate := s.nodes[0].hold("TS", 1)
		held := c.begin("timestamp", 0)
		gate.await(1)
		gate.open()
		held.want("C42")
		s.lead(1)
		c.timestamp("C42")
		s.nodes[0].stop()
		for range 5 {
			c.timestamp("C43")
			c.get("C53", "id", 0)
		}
	}},
	{Name: "leaders-in-turn", Rules: rules("C42", "C17", "C19"), play: func(s *stage) {
		s.start(3)
		c := s.open()
		for i := range 9 {
			s.lead(i % 3)
			c.timestamp("C42")
			c.get("C42", "timestamps", 3)
			if i%2 == 1 {
				s.nodes[(i+1)%3].restart()
			}
		}
	}},
}

// movedFollowed: after a redirect this and later requests go to the new leader.
func movedFollowed(method string) Scenario {
	return Scenario{Name: "moved-is-followed-" + method, Rules: rules("C42", "C33"), play: func(s *stage) {
		s.start(3)
		c := s.open()
		c.get("C42", method, counted(method, 2))
		for _, n := range s.nodes {
			n.hold("CLUSTER SLOTS", -1) // the redirect says enough
		}
		s.lead(2)
		c.get("C42", method, counted(method, 2))
		before := len(s.nodes[0].got(""))
		for range 5 {
			c.get("C42", method, counted(method, 2))
		}
		for _, r := range s.nodes[0].got("")[before:] {
			s.check(!r.stamps(), "C42", "a node that has redirected the client got %s", r)
		}
	}}
}

// breathe lets some time pass, in which nothing is judged.
func (s *stage) breathe() { s.quiet(20 * time.Millisecond) }

// quiet waits.
func (s *stage) quiet(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		panic(broken{"interrupted"})
	}
}

var deadlines = []Scenario{
	missed("timestamp"), missed("timestamps"), missed("timestamp64"), missed("id"), missed("ids"),
	{Name: "a-deadline-over-many-attempts", Rules: rules("C48", "C34"), play: func(s *stage) {
		c := s.serving("C48", 2)
		s.lead(-1)
		c.begin("timestamp", 0, within(short)).fails("C48", "deadline_exceeded", "no_leader")
	}},
	{Name: "a-deadline-over-many-refusals", Rules: rules("C48", "C34"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		s.nodes[0].say("TS", -1, faultLine("TRYAGAIN too many requests are waiting"))
		c.begin("timestamps", 2, within(short)).fails("C48", "deadline_exceeded")
	}},
	{Name: "a-deadline-over-the-requests-of-a-call", Rules: rules("C48", "C23"), play: func(s *stage) {
		// So many IDs take four requests at the least, each of which is answered within the deadline, one after the other.
		s.start(1)
		c := s.open()
		var one sync.Mutex
		slow := s.nodes[0].on("SNOWFLAKE", -1, func(r *request) answer {
			one.Lock()
			defer one.Unlock()
			select {
			case <-time.After(short):
			case <-s.ctx.Done():
			}
			return s.proper(r)
		})
		for range 6 {
			c.get("C48", "ids", 2) // the client learns when an answer is late
		}
		c.begin("ids", 1<<16, within(2*short)).fails("C48", "deadline_exceeded")
		s.nodes[0].off(slow)
		c.get("C48", "ids", 2)
	}},
	{Name: "a-missed-deadline-names-the-nodes", Rules: rules("C48"), play: func(s *stage) {
		c := s.serving("C48", 2)
		s.lead(-1)
		s.nodes[0].stop()
		for began := time.Now(); ; {
			call := c.begin("timestamp", 0, within(short))
			call.fails("C48", "deadline_exceeded")
			named := contains(call.reply.Message, s.nodes[0].addr) && contains(call.reply.Message, s.nodes[1].addr)
			if named || time.Since(began) > s.patience {
				s.check(named, "C48", "%q does not name %s and %s", call.reply.Message, s.nodes[0].addr, s.nodes[1].addr)
				return
			}
		}
	}},
	{Name: "a-call-after-a-missed-deadline", Rules: rules("C48", "C32"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		gate := s.nodes[0].freeze()
		c.begin("timestamp", 0, within(short)).fails("C48", "deadline_exceeded")
		gate.open()
		c.timestamp("C32")
	}},
	{Name: "a-canceled-call-ends-alone", Rules: rules("C49"), play: func(s *stage) {
		s.start(1)
		c := s.open(connections(1))
		gate := s.nodes[0].hold("TS", -1)
		first := c.begin("timestamp", 0)
		gate.await(1)
		calls := []*call{c.begin("timestamps", 2), c.begin("timestamps", 3), c.begin("timestamps", 4)}
		s.sync()
		calls[1].cancel()
		calls[1].fails("C49", "canceled")
		gate.open()
		first.want("C49")
		calls[0].want("C49")
		calls[2].want("C49")
	}},
	{Name: "a-call-is-canceled-while-there-is-no-leader", Rules: rules("C49"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		s.lead(-1)
		call := c.begin("timestamp", 0)
		s.nodes[1].awaitGot("CLUSTER SLOTS", 3)
		call.cancel()
		call.fails("C49", "canceled")
	}},
	{Name: "a-client-is-closed", Rules: rules("C50"), play: func(s *stage) {
		c := s.serving("C50", 2)
		c.get("C50", "id", 0)
		gate := s.nodes[0].hold("TS", -1)
		calls := []*call{c.begin("timestamp", 0), c.begin("timestamps", 2), c.begin("timestamps", 2)}
		gate.await(1)
		closed := c.close()
		for _, call := range calls {
			call.fails("C50", "closed")
		}
		gate.open()
		closed.want("C50")
		for _, method := range []string{"timestamp", "timestamps64", "id"} {
			c.begin(method, counted(method, 2)).fails("C50", "closed")
		}
		s.await("the end of all connections", func() bool { return len(s.nodes[0].conns)+len(s.nodes[1].conns) == 0 })
	}},
	{Name: "a-client-is-closed-while-there-is-no-leader", Rules: rules("C50"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		s.lead(-1)
		call := c.begin("timestamp", 0)
		s.nodes[1].awaitGot("CLUSTER SLOTS", 3)
		c.close().want("C50")
		call.fails("C50", "closed")
		s.await("the end of all connections", func() bool { return len(s.nodes[0].conns)+len(s.nodes[1].conns) == 0 })
	}},
	{Name: "more-calls-than-may-wait", Rules: rules("C51"), Needs: needs(featQueue), play: func(s *stage) {
		c := s.serving("C51", 1, connections(1), func(o *Options) { o.QueueMax = 4 })
		gate := s.nodes[0].hold("TS", -1)
		held := []*call{c.begin("timestamps", 1)}
		gate.await(1)
		for range 40 {
			held = append(held, c.begin("timestamps", 1))
		}
		s.await("a call that is refused", func() bool {
			for _, call := range held {
				if call.reply.Error == "overloaded" {
					return true
				}
			}
			return false
		})
		gate.open()
		for _, call := range held {
			if call.wait().OK == nil {
				call.fails("C51", "overloaded")
			}
		}
		c.timestamp("C51")
	}},
}

// missed: nodes accept everything and answer nothing.
func missed(method string) Scenario {
	return Scenario{Name: "a-missed-deadline-" + method, Rules: rules("C48"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		c.get("C48", method, counted(method, 2))
		gates := []*gate{s.nodes[0].freeze(), s.nodes[1].freeze()}
		c.begin(method, counted(method, 2), within(short)).fails("C48", "deadline_exceeded")
		gates[0].open()
		gates[1].open()
		c.get("C48", method, counted(method, 2))
	}}
}
