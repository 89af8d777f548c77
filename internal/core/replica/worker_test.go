package replica_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// space has eight workers.
var space = oracle.Space{TimeBits: 48, WorkerBits: 3, SequenceBits: 12}

// leaseMillis is how long worker leases last in these tests: 100 ticks.
const leaseMillis = 1000

func idNode(cfg *replica.Config) {
	cfg.Space, cfg.LeaseMillis, cfg.FixedWorker = space, leaseMillis, oracle.AnyWorker
}

// newIDCluster starts three nodes, each of which wants two workers.
func newIDCluster(t *testing.T, mutate func(*replica.Config)) *cluster {
	t.Helper()
	c := newCluster(t, 3, func(cfg *replica.Config) {
		idNode(cfg)
		cfg.Workers = 2
		if mutate != nil {
			mutate(cfg)
		}
	})
	for _, n := range c.nodes {
		n.workers = 2
	}
	return c
}

// until ticks until ok holds.
func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	for range 500 {
		if ok() {
			return
		}
		c.tick(1)
	}
	c.t.Fatalf("500 ticks, and never: %s", what)
}

// leasing ticks until all running nodes have what they want.
func (c *cluster) leasing() {
	c.t.Helper()
	c.until("everyone has its workers", func() bool {
		return !slices.ContainsFunc(c.running(), func(n *node) bool { return len(n.Status().Workers) != n.workers })
	})
}

// use makes an id with each generator of a node.
func (c *cluster) use(n *node) {
	c.t.Helper()
	for slot, gen := range n.Status().Generators {
		if gen == nil {
			c.t.Fatalf("node %d has no generator in slot %d", n.id, slot)
		}
		if _, err := gen.TryNext(); err != nil {
			c.t.Fatalf("node %d, slot %d: %v", n.id, slot, err)
		}
	}
}

// release gives all leases of a node back, each of which was used, and has it ask for
// others.
func (c *cluster) release(n *node) {
	c.t.Helper()
	c.use(n)
	c.turn(n, &replica.Input{Behind: 1<<len(n.Status().Generators) - 1})
}

// ids writes the workers of a node.
func (n *node) ids() string {
	var list []int
	for _, l := range n.Status().Workers {
		list = append(list, int(l.Worker))
	}
	return fmt.Sprint(list)
}

func (c *cluster) millis() uint64 { return uint64(c.mono / time.Millisecond) }

func TestWorkers_LeaderAndFollowersHoldWhatTheyWant(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	seen := map[uint16]uint64{}
	for _, n := range c.running() {
		for _, l := range n.Status().Workers {
			if !l.IsHeldBy(n.id, n.Hello().Session) || l.Start > c.millis() || l.End <= c.millis() {
				t.Errorf("node %d at %d: %+v", n.id, c.millis(), l)
			}
			if other := seen[l.Worker]; other != 0 {
				t.Errorf("nodes %d and %d hold worker %d", other, n.id, l.Worker)
			}
			seen[l.Worker] = n.id
		}
	}
	if len(seen) != 6 || len(c.leader().WorkerLeases()) != 6 {
		t.Errorf("%v are held, %d on record", seen, len(c.leader().WorkerLeases()))
	}
}

func TestWorkers_LeasesAreRenewedAndSeldom(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	before, proposals := c.leader().ids(), 0
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgProp {
			proposals++
		}
		return false
	}
	for range 1000 {
		c.tick(1)
		for _, n := range c.running() {
			for _, l := range n.Status().Workers {
				if left := int64(l.End) - int64(c.millis()); left < leaseMillis*3/4-2*int64(tick/time.Millisecond) {
					t.Fatalf("node %d has %d ms left", n.id, left)
				}
			}
		}
	}
	if c.leader().ids() != before {
		t.Errorf("the leader holds %s, at first it held %s", c.leader().ids(), before)
	}
	if proposals < 60 || proposals > 100 {
		t.Errorf("two followers asked %d times in ten lengths of a lease", proposals)
	}
}

