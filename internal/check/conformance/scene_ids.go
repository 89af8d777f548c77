package conformance

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/snowflake"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

var ids = []Scenario{
	{Name: "ids-without-a-leader", Rules: rules("C53"), Needs: needs(featLazy), play: func(s *stage) {
		s.start(3)
		s.lead(-1)
		c, made := s.make(callDeadline, lazy)
		made.want("C52")
		for range 3 {
			c.get("C53", "id", 0)
			c.get("C53", "ids", 10)
		}
	}},
	{Name: "ids-from-members-in-turn", Rules: rules("C53"), play: func(s *stage) {
		s.start(3)
		c := s.open()
		// A client may connect to the members one after the other.
		asked := map[int]bool{}
		for began := time.Now(); len(asked) < 2; s.breathe() {
			c.get("C53", "id", 0)
			for _, n := range s.nodes {
				if len(n.got("SNOWFLAKE")) > 0 {
					asked[n.index] = true
				}
			}
			if time.Since(began) > s.patience {
				s.blame("C53", "all requests went to one member")
				return
			}
		}
	}},
	idElsewhere("refuses", "TRYAGAIN no_worker: this node has none"), idElsewhere("is-overloaded", "TRYAGAIN too many requests are waiting"),
	idElsewhere("redirects", "MOVED 0 127.0.0.1:1"), idElsewhere("knows-no-leader", "CLUSTERDOWN no leader is known"),
	{Name: "ids-while-a-member-dies", Rules: rules("C53", "C30"), play: func(s *stage) {
		s.start(3)
		c := s.open()
		for i := range 9 {
			c.get("C53", "ids", 3)
			if i%3 == 2 {
				s.nodes[i/3].restart()
			}
		}
		s.nodes[1].stop()
		s.nodes[2].stop()
		c.get("C53", "ids", 3)
	}},
	{Name: "ids-while-a-member-hangs", Rules: rules("C53"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		c.get("C53", "id", 0)
		gate := s.nodes[1].freeze()
		for range 6 {
			c.get("C53", "id", 0)
		}
		gate.open()
	}},
	{Name: "ids-cut-off", Rules: rules("C30", "C24"), play: func(s *stage) {
		s.start(1)
		c := s.open()
		s.nodes[0].spoil("C30", "SNOWFLAKE", 2, func(a answer) answer { return answer{bytes: a.bytes[:len(a.bytes)*2/3], end: true} })
		c.get("C30", "ids", 50)
	}},
}

// idElsewhere: one member refuses, so the others are asked.
func idElsewhere(name, line string) Scenario {
	return Scenario{Name: "ids-while-a-member-" + name, Rules: rules("C53", "C34"), play: func(s *stage) {
		s.start(2)
		c := s.open()
		s.nodes[1].say("SNOWFLAKE", -1, faultLine(line))
		for range 8 {
			c.get("C53", "id", 0)
		}
	}}
}

// maker is a generator of the client under test.
type maker struct {
	c    *client
	name string
	made *call
}

// lengthy is the length of leases that are not to end.
const lengthy = 10 * time.Minute

// generator begins to make a generator.
func (c *client) generator(length time.Duration, change ...arg) *maker {
	c.s.mu.Lock()
	c.s.names++
	g := &maker{c: c, name: fmt.Sprintf("%s-%d", c.s.name, c.s.names)}
	c.s.mu.Unlock()
	cmd := Command{Do: "generator", Client: c.name, Generator: g.name, LeaseMS: length.Milliseconds(), DeadlineMS: callDeadline.Milliseconds()}
	for _, f := range change {
		f(&cmd)
	}
	g.made = c.s.begin(cmd)
	return g
}

// lease makes a generator that must get a lease.
func (c *client) lease(rule string, length time.Duration, change ...arg) *maker {
	g := c.generator(length, change...)
	g.made.want(rule)
	return g
}

