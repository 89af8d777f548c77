package replica_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
)

// hear lets a node hear another's hello, as one side of a handshake does.
func (c *cluster) hear(n, from *node) *replica.Refusal {
	h := from.Hello()
	if refusal := n.Admit(h); refusal != nil {
		return refusal
	}
	n.met[from.id] = true
	c.turn(n, &replica.Input{Hellos: []replica.Hello{h}})
	return nil
}

// steps returns all that can happen next in a formation but crashes: one hello is heard, or
// one write becomes durable.
func (c *cluster) steps() (list []func()) {
	for _, n := range c.running() {
		if len(n.hellos) > 0 {
			list = append(list, func() {
				h := n.hellos[0]
				n.hellos = n.hellos[1:]
				c.turn(n, &replica.Input{Hellos: []replica.Hello{h}})
			})
		}
		if n.flying != nil && !n.stalled {
			list = append(list, func() {
				w := n.flying
				n.disk.save(w)
				n.flying = nil
				c.turn(n, &replica.Input{Persisted: w})
			})
		}
		for _, o := range c.running() {
			if o == n || n.met[o.id] {
				continue
			}
			list = append(list, func() {
				if refusal := c.hear(n, o); refusal != nil {
					c.t.Fatalf("node %d refuses node %d: %v", n.id, o.id, refusal)
				}
			})
		}
	}
	return list
}

// crash restarts a node from its disk. The write that is under way may be on it; what is on
// its way to or from the node is lost.
func (c *cluster) crash(n *node, written bool) {
	if written && n.flying != nil {
		n.disk.save(n.flying)
	}
	for _, o := range c.running() {
		delete(o.met, n.id)
		o.hellos = slices.DeleteFunc(o.hellos, func(h replica.Hello) bool { return h.NodeID == n.id })
	}
	c.start(n)
}

// wipe restarts a node on an empty directory.
func (c *cluster) wipe(n *node) {
	n.disk = disk{boot: n.disk.boot}
	n.cfg.Self.Incarnation += 5000
	c.crash(n, false)
}

// lose loses all hellos that are on their way.
func (c *cluster) lose() {
	for _, n := range c.nodes {
		n.hellos = nil
	}
}

// ending ticks a node on its own until it stops, and returns why; nil if it does not.
func (c *cluster) ending(n *node) error {
	for range 10 {
		c.mono += tick
		if e := n.Step(&replica.Input{Mono: c.mono, Now: uint64(c.mono), Ticks: 1}); e.Fatal != nil {
			n.down = true
			return e.Fatal
		}
	}
	return nil
}

// checkBirth asserts that nothing of a cluster is there before everyone is prepared.
func (c *cluster) checkBirth() {
	c.t.Helper()
	prepared := 0
	for _, n := range c.nodes {
		if n.disk.snap != nil {
			prepared++
		}
	}
	for _, n := range c.nodes {
		s := n.Status()
		if prepared < len(c.nodes) && (s.Forming == "" || s.Serving || s.Leader != 0 || s.Term > 1 || len(n.inbox) > 0) {
			c.t.Fatalf("I10: %d of %d are prepared, and node %d goes on: %+v, %d messages", prepared, len(c.nodes), n.id, s, len(n.inbox))
		}
	}
}

// checkFormed asserts that all run in one cluster that knows everyone's directory, and
// returns its ID.
func (c *cluster) checkFormed() (id uint64) {
	c.t.Helper()
	for _, n := range c.running() {
		s := n.Status()
		if id == 0 {
			id = s.ClusterID
		}
		if s.Forming != "" || s.ClusterID != id || id == 0 || n.disk.cluster != id {
			c.t.Fatalf("node %d is of cluster %x, %x on disk, want %x: %s", n.id, s.ClusterID, n.disk.cluster, id, s.Forming)
		}
		for _, m := range n.Members() {
			if o := c.nodes[m.ID]; m.Incarnation != o.cfg.Self.Incarnation || m.Learner {
				c.t.Fatalf("node %d has %+v on record", n.id, m)
			}
		}
	}
	return id
}

func wantRefusal(t *testing.T, got *replica.Refusal, code replica.RefusalCode, words ...string) {
	t.Helper()
	if got == nil || got.Code != code {
		t.Fatalf("%v, want a refusal with %q", got, code)
	}
	wantWords(t, got, words...)
}

func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is missing in %q", word, err)
		}
	}
}

func TestFormation_TakesAnyNumberOfFounders(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		c := newCluster(t, size, nil)
		c.checkFormed()
		c.must(c.leader())
	}
}