func TestWorkers_GoOnWithoutAQuorumUntilTheyEnd(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	c.isolate(1, 2, 3)
	c.drop = func(*raftpb.Message) bool { return true }
	want := map[uint64][]oracle.WorkerLease{}
	for _, n := range c.running() {
		want[n.id] = n.Status().Workers
	}
	c.tick(400)
	for _, n := range c.running() {
		if !slices.Equal(n.Status().Workers, want[n.id]) {
			t.Errorf("node %d holds %+v without a quorum, before %+v", n.id, n.Status().Workers, want[n.id])
		}
	}
	c.isolate()
	c.leader()
	c.until("leases are renewed", func() bool {
		for _, n := range c.running() {
			for _, l := range n.Status().Workers {
				if l.End <= c.millis() {
					return false
				}
			}
		}
		return true
	})
}

func TestWorkers_ARestartedNodeInheritsNothing(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	f := c.nodes[l.id%3+1]
	before := f.Status().Workers
	c.start(f)
	if got := f.Status().Workers; len(got) > 0 {
		t.Fatalf("right after the start: %+v", got)
	}
	c.greet()
	c.leasing()
	for _, now := range f.Status().Workers {
		for _, was := range before {
			if now.Worker == was.Worker && now.Start < was.End {
				t.Errorf("I9: %+v was inherited from %+v", now, was)
			}
		}
	}
}

func TestWorkers_AFixedWorkerIsFreeAtOnceWhenItWasGivenBack(t *testing.T) {
	fixed := func(cfg *replica.Config) {
		if cfg.Self.NodeID == 2 {
			cfg.FixedWorker, cfg.Workers = 7, 1
		}
	}
	for _, clean := range []bool{true, false} {
		c := newIDCluster(t, fixed)
		c.nodes[2].workers = 1
		c.leasing()
		was := c.nodes[2].Status().Workers[0]
		if was.Worker != 7 || !was.Fixed {
			t.Fatalf("node 2 holds %+v", was)
		}
		if clean {
			c.use(c.nodes[2])
			c.turn(c.nodes[2], &replica.Input{StopIDs: true})
			if got := c.nodes[2].Status(); got.WorkersReleasing != 1 || len(got.Workers) > 0 {
				t.Fatalf("after giving back: %+v", got)
			}
			c.until("it is on record", func() bool { return c.nodes[2].Status().WorkersReleasing == 0 })
			if l, _ := c.leader().WorkerLease(7); l.Session != 0 || l.End <= was.Start || l.End > c.millis()+1 {
				t.Errorf("on record: %+v", l)
			}
		}
		c.start(c.nodes[2])
		c.greet()
		c.nodes[2].workers = 1
		began := c.mono
		if !clean {
			c.until("it is refused", func() bool { return c.nodes[2].Status().WorkersRefused != nil })
			r := c.nodes[2].Status().WorkersRefused
			if r.Reason != oracle.LeaseHeld || r.Held.Node != 2 || r.Held.Session == c.nodes[2].Hello().Session {
				t.Errorf("refused: %+v", r)
			}
		}
		c.leasing()
		if c.nodes[2].Status().WorkersRefused != nil {
			t.Errorf("a refusal outlasts the grant: %+v", c.nodes[2].Status().WorkersRefused)
		}
		if took := c.mono - began; clean && took > 50*tick || took > (leaseMillis+400)*time.Millisecond {
			t.Errorf("given back %v: it took %v to have it again", clean, took)
		}
		if now := c.nodes[2].Status().Workers[0]; now.Start < was.Start+1 || !clean && now.Start < was.End {
			t.Errorf("I9: %+v follows %+v", now, was)
		}
	}
}

// held keeps copies of all proposals that were forwarded, and lets them pass.
func (c *cluster) held() *[]*raftpb.Message {
	var list []*raftpb.Message
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() == raftpb.MsgProp {
			list = append(list, m)
		}
		return false
	}
	return &list
}