func fixed(worker int) arg { return func(c *Command) { c.Worker = &worker } }
func clock(now int64) arg  { return func(c *Command) { c.NowMS = &now } }
func ahead(ms int64) arg   { return func(c *Command) { c.AheadMaxMS = &ms } }

func (g *maker) do(do string, count uint64, change ...arg) *call {
	cmd := Command{Do: do, Generator: g.name, DeadlineMS: callDeadline.Milliseconds()}
	if count > 0 {
		cmd.Count = &count
	}
	for _, f := range change {
		f(&cmd)
	}
	return g.c.s.begin(cmd)
}

func (g *maker) next(rule string, count uint64) *Result { return g.do("next", count).want(rule) }

// sessions returns those of the requests for leases that all nodes have received.
func (s *stage) sessions() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessionsLocked()
}

func (s *stage) sessionsLocked() (list []string) {
	for _, r := range s.requests {
		if r.name == "WORKER LEASE" && len(r.args) > 2 {
			list = append(list, r.args[2])
		}
	}
	return list
}

// longAgo is a clock of generators, in the layout.
const longAgo = 1795317567364

var generators = []Scenario{
	{Name: "a-lease", Rules: rules("C54", "C56"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(3)
		s.lead(2)
		c := s.open()
		g := c.lease("C54", lengthy)
		g.next("C56", 1)
		g.next("C56", 10_000)
		r := g.do("lease", 0).want("C56")
		s.check(r.Worker == firstWorker && r.Start > 0 && r.Start < r.End, "C55", "the lease is %+v", r)
		g.do("end", 0).want("C60")
	}},
	{Name: "a-session-for-each-generator", Rules: rules("C54"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		one, two := c.lease("C54", lengthy), c.lease("C54", lengthy)
		one.next("C56", 5)
		two.next("C56", 5)
		list := s.sessions()
		s.check(list[0] != list[1], "C54", "two generators have one session")
	}},
	{Name: "a-lease-from-a-leader-that-moves", Rules: rules("C54", "C42"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(3)
		c := s.open()
		s.lead(1)
		c.lease("C54", lengthy).next("C56", 3)
	}},
	leaseRetried("while-there-is-no-leader", "CLUSTERDOWN no leader is known"), leaseRetried("while-a-node-is-overloaded", "TRYAGAIN too many requests are waiting"),
	leaseRetried("while-no-worker-is-free", "TRYAGAIN no_worker: all are leased"), leaseRetried("while-a-quota-is-used-up", "TRYAGAIN quota_exceeded: retry after 30 ms"),
	leaseRefused("forbidden", "NOPERM the role workers is missing"), leaseRefused("invalid_argument", "ERR this is a proxy"),
	{Name: "a-lease-whose-answer-is-lost", Rules: rules("C54", "C30"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		s.nodes[0].on("WORKER LEASE", 2, func(r *request) answer {
			a := s.proper(r)
			return answer{bytes: a.bytes[:len(a.bytes)/2], end: true}
		})
		g := c.lease("C54", lengthy)
		g.next("C56", 3)
		for _, other := range s.sessions() {
			s.check(other == s.sessions()[0], "C54", "the request was repeated in another session")
		}
	}},
	badLease("of-four-parts", "*4\r\n:300\r\n:1\r\n:2\r\n$9\r\n41/5/5/12\r\n"), badLease("of-a-string", "+OK\r\n"), badLease("that-is-empty", "*5\r\n:300\r\n:1795317567364\r\n:1795317567364\r\n$9\r\n41/5/5/12\r\n:1288834974657\r\n"),
	badLease("of-a-negative-worker", "*5\r\n:-1\r\n:1795317567364\r\n:1895317567364\r\n$9\r\n41/5/5/12\r\n:1288834974657\r\n"),
	badLease("of-a-worker-beyond-the-layout", "*5\r\n:1024\r\n:1795317567364\r\n:1895317567364\r\n$9\r\n41/5/5/12\r\n:1288834974657\r\n"),
	badLease("with-a-layout-of-64-bits", "*5\r\n:300\r\n:1795317567364\r\n:1895317567364\r\n$9\r\n41/5/5/13\r\n:1288834974657\r\n"),
	badLease("with-a-number-as-layout", "*5\r\n:300\r\n:1795317567364\r\n:1895317567364\r\n:41\r\n:1288834974657\r\n"),
	{Name: "a-layout-of-another-cluster-setting", Rules: rules("C55", "C56"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		s.layout = snowflake.Layout{TimeBits: 42, WorkerBits: 10, SequenceBits: 11, Epoch: 1500000000000}
		s.open().lease("C55", lengthy).next("C56", 5000)
	}},
	{Name: "a-lease-is-renewed", Rules: rules("C57", "C58"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C57", 600*time.Millisecond)
		for i := range 4 {
			s.nodes[0].awaitGot("WORKER LEASE", i+2)
			g.next("C57", 10)
		}
		for _, other := range s.sessions() {
			s.check(other == s.sessions()[0], "C57", "a lease was renewed in another session")
		}
		s.check(len(s.grants) == 1, "C57", "%d leases were granted, want 1 that is renewed", len(s.grants))
	}},
	{Name: "a-lease-that-cannot-be-renewed", Rules: rules("C56", "C57"), Needs: needs(featGenerator), play: func(s *stage) {
		// IDs stay in the lease, however long it has ended, and next waits for another one.
		s.start(1)
		c := s.open()
		g := c.lease("C56", 300*time.Millisecond)
		g.next("C56", 3)
		s.lead(-1)
		s.nodes[0].awaitGot("WORKER LEASE", 2)
		for time.Now().UnixMilli() < s.lastEnd()+500 {
			g.do("next", 5, within(short)).wait()
			s.breathe()
		}
		s.lead(0)
		g.next("C57", 5)
	}},
	{Name: "a-renewal-without-a-free-worker", Rules: rules("C57"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C57", 600*time.Millisecond)
		g.next("C56", 3)
		s.change("the lease is revoked", func() { s.grants[0].revoked = true })
		s.await("a request in another session", func() bool {
			return len(s.sessionsLocked()) > 0 && s.sessionsLocked()[len(s.sessionsLocked())-1] != s.sessionsLocked()[0]
		})
		s.await("another lease", func() bool { return len(s.grants) > 1 })
		g.next("C57", 10)
	}},
	{Name: "the-rest-of-a-revoked-lease-is-released", Rules: rules("C58"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C58", 3*time.Second)
		g.next("C56", 3)
		s.change("the lease is revoked", func() { s.grants[0].revoked = true })
		s.await("the release of the revoked lease", func() bool { return s.grants[0].released != 0 })
		g.next("C58", 10)
	}},
	{Name: "a-renewal-with-another-worker", Rules: rules("C58"), Needs: needs(featGenerator), play: func(s *stage) {
		// The cluster has forgotten the session. The judge knows what was granted: IDs of the first lease stay good until it ends.
		s.start(1)
		c := s.open()
		g := c.lease("C58", 900*time.Millisecond)
		g.next("C56", 3)
		s.change("the session is forgotten", func() { s.grants[0].session = "" })
		s.await("another lease", func() bool { return len(s.grants) > 1 })
		for {
			if g.do("lease", 0).want("C58").Worker != firstWorker {
				break
			}
			s.breathe()
		}
		s.change("the first lease is over", func() { s.grants[0].lease.End = s.grants[0].lease.Start })
		g.next("C58", 10)
	}},
	{Name: "a-generator-is-closed", Rules: rules("C60"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C60", lengthy)
		r := g.next("C60", 5000)
		g.do("end", 0).want("C60")
		last, _ := strconv.ParseUint(r.IDs[len(r.IDs)-1], 10, 63)
		s.released(s.layout.Millis(snowflake.ID(last)) + 1)
		g.do("next", 1).fails("C60", "closed", "overloaded")
	}},
	{Name: "a-generator-without-ids-is-closed", Rules: rules("C60"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C60", lengthy)
		g.do("end", 0).want("C60")
		s.released(s.grants[0].lease.Start)
	}},
	{Name: "a-generator-is-closed-while-there-is-no-leader", Rules: rules("C60"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C60", lengthy)
		g.next("C60", 3)
		s.lead(-1)
		g.do("end", 0).wait()
	}},
	{Name: "a-fixed-worker", Rules: rules("C54", "C58"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C54", 600*time.Millisecond, fixed(777))
		r := g.do("lease", 0).want("C54")
		s.check(r.Worker == 777, "C54", "worker %d, want the fixed one, 777", r.Worker)
		s.nodes[0].say("WORKER LEASE", 2, faultLine("TRYAGAIN no_worker: another process holds it"))
		s.nodes[0].awaitGot("WORKER LEASE", 4)
		g.next("C56", 3)
		for _, other := range s.sessions() {
			s.check(other == s.sessions()[0], "C57", "a fixed worker was requested in another session")
		}
	}},
	{Name: "a-clock-that-goes-back", Rules: rules("C59"), Needs: needs(featGenerator, featNow), play: func(s *stage) {
		s.start(1)
		c := s.open()
		g := c.lease("C59", lengthy, clock(longAgo), ahead(1000))
		g.next("C56", 3)
		g.do("now", 0, clock(longAgo-60_000)).want("driver")
		g.do("try", 1).fails("C56", "clock", "overloaded")
		g.next("C59", 3)
		list := s.sessions()
		s.check(list[len(list)-1] != list[0], "C59", "no worker was leased in another session")
		s.check(len(s.grants) == 2, "C59", "%d leases, want 2", len(s.grants))
	}},
	{Name: "a-clock-that-goes-back-a-little", Rules: rules("C56"), Needs: needs(featGenerator, featNow), play: func(s *stage) {
		s.start(1)
		g := s.open().lease("C56", lengthy, clock(longAgo), ahead(1000))
		g.next("C56", 3)
		g.do("now", 0, clock(longAgo-900)).want("driver")
		g.next("C56", 3)
		s.check(len(s.grants) == 1, "C59", "%d leases, want 1", len(s.grants))
	}},
	{Name: "a-clock-that-goes-back-with-a-fixed-worker", Rules: rules("C59"), Needs: needs(featGenerator, featNow), play: func(s *stage) {
		s.start(1)
		g := s.open().lease("C59", lengthy, fixed(555), clock(longAgo), ahead(1000))
		g.next("C56", 3)
		g.do("now", 0, clock(longAgo-60_000)).want("driver")
		g.do("try", 1).fails("C59", "clock")
		g.do("now", 0, clock(longAgo+1)).want("driver")
		g.next("C59", 3)
		s.check(len(s.grants) == 1, "C59", "%d leases, want 1", len(s.grants))
	}},
	{Name: "a-lease-of-another-cluster", Rules: rules("C14"), Needs: needs(featGenerator), play: func(s *stage) {
		c := s.serving("C14", 1)
		s.nodes[0].becomes(foreignID)
		g := c.generator(lengthy, within(2*short))
		g.made.fails("C14", "wrong_cluster", "deadline_exceeded")
	}},
	{Name: "a-generator-follows-the-clock", Rules: rules("C56"), Needs: needs(featGenerator, featNow), play: func(s *stage) { s.playVectors() }},
}

