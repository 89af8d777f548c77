package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// short is the deadline of calls that are to miss it.
const short = 300 * time.Millisecond

var connecting = []Scenario{
	{Name: "one-address-is-enough", Rules: rules("C1", "C40"), play: func(s *stage) {
		s.start(3)
		s.lead(2)
		c := s.open(at(s.nodes[0]))
		for range 3 {
			c.timestamp("C40")
		}
	}},
	{Name: "dead-addresses-are-passed", Rules: rules("C1", "C40"), play: func(s *stage) {
		s.start(3)
		s.nodes[1].stop()
		s.nodes[2].stop()
		c := s.open(at(s.nodes[1], s.nodes[2], s.nodes[0]))
		c.timestamp("C1")
	}},
	{Name: "an-address-with-a-name", Rules: rules("C1"), play: func(s *stage) {
		s.start(1)
		c := s.open(func(o *Options) { o.Addrs = []string{strings.Replace(s.nodes[0].addr, "127.0.0.1", "localhost", 1)} })
		c.timestamp("C1")
	}},
	{Name: "no-address", Rules: rules("C1"), play: func(s *stage) {
		s.refusesOptions(func(o *Options) { o.Addrs = []string{} })
	}},
	{Name: "too-many-addresses", Rules: rules("C1"), play: func(s *stage) {
		s.refusesOptions(func(o *Options) {
			for i := range 65 {
				o.Addrs = append(o.Addrs, fmt.Sprintf("127.0.0.1:%d", i+1))
			}
		})
	}},
	wrongAddress("without-a-port", "127.0.0.1"), wrongAddress("port-0", "127.0.0.1:0"), wrongAddress("no-host", ":8080"),
	wrongAddress("port-too-large", "127.0.0.1:65536"), wrongAddress("with-a-space", "a b:80"), wrongAddress("empty", ""),
	{Name: "a-frozen-node-delays-nothing", Rules: rules("C4", "C40"), play: func(s *stage) {
		s.start(3)
		s.lead(2)
		s.nodes[0].freeze()
		c := s.open()
		c.timestamp("C40")
	}},
	{Name: "a-connection-is-open-when-the-node-has-answered", Rules: rules("C4"), play: func(s *stage) {
		// Node 0 leads, and accepts connections, but is frozen until another one leads.
		s.start(2)
		gate := s.nodes[0].freeze()
		_, made := s.make(callDeadline, at(s.nodes[0], s.nodes[1]))
		gate.await(1)
		s.lead(1)
		made.want("C4")
		gate.open()
	}},
	{Name: "nodes-that-hang-up-at-once", Rules: rules("C4", "C43"), play: func(s *stage) {
		s.start(2)
		s.lead(1)
		s.nodes[0].hangUp("", -1)
		s.nodes[1].hangUp("", 5)
		s.open().timestamp("C43")
	}},
	{Name: "another-server-at-an-address", Rules: rules("C4", "C29"), play: func(s *stage) {
		s.start(2)
		s.lead(1)
		s.nodes[0].say("", -1, []byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
		s.open().timestamp("C29")
	}},
	{Name: "a-leader-that-is-elected-while-a-client-is-made", Rules: rules("C52", "C34"), play: func(s *stage) {
		s.start(3)
		s.lead(-1)
		c, made := s.make(callDeadline)
		for _, n := range s.nodes {
			n.awaitGot("CLUSTER SLOTS", 3)
		}
		s.lead(1)
		made.want("C52")
		c.timestamp("C52")
	}},
	{Name: "no-leader-until-the-deadline-of-a-new-client", Rules: rules("C52", "C48"), play: func(s *stage) {
		s.start(2)
		s.lead(-1)
		_, made := s.make(short)
		made.fails("C52", "deadline_exceeded")
	}},
	{Name: "a-new-client-that-does-not-wait", Rules: rules("C52"), Needs: needs(featLazy), play: func(s *stage) {
		s.start(2)
		s.lead(-1)
		c, made := s.make(callDeadline, lazy)
		made.want("C52")
		call := c.begin("timestamp", 0)
		s.nodes[0].awaitGot("CLUSTER SLOTS", 2)
		s.lead(1)
		call.want("C34")
	}},
	{Name: "answers-that-come-byte-by-byte", Rules: rules("C30"), play: func(s *stage) {
		s.start(1)
		s.nodes[0].on("", -1, func(r *request) answer {
			a := s.proper(r)
			for _, b := range a.bytes {
				_, _ = r.conn.Write([]byte{b})
			}
			a.bytes = nil
			return a
		})
		c := s.open()
		c.timestamp("C30")
		c.get("C30", "ids", 3)
	}},
	{Name: "dials-are-paced", Rules: rules("C47"), play: func(s *stage) {
		// Every connection ends at once. A client has connections of a few kinds, each of which may be dialed every 4 ms.
		s.start(1)
		n := s.nodes[0]
		n.hangUp("", -1)
		_, made := s.make(callDeadline)
		first := n.awaitGot("", 1)
		const times = 60
		list := n.awaitGot("", times)
		s.paced("C47", append(first, list[times-1]), 30*time.Millisecond)
		s.mu.Lock()
		n.rules = nil
		s.mu.Unlock()
		made.want("C43")
	}},
}

// refusesOptions has the client refuse options, and dial nothing.
func (s *stage) refusesOptions(change options) {
	s.start(1)
	_, made := s.make(callDeadline, change)
	made.fails("C1", "invalid_argument")
	s.check(len(s.nodes[0].got("")) == 0, "C1", "a node was dialed")
}

func wrongAddress(name, addr string) Scenario {
	return Scenario{Name: "wrong-address-" + name, Rules: rules("C1"), play: func(s *stage) {
		s.refusesOptions(func(o *Options) { o.Addrs = append(o.Addrs, addr) })
	}}
}

var clusters = []Scenario{
	{Name: "the-first-cluster-is-pinned", Rules: rules("C12", "C13"), play: func(s *stage) {
		c := s.serving("C13", 1)
		s.check(c.pinned() == clusterID, "C13", "the client is pinned to %q, want %s", c.pinned(), clusterID)
	}},
	{Name: "the-cluster-of-the-options", Rules: rules("C13", "C14"), play: func(s *stage) {
		s.start(2)
		s.nodes[0].cluster = foreignID
		s.nodes[1].cluster = foreignID
		s.pin = foreignID
		s.open(ofCluster(foreignID)).timestamp("C13")
	}},
	foreignFromTheStart("options", true), foreignFromTheStart("pinned", false),
	{Name: "a-foreign-node-among-members", Rules: rules("C14"), play: func(s *stage) {
		s.start(3)
		s.nodes[2].cluster = foreignID
		c := s.open(ofCluster(clusterID))
		for range 5 {
			c.timestamp("C14")
			c.get("C14", "id", 0)
		}
	}},
	{Name: "a-foreign-node-asked-first", Rules: rules("C14"), play: func(s *stage) {
		s.start(2)
		s.lead(1)
		s.nodes[0].cluster = foreignID
		s.open(ofCluster(clusterID)).timestamp("C14")
	}},
	{Name: "a-leader-that-comes-back-as-another-cluster", Rules: rules("C14", "C15"), play: func(s *stage) {
		c := s.serving("C14", 1)
		s.nodes[0].becomes(foreignID)
		s.eventually("C15", "wrong_cluster", func() *call { return c.begin("timestamp", 0, within(short)) })
		c.begin("id", 0, within(2*short)).fails("C15", "wrong_cluster", "deadline_exceeded")
		s.check(c.pinned() == clusterID, "C13", "the client has changed its cluster to %s", c.pinned())
		s.nodes[0].becomes(clusterID)
		c.timestamp("C14")
	}},
	{Name: "what-a-foreign-node-says-of-the-leader", Rules: rules("C14"), play: func(s *stage) {
		// The foreign node names a node that nobody else knows, as the leader of its cluster.
		c := s.serving("C14", 1)
		s.nodes[0].becomes(foreignID)
		other := s.add()
		other.cluster = foreignID
		other.start()
		s.lead(1)
		s.eventually("C15", "wrong_cluster", func() *call { return c.begin("timestamp", 0, within(short)) })
		s.check(len(other.got("")) == 0, "C14", "the client asked a node that only a foreign one has named")
	}},
	{Name: "a-redirect-to-a-foreign-node", Rules: rules("C14", "C42"), play: func(s *stage) {
		s.start(2)
		s.nodes[1].cluster = foreignID
		c := s.open(at(s.nodes[0]), ofCluster(clusterID))
		c.timestamp("C14")
		s.lead(1)
		call := c.begin("timestamp", 0)
		s.nodes[1].awaitGot("", 1)
		s.lead(0)
		call.want("C14")
	}},
	{Name: "a-node-that-does-not-know-its-cluster", Rules: rules("C16"), play: func(s *stage) {
		s.start(1)
		s.nodes[0].cluster = ""
		c, made := s.make(callDeadline)
		s.nodes[0].awaitChecks(12)
		s.check(made.ended() == 0, "C16", "a client was made of a node that does not know its cluster")
		s.change("the cluster is formed", func() { s.nodes[0].cluster = clusterID })
		made.want("C16")
		c.timestamp("C16")
	}},
	{Name: "a-node-that-reports-no-cluster", Rules: rules("C16"), play: func(s *stage) {
		s.start(1)
		s.nodes[0].cluster = unreported
		s.eventually("C16", "wrong_cluster", func() *call {
			_, made := s.make(short, ofCluster(clusterID))
			return made
		})
		s.check(len(s.nodes[0].got("TS")) == 0, "C16", "it was asked for a timestamp")
	}},
	malformedCluster("short", "5e1f0c3a9b2d4e7"), malformedCluster("no-number", "5e1f0c3a9b2d4e7x"), malformedCluster("zero", "0000000000000000"),
	{Name: "no-ids-of-another-cluster", Rules: rules("C14", "C53"), play: func(s *stage) {
		s.start(3)
		s.nodes[1].cluster = foreignID
		c := s.open(ofCluster(clusterID))
		for range 20 {
			c.get("C14", "id", 0)
		}
	}},
	{Name: "rejected-nodes-are-reported", Rules: rules("C14"), Needs: needs(featEvents), play: func(s *stage) {
		s.start(2)
		s.nodes[1].cluster = foreignID
		s.open(ofCluster(clusterID)).timestamp("C14")
		s.awaitEvent("rejected", "wrong_cluster")
	}},
	{Name: "two-clusters-at-the-addresses", Rules: rules("C13", "C14"), play: func(s *stage) {
		// Whichever is first, the other one is not used.
		s.start(2)
		s.nodes[1].cluster, s.pin, s.keepsFloors = foreignID, "", false
		lead := func(n *node) func(*request) answer {
			return func(*request) answer { return answer{bytes: slots(n.addr)} }
		}
		for _, n := range s.nodes {
			n.on("CLUSTER SLOTS", -1, lead(n))
		}
		c := s.open()
		pin := c.pinned()
		s.check(pin != "", "C13", "no cluster is pinned, though there is a leader")
		s.change("the cluster is pinned", func() {
			if s.pin = pin; pin == foreignID {
				s.leader = 1
			}
		})
		for range 5 {
			c.timestamp("C14")
		}
	}},
}

func ofCluster(id string) options { return func(o *Options) { o.Cluster = id } }

// becomes has the address of a node lead to a node of another cluster.
func (n *node) becomes(id string) {
	n.stop()
	n.s.change(n.name()+" becomes "+id, func() { n.cluster = id })
	n.start()
}

// awaitChecks waits until the node was asked for its cluster so often.
func (n *node) awaitChecks(times int) {
	n.s.await("questions for the cluster", func() bool { return len(n.gotLocked("INFO"))+len(n.gotLocked("HELLO")) >= times })
}

func foreignFromTheStart(name string, optioned bool) Scenario {
	return Scenario{Name: "only-foreign-nodes-" + name, Rules: rules("C14", "C15"), play: func(s *stage) {
		s.start(2)
		if optioned {
			s.nodes[0].cluster, s.nodes[1].cluster = foreignID, foreignID
			s.eventually("C15", "wrong_cluster", func() *call {
				_, made := s.make(short, ofCluster(clusterID))
				return made
			})
			return
		}
		c := s.open()
		c.timestamp("C13")
		for _, n := range s.nodes {
			n.becomes(foreignID)
		}
		for _, method := range slices.Concat(stampForms[:1], []string{"timestamps64"}) {
			s.eventually("C15", "wrong_cluster", func() *call { return c.begin(method, counted(method, 2), within(short)) })
		}
	}}
}

func malformedCluster(name, id string) Scenario {
	return Scenario{Name: "malformed-cluster-" + name, Rules: rules("C12", "C29"), play: func(s *stage) {
		s.start(2)
		s.lead(1)
		s.nodes[0].cluster = id
		s.open().timestamp("C29")
	}}
}