// TestFormation_TheOrderOfMeetingDoesNotMatter has three founders hear each other in every
// order.
func TestFormation_TheOrderOfMeetingDoesNotMatter(t *testing.T) {
	ids := map[uint64]int{}
	for _, order := range permutations([]int{12, 13, 21, 23, 31, 32}) {
		c := unformed(t, 3, nil)
		for _, pair := range order {
			if refusal := c.hear(c.nodes[uint64(pair/10)], c.nodes[uint64(pair%10)]); refusal != nil {
				t.Fatalf("%v: %v", order, refusal)
			}
			c.settle()
			c.checkBirth()
		}
		c.settle()
		ids[c.checkFormed()]++
	}
	if len(ids) != 1 {
		t.Errorf("the same founders form clusters %x", ids)
	}
}

func permutations(list []int) (all [][]int) {
	if len(list) == 0 {
		return [][]int{nil}
	}
	for i, first := range list {
		for _, rest := range permutations(slices.Delete(slices.Clone(list), i, i+1)) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}

func TestFormation_WaitsForEveryFounder(t *testing.T) {
	c := unformed(t, 3, nil)
	one, three := c.nodes[1], c.nodes[3]
	three.down = true
	waits := func(words string) {
		t.Helper()
		c.greet()
		for range 300 {
			c.tick(1)
			c.checkBirth()
		}
		if got := one.Status().Forming; !strings.Contains(got, words) {
			t.Errorf("it waits for %q, want %q", got, words)
		}
	}
	waits("node 3 was not reached yet")
	c.start(three)
	three.stalled = true
	waits("waiting for node 3 to store")
	three.stalled = false
	c.settle()
	c.checkFormed()
	c.must(c.leader())
}

func TestFormation_AnswersRequestsMeanwhile(t *testing.T) {
	c := unformed(t, 3, nil)
	for _, prepared := range []bool{false, true} {
		n := c.nodes[1]
		if prepared {
			c.nodes[3].stalled = true
			c.greet()
			c.settle()
		}
		if got := n.outcome(c.ask(n, 1, 2)); got != isotone.CodeNoLeader {
			t.Errorf("prepared %v: a request got %q", prepared, got)
		}
		n.leases = nil
		c.turn(n, &replica.Input{LeaseRequests: []replica.LeaseRequest{{Token: 5}}})
		if len(n.leases) != 1 || n.leases[0].Token != 5 || n.leases[0].Err.Code != isotone.CodeNoLeader {
			t.Errorf("prepared %v: a request for a worker got %+v", prepared, n.leases)
		}
	}
}

// TestFormation_SurvivesACrashAtEveryStep crashes each node once after each step, with the
// write that was under way lost or not, and with all that others were told lost or not.
func TestFormation_SurvivesACrashAtEveryStep(t *testing.T) {
	// run reports whether there were as many steps.
	run := func(seed uint64, after int, id uint64, written, lost bool) bool {
		c := unformed(t, 3, nil)
		rng := rand.New(rand.NewPCG(seed, 0))
		for ; after > 0; after-- {
			steps := c.steps()
			if len(steps) == 0 {
				return false
			}
			steps[rng.IntN(len(steps))]()
			c.checkBirth()
		}
		c.crash(c.nodes[id], written)
		if lost {
			c.lose()
		}
		for steps := c.steps(); len(steps) > 0; steps = c.steps() {
			steps[rng.IntN(len(steps))]()
			c.checkBirth()
		}
		c.tick(20) // hellos are repeated
		c.checkFormed()
		if id == 1 && !lost {
			c.must(c.leader())
		}
		return true
	}
	for seed := range uint64(4) {
		after := 0
		for run(seed, after, 1, false, false) {
			for id := range uint64(3) {
				for _, written := range []bool{false, true} {
					run(seed, after, id+1, written, false)
					run(seed, after, id+1, written, true)
				}
			}
			after++
		}
		if after < 12 {
			t.Errorf("only %d steps", after)
		}
	}
}

func TestFormation_SurvivesManyCrashes(t *testing.T) {
	for seed := range uint64(200) {
		size := 2 + int(seed%4)
		c := unformed(t, size, nil)
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 200 {
			steps := c.steps()
			switch dice := rng.IntN(10); {
			case dice < 2:
				c.crash(c.nodes[1+rng.Uint64N(uint64(size))], dice == 0)
			case dice < 3:
				c.lose()
			case len(steps) > 0:
				steps[rng.IntN(len(steps))]()
			}
			c.checkBirth()
		}
		for steps := c.steps(); len(steps) > 0; steps = c.steps() {
			steps[rng.IntN(len(steps))]()
		}
		c.tick(20)
		c.checkFormed()
		c.must(c.leader())
	}
}

func TestFormation_RepeatsALostAnnouncement(t *testing.T) {
	c := unformed(t, 3, nil)
	for range 2 { // once that it is prepared, and once that it is formed
		for _, a := range c.running() {
			for _, b := range c.running() {
				if a != b {
					if refusal := c.hear(a, b); refusal != nil {
						t.Fatal(refusal)
					}
				}
			}
		}
		for _, n := range c.running() {
			c.flush(n)
		}
		c.lose()
		c.checkBirth()
		if c.nodes[1].Status().Forming == "" {
			continue
		}
		c.tick(20)
		c.checkFormed()
		return
	}
	t.Fatal("nothing was lost")
}

func TestFormation_OneThatMissedTheEndIsToldAgain(t *testing.T) {
	c := unformed(t, 3, nil)
	c.greet()
	for _, n := range c.running() {
		c.flush(n)
	}
	one := c.nodes[1]
	one.down = true // it is prepared
	c.settle()
	one.down, one.hellos = false, nil
	if one.Status().Forming == "" || c.nodes[2].Status().Forming != "" {
		t.Fatalf("node 1: %q, node 2: %q", one.Status().Forming, c.nodes[2].Status().Forming)
	}
	c.tick(30)
	c.checkFormed()
}

// TestFormation_OneThatKnowsIsEnough: operation needs no more than a quorum, also of one that
// was down when the cluster was formed.
func TestFormation_OneThatKnowsIsEnough(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.nodes[1].down = true
	c.must(c.leader())
	c.nodes[3].down = true
	c.start(c.nodes[1])
	if c.nodes[1].Status().Forming == "" {
		t.Fatal("it knows that the cluster is formed")
	}
	c.greet()
	l := c.leader(c.nodes[3])
	token := c.ask(l, 1)
	c.tick(2) // it may be node 3 that is asked first
	if got := l.outcome(token); got != "ok" {
		t.Errorf("node %d answered %q", l.id, got)
	}
}

// TestFormation_AFounderMayBeWipedWhileAllAreGathering has the last one come after the wiped
// one is back, or before.
func TestFormation_AFounderMayBeWipedWhileAllAreGathering(t *testing.T) {
	for _, back := range []bool{true, false} {
		c := unformed(t, 3, nil)
		one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
		two.down = true
		c.greet()
		c.settle()
		three.down = true
		c.tick(100)
		if back {
			c.wipe(three)
			c.greet()
			c.settle()
		}
		c.start(two)
		c.greet()
		c.settle()
		if !back {
			c.checkBirth()
			if one.disk.snap != nil {
				t.Fatal("it was prepared with one that is gone")
			}
			if got := one.Status().Forming; !strings.Contains(got, "node 3 was not reached") {
				t.Errorf("it waits for %q", got)
			}
			c.wipe(three)
			c.greet()
			c.settle()
		}
		c.checkFormed()
		c.must(c.leader())
	}
}

// TestFormation_AFounderWipedAfterwardsIsRefused wipes one while the others are prepared:
// before its own write, or after it, when the others have not heard of it.
func TestFormation_AFounderWipedAfterwardsIsRefused(t *testing.T) {
	for _, written := range []bool{false, true} {
		c := unformed(t, 3, nil)
		three := c.nodes[3]
		three.stalled = true
		c.greet()
		c.settle()
		if three.stalled = false; written {
			c.flush(three)
			c.lose()
		}
		kept, incarnation := three.disk, three.cfg.Self.Incarnation
		was := c.nodes[1].disk.cluster
		c.wipe(three)
		for _, by := range []*node{c.nodes[1], c.nodes[2]} {
			refusal := by.Admit(three.Hello())
			wantRefusal(t, refusal, replica.RefusedWiped, "node 3", "was being formed", "delete all their data directories and start again")
			wantWords(t, three.Refused(by.id, refusal), "node 3 was refused by", "wiped")
		}
		for range 300 {
			c.tick(1)
			for _, n := range c.running() {
				if s := n.Status(); s.Forming == "" || s.Serving || s.ClusterID != 0 {
					t.Fatalf("node %d goes on: %+v", n.id, s)
				}
			}
		}
		// With its old directory it is welcome.
		three.disk, three.cfg.Self.Incarnation = kept, incarnation
		c.crash(three, false)
		c.greet()
		c.settle()
		if got := c.checkFormed(); got != was {
			t.Errorf("cluster %x, prepared was %x", got, was)
		}
	}
}