// ended returns the place of the end of a call, 0 before it.
func (c *call) ended() int {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.end
}

// lastEnd returns the latest end of all leases.
func (s *stage) lastEnd() (end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.grants {
		end = max(end, g.lease.End)
	}
	return end
}

// released checks the release of the first lease.
func (s *stage) released(next int64) {
	s.mu.Lock()
	got := s.grants[0].released
	s.mu.Unlock()
	s.check(got == next, "C60", "the lease was released from %d on, want %d; 0 stands for no release", got, next)
}

func leaseRetried(name, line string) Scenario {
	return Scenario{Name: "a-lease-" + name, Rules: rules("C54", "C34"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		s.nodes[0].say("WORKER LEASE", 3, faultLine(line))
		c.lease("C54", lengthy).next("C56", 3)
	}}
}

func leaseRefused(code, line string) Scenario {
	return Scenario{Name: "a-lease-refused-" + slug(code), Rules: rules("C54", "C37", "C39"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		s.nodes[0].say("WORKER LEASE", -1, faultLine(line))
		g := c.generator(lengthy)
		g.made.fails("C54", code)
		s.check(len(s.nodes[0].got("WORKER LEASE")) == 1, "C54", "the request was repeated, though the refusal is final")
	}}
}

// badLease: what is no lease makes no IDs.
func badLease(name, wire string) Scenario {
	return Scenario{Name: "a-lease-" + name, Rules: rules("C55"), Needs: needs(featGenerator), play: func(s *stage) {
		s.start(1)
		c := s.open()
		bad := s.nodes[0].say("WORKER LEASE", -1, []byte(wire))
		g := c.generator(lengthy, within(2*short))
		if g.made.wait().OK != nil {
			s.blame("C55", "a generator has such a lease")
			return
		}
		s.nodes[0].off(bad)
		c.lease("C55", lengthy).next("C56", 3)
	}}
}