// TestWorkers_LateAndRepeatedProposalsAreHarmless lets everything that a follower ever
// forwarded arrive again: in its term, in a later one, after it gave all back, and after
// its process has died.
func TestWorkers_LateAndRepeatedProposalsAreHarmless(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leader()
	held := c.held()
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	used := map[uint16]uint64{} // by worker: the end of all leases that were seen
	check := func() {
		t.Helper()
		l := c.leader()
		dropped := l.Status().Counters.ProposalsDropped
		for _, m := range *held {
			c.turn(l, &replica.Input{Messages: []*raftpb.Message{m}})
			c.turn(l, &replica.Input{Messages: []*raftpb.Message{m}})
		}
		if l.Status().Counters.ProposalsDropped != dropped {
			t.Error("some were dropped: that tests nothing")
		}
		before := map[uint64][]oracle.WorkerLease{}
		for _, n := range c.running() {
			before[n.id] = n.Status().Workers
		}
		c.settle()
		for _, n := range c.running() {
			for _, l := range before[n.id] {
				now, _ := n.WorkerLease(l.Worker)
				if now.Start != l.Start || now.End < l.End || !now.IsHeldBy(l.Node, l.Session) {
					t.Errorf("I9: node %d held %+v, now it is %+v", n.id, l, now)
				}
			}
		}
	}
	check()
	for range 3 {
		for _, l := range f.Status().Workers {
			used[l.Worker] = max(used[l.Worker], l.Start+1)
		}
		c.release(f)
		c.until("it is on record", func() bool { return f.Status().WorkersReleasing == 0 })
		c.leasing()
		for _, l := range f.Status().Workers {
			if l.Start < used[l.Worker] {
				t.Errorf("I9: worker %d was used before %d and is leased from %d", l.Worker, used[l.Worker], l.Start)
			}
		}
		check()
	}
	c.turn(c.leader(), &replica.Input{Transfer: true})
	c.settle()
	c.leader()
	check()
	c.start(f)
	c.greet()
	c.leasing()
	check()
}

func TestWorkers_AReleaseIsRepeatedUntilItIsOnRecord(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	lost := 0
	c.drop = func(m *raftpb.Message) bool {
		if m.GetType() != raftpb.MsgProp || lost == 2 {
			return false
		}
		lost++
		return true
	}
	c.turn(f, &replica.Input{StopIDs: true})
	c.until("it is on record", func() bool { return f.Status().WorkersReleasing == 0 })
	if lost != 2 {
		t.Errorf("%d messages were lost", lost)
	}
	c.tick(200)
	if got := f.Status().Workers; len(got) > 0 {
		t.Errorf("it holds %+v and wants none", got)
	}
}

