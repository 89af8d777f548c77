package replica_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/oracle"
	"github.com/isotone/isotone/internal/replica"
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
			if o := c.nodes[m.ID]; m.Incarnation != o.cfg.Self.Incarnation || m.PeerAddr != o.cfg.Self.PeerAddr || m.Learner {
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
	c.must(c.leader(c.nodes[3]))
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
		was := c.nodes[1].Status().ClusterID
		c.wipe(three)
		for _, by := range []*node{c.nodes[1], c.nodes[2]} {
			refusal := by.Admit(three.Hello())
			wantRefusal(t, refusal, replica.RefusedWiped, "node 3", "was being formed", "delete all their data directories and start again")
			wantWords(t, three.Refused(by.id, refusal), "node 3 was refused by", "wiped")
		}
		for range 300 {
			c.tick(1)
			for _, n := range c.running() {
				if s := n.Status(); s.Forming == "" || s.Serving || n != three && s.ClusterID != was {
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

// TestFormation_ASplitEndsBoth wipes a founder between the preparations of two others. They
// know it under different incarnations, and can never form a cluster.
func TestFormation_ASplitEndsBoth(t *testing.T) {
	for _, heardFirst := range []bool{false, true} { // before or after the second one prepares
		c := unformed(t, 3, nil)
		one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
		c.hear(two, one)
		c.hear(one, two)
		c.hear(one, three)
		if heardFirst {
			c.flush(one)
			if refusal := c.hear(two, one); refusal != nil {
				t.Fatal(refusal)
			}
		}
		c.wipe(three)
		if refusal := c.hear(two, three); refusal != nil {
			t.Fatal(refusal)
		}
		c.flush(one)
		c.flush(two)
		again := "delete all their data directories and start again"
		if !heardFirst {
			wantRefusal(t, c.hear(one, two), replica.RefusedFormed, again)
			wantRefusal(t, c.hear(two, one), replica.RefusedFormed, again)
			wantWords(t, c.ending(one), "node 2 is set up for cluster", again)
		} else if two.disk.snap != nil {
			t.Error("it prepared beside the other")
		}
		wantWords(t, c.ending(two), "is set up for cluster", again)
	}
}

func TestFormation_OtherFoundersEndBoth(t *testing.T) {
	c := unformed(t, 3, nil)
	four := c.add(4, members(4), nil)
	two := c.add(2, members(4), nil) // in place of the one that agreed
	one := c.nodes[1]
	both := []string{"with nodes 1,2,3,4 in PEERS", "with nodes 1,2,3, and", "all initial members need the same list"}
	refusal := one.Admit(two.Hello())
	wantRefusal(t, refusal, replica.RefusedFounders, both...)
	wantWords(t, two.Refused(1, refusal), append(both, "node 2 was refused by node 1")...)
	wantWords(t, c.ending(one), both...)
	// One that is not on the list is no reason for the others to end.
	refusal = c.nodes[3].Admit(four.Hello())
	wantRefusal(t, refusal, replica.RefusedFounders, "node 4 is not in the PEERS of node 3 (1,2,3)")
	wantWords(t, four.Refused(3, refusal), "node 4 was refused by node 3")
	if err := c.ending(c.nodes[3]); err != nil {
		t.Error(err)
	}
}

// TestFormation_NothingIsFormedBesideANodeAlone is found 2a of the reading of the first
// release: node 1 was started without PEERS, nodes 2 and 3 with all three.
func TestFormation_NothingIsFormedBesideANodeAlone(t *testing.T) {
	c := newCluster(t, 1, nil)
	one := c.leader()
	before := c.must(one)
	for _, id := range []uint64{2, 3} {
		n := c.add(id, members(3), func(cfg *replica.Config) { cfg.Self.VotersHash = 9 })
		refusal := one.Admit(n.Hello())
		wantRefusal(t, refusal, replica.RefusedFormed, fmt.Sprintf("node %d", id), "1,2,3", fmt.Sprintf("cluster %016x", one.Status().ClusterID), "JOIN in place of PEERS")
		wantWords(t, n.Refused(1, refusal), "JOIN", "already_formed")
	}
	c.hear(c.nodes[2], c.nodes[3])
	c.hear(c.nodes[3], c.nodes[2])
	for range 300 {
		c.tick(1)
		if c.nodes[2].disk.snap != nil || c.nodes[3].Status().Forming == "" {
			t.Fatal("a second cluster")
		}
	}
	if after := c.must(one); !before.Before(after) {
		t.Errorf("%v after %v", after, before)
	}
}

// TestFormation_NothingIsFormedByEditingPEERS is found 2b: three nodes become five with
// other PEERS, and one of the three has a new disk.
func TestFormation_NothingIsFormedByEditingPEERS(t *testing.T) {
	withHash := func(hash uint64) func(*replica.Config) {
		return func(cfg *replica.Config) { cfg.Self.VotersHash = hash }
	}
	c := newCluster(t, 3, withHash(3))
	c.must(c.leader())
	old := []*node{c.nodes[1], c.nodes[2]}
	wiped := c.add(3, members(5), func(cfg *replica.Config) { withHash(5)(cfg); cfg.Self.Incarnation = 4242 })
	four, five := c.add(4, members(5), withHash(5)), c.add(5, members(5), withHash(5))
	for _, a := range []*node{wiped, four, five} {
		for _, b := range []*node{wiped, four, five} {
			if a != b && c.hear(a, b) != nil {
				t.Errorf("node %d refuses node %d", a.id, b.id)
			}
		}
		for _, by := range old {
			refusal := by.Admit(a.Hello())
			if a == wiped { // whatever else is wrong
				wantRefusal(t, refusal, replica.RefusedWiped, "node 3", "wiped or replaced")
			} else {
				wantRefusal(t, refusal, replica.RefusedFormed, "1,2,3,4,5", "its nodes: 1,2,3", "JOIN")
			}
			wantWords(t, a.Refused(by.id, refusal), "has stopped")
		}
	}
	c.tick(300)
	for _, n := range []*node{wiped, four, five} {
		if n.disk.snap != nil || n.Status().Forming == "" {
			t.Errorf("node %d goes on: %+v", n.id, n.Status())
		}
	}
	c.must(c.leader())
}

// TestFormation_WhoeverIsWipedAtBirthIsKnown is found 3: between the first answer and the
// registration of the members a node could be wiped unnoticed.
func TestFormation_WhoeverIsWipedAtBirthIsKnown(t *testing.T) {
	c := unformed(t, 3, nil)
	rng := rand.New(rand.NewPCG(3, 3))
	formed := 0
	for steps := c.steps(); len(steps) > 0; steps = c.steps() {
		steps[rng.IntN(len(steps))]()
		for _, by := range c.running() {
			if by.Status().Forming != "" {
				continue
			}
			formed++
			for _, n := range c.running() {
				h := n.Hello()
				h.Incarnation, h.ClusterID, h.Stage, h.Founders, h.Term, h.LastIndex = 4242, 0, replica.StageGathering, "1,2,3", 0, 0
				if n != by {
					wantRefusal(t, by.Admit(h), replica.RefusedWiped, "bring the old directory back")
				}
			}
		}
	}
	if formed < 3 {
		t.Errorf("only %d nodes formed", formed)
	}
}

// TestFormation_ASlowHelloIsNotTakenForAWipedOne has a handshake that began while the node
// was gathering end when the cluster runs.
func TestFormation_ASlowHelloIsNotTakenForAWipedOne(t *testing.T) {
	c := unformed(t, 3, nil)
	slow := map[uint64][]replica.Hello{}
	for steps := c.steps(); len(steps) > 0; steps = c.steps() {
		for _, n := range c.running() {
			slow[n.id] = append(slow[n.id], n.Hello())
		}
		steps[0]()
		c.settle()
	}
	c.checkFormed()
	admitted := func() {
		t.Helper()
		for _, by := range c.running() {
			for id, hellos := range slow {
				for _, h := range hellos {
					if refusal := by.Admit(h); id != by.id && refusal != nil {
						t.Fatalf("node %d: %v", by.id, refusal)
					}
				}
			}
		}
	}
	admitted()
	c.must(c.leader())
	c.tick(50)
	admitted()
}

// TestFormation_AFounderThatComesLateEndsNoMember: one that was down ever since it was
// prepared does not know who has joined meanwhile, and has no say.
func TestFormation_AFounderThatComesLateEndsNoMember(t *testing.T) {
	c := newCluster(t, 3, nil)
	late := c.nodes[1]
	late.down = true
	l := c.leader()
	c.turn(l, &replica.Input{Change: &replica.MemberChange{Kind: replica.AddLearner, Member: oracle.Member{ID: 4, PeerAddr: "peer4:1"}}})
	c.settle()
	four := c.add(4, nil, nil)
	c.greet()
	c.tick(50)
	c.start(late)
	if late.Status().Forming == "" {
		t.Fatal("it was formed")
	}
	refusal := late.Admit(four.Hello())
	wantRefusal(t, refusal, replica.RefusedMember, "node 4")
	if err := four.Refused(1, refusal); err != nil {
		t.Errorf("a member was ended: %v", err)
	}
	if err := c.ending(late); err != nil {
		t.Errorf("it was ended itself: %v", err)
	}
	c.greet()
	c.tick(50)
	if got := late.Members(); len(got) != 4 || late.Status().Leader != l.id {
		t.Errorf("it has members %+v and leader %d", got, late.Status().Leader)
	}
	if refusal := late.Admit(four.Hello()); refusal != nil {
		t.Errorf("when it knows: %v", refusal)
	}
}

// TestFormation_DirectoriesOfTheFirstReleaseRunAtOnce starts from the first snapshot as
// version a4b419b wrote it: without incarnations, and without a cluster's ID.
func TestFormation_DirectoriesOfTheFirstReleaseRunAtOnce(t *testing.T) {
	c := unformed(t, 3, nil)
	state := oracle.State{Members: members(3)}
	for _, n := range c.running() {
		n.disk = disk{
			hard: &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))},
			snap: &raftpb.Snapshot{Data: state.Append(nil), Metadata: &raftpb.SnapshotMetadata{
				ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, Index: new(uint64(1)), Term: new(uint64(1)),
			}},
		}
		c.start(n)
		if s := n.Status(); s.Forming != "" {
			t.Errorf("node %d: %s", n.id, s.Forming)
		}
	}
	c.greet()
	c.must(c.leader())
	c.tick(50)
	c.checkFormed()
}

// TestFormation_PeersOfTheFirstRelease tell no stage.
func TestFormation_PeersOfTheFirstRelease(t *testing.T) {
	c := unformed(t, 3, nil)
	one := c.nodes[1]
	old := replica.Hello{NodeID: 2, Incarnation: 1002, Boot: 1, Session: 5, Term: 1, LastIndex: 1, TickNanos: one.Hello().TickNanos, ClientAddr: "client2:1", Level: 1}
	refusal := one.Admit(old)
	wantRefusal(t, refusal, replica.RefusedLevel, "node 2 runs an older version", "same version")
	if refusal.Code.IsFinal() {
		t.Error("one that was too old cannot come back newer")
	}
	if err := c.ending(one); err != nil {
		t.Errorf("it ends the founder: %v", err)
	}

	// It has a cluster, and took this node for a member of it.
	c.start(one)
	old.ClusterID, old.Term, old.LastIndex = 99, 5, 500
	if refusal := one.Admit(old); refusal != nil {
		t.Fatal(refusal)
	}
	c.turn(one, &replica.Input{Hellos: []replica.Hello{old}})
	wantWords(t, c.ending(one), "node 2 belongs to cluster 0000000000000063 already", "JOIN in place of PEERS")
	if one.disk.snap != nil {
		t.Error("it was prepared")
	}
}