// generatorVector is a case of generator.json.
type generatorVector struct {
	About, Layout string
	Epoch         int64
	Worker        int
	Lease         []int64
	AheadMax      int64 `json:"ahead_max_ms"`
	Steps         []struct {
		Now, Extend, Stop int64
		Take              uint64
		First, Refused    string
	}
}

// playVectors plays the generators of the vectors with a fixed worker, up to the first step that needs a renewal.
func (s *stage) playVectors() {
	var v struct{ Generators []generatorVector }
	load("generator", &v)
	s.start(1)
	c := s.open()
	for _, g := range v.Generators {
		s.playVector(c, g)
	}
}

func (s *stage) playVector(c *client, v generatorVector) {
	layout, err := snowflake.ParseLayout(v.Layout, v.Epoch)
	if err != nil || v.Steps[0].Now == 0 {
		return
	}
	lease := snowflake.Lease{Start: v.Epoch, End: math.MaxInt64}
	if v.Lease != nil {
		lease = snowflake.Lease{Start: v.Lease[0], End: v.Lease[1]}
	}
	if lease.Start == lease.End {
		return
	}
	s.mu.Lock()
	grant := &grant{session: "", worker: v.Worker, lease: lease, layout: layout}
	s.grants = append(s.grants, grant)
	clear(s.ids) // each vector is a generator of another cluster
	s.mu.Unlock()
	told := s.nodes[0].say("WORKER LEASE", -1, grant.tell())
	g := c.lease("C56", lengthy, fixed(v.Worker), clock(v.Steps[0].Now), ahead(v.AheadMax))
	s.nodes[0].off(told)
	for i, step := range v.Steps {
		if step.Now == 0 {
			break
		}
		g.do("now", 0, clock(step.Now)).want("driver")
		r := g.do("try", step.Take).wait()
		switch {
		case step.Refused != "" && r.OK != nil:
			s.blame("C56", "%s Step %d: %d IDs at %d, want a refusal: %s", v.About, i+1, step.Take, step.Now, step.Refused)
		case step.Refused == "" && (r.OK == nil || r.OK.IDs[0] != step.First):
			s.blame("C56", "%s Step %d: %+v %s, want the first ID %s", v.About, i+1, r.OK, r.Message, step.First)
		}
	}
	s.nodes[0].say("WORKER RELEASE", 1, []byte("+OK\r\n"))
	g.do("end", 0).want("C60")
}