func TestWorkers_AMemberMayProposeNothingElse(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	l := c.leader()
	f := c.nodes[l.id%3+1]
	own := oracle.LeaseRequest{
		Space: space, Node: f.id, Session: f.Hello().Session, Slots: 3, Fixed: oracle.AnyWorker, From: c.millis(), Until: c.millis() + 1,
	}
	foreign, client := own, own
	foreign.Node, foreign.Session = l.id, l.Hello().Session
	client.Node = 0
	entry := func(c oracle.Command) []*raftpb.Entry { return []*raftpb.Entry{{Data: c.Append(nil)}} }
	lease := func(q oracle.LeaseRequest) []*raftpb.Entry {
		return entry(oracle.Command{Kind: oracle.KindLease, Lease: q})
	}
	release := oracle.Release{Node: l.id, Session: l.Hello().Session, Used: []oracle.Used{{Worker: l.Status().Workers[0].Worker, Start: l.Status().Workers[0].Start}}}
	conf := lease(own)
	conf[0].Type = raftpb.EntryConfChangeV2.Enum()
	for name, tc := range map[string]struct {
		entries []*raftpb.Entry
		dropped uint64
	}{
		"a lease of its own":       {lease(own), 0},
		"a lease of another":       {lease(foreign), 1},
		"a lease of a client":      {lease(client), 1},
		"a release of another":     {entry(oracle.Command{Kind: oracle.KindRelease, Release: release}), 1},
		"a release of a client":    {entry(oracle.Command{Kind: oracle.KindRelease, Release: oracle.Release{Session: 5}}), 1},
		"a ceiling":                {entry(oracle.Command{Kind: oracle.KindReserve, Target: 1 << 62}), 1},
		"a record":                 {entry(oracle.Command{Kind: oracle.KindRegister, Member: oracle.Member{ID: f.id}}), 1},
		"a change of membership":   {conf, 1},
		"two at once":              {append(lease(own), lease(own)...), 1},
		"nothing":                  {nil, 1},
		"an empty entry":           {[]*raftpb.Entry{{}}, 1},
		"something not understood": {[]*raftpb.Entry{{Data: []byte{200}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := l.Status()
			c.turn(l, &replica.Input{Messages: []*raftpb.Message{{
				Type: raftpb.MsgProp.Enum(), From: new(f.id), To: new(l.id), Term: new(before.Term), Entries: tc.entries,
			}}})
			c.settle()
			after := l.Status()
			if got := after.Counters.ProposalsDropped - before.Counters.ProposalsDropped; got != tc.dropped {
				t.Errorf("%d were dropped, want %d", got, tc.dropped)
			}
			if got := after.Applied - before.Applied; got != 1-tc.dropped {
				t.Errorf("%d entries were applied", got)
			}
		})
	}
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgProp.Enum(), From: new(l.id), To: new(f.id), Term: new(l.Status().Term), Entries: lease(foreign),
	}}})
	if got := f.Status().Counters.ProposalsDropped; got != 1 {
		t.Errorf("a follower dropped %d", got)
	}
}

func TestWorkers_ANodeOfAnotherLayoutIsRefusedAndSaysWhy(t *testing.T) {
	c := newIDCluster(t, nil)
	c.nodes[3].down = true // the first to ask decides
	c.leasing()
	c.nodes[3].cfg.Space.Epoch = 5
	c.start(c.nodes[3])
	c.greet()
	c.until("it is refused", func() bool { return c.nodes[3].Status().WorkersRefused != nil })
	if r := c.nodes[3].Status().WorkersRefused; r.Reason != oracle.LeaseSpace || r.Space != space || !errors.Is(r.Err(), isotone.ErrInvalidArgument) {
		t.Errorf("refused: %+v", r)
	}
}

func TestWorkers_SurviveASnapshot(t *testing.T) {
	c := newIDCluster(t, func(cfg *replica.Config) { cfg.SnapshotEvery = 8 })
	c.leasing()
	l := c.leader()
	late := c.nodes[l.id%3+1]
	late.down = true
	c.tick(300)
	c.start(late)
	c.greet()
	c.leasing()
	c.until("all have applied the same", func() bool {
		return c.nodes[1].Status().Applied == c.nodes[2].Status().Applied && c.nodes[2].Status().Applied == c.nodes[3].Status().Applied
	})
	for _, n := range c.running() {
		if !slices.Equal(n.WorkerLeases(), l.WorkerLeases()) {
			t.Errorf("node %d has %+v, the leader %+v", n.id, n.WorkerLeases(), l.WorkerLeases())
		}
	}
}

func TestWorkers_NoneAreLeasedUnlessTheyAreWanted(t *testing.T) {
	c := newCluster(t, 3, func(cfg *replica.Config) { cfg.Workers = 2 }) // LeaseMillis is 0
	d := newCluster(t, 3, idNode)
	for _, c := range []*cluster{c, d} {
		c.tick(200)
		if got := c.leader().WorkerLeases(); len(got) > 0 {
			t.Errorf("leased: %+v", got)
		}
	}
}

func TestConfig_ValidateListsFaultsOfWorkerLeases(t *testing.T) {
	_, err := replica.New(replica.Config{LeaseMillis: oracle.LeaseMax + 1, FixedWorker: -2})
	for _, name := range []string{"LeaseMillis", "Space", "FixedWorker"} {
		if err == nil || !slices.Contains(lines(err), "replica: "+name+" is out of range") {
			t.Errorf("%s is missing in:\n%v", name, err)
		}
	}
}
