package replica_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// next makes an id in the first slot of a node.
func (n *node) next() (snowflake.ID, error) {
	gen := n.Status().Generators[0]
	if gen == nil {
		return 0, errNoGenerator
	}
	return gen.TryNext()
}

var errNoGenerator = errors.New("no generator")

func TestGenerators_LiveAsLongAsTheirGrant(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	first, old := f.Status().Workers[0], f.Status().Generators[0]
	c.use(f)
	c.tick(3 * leaseMillis / 10)
	if got := f.Status().Generators[0]; got != old || uint64(got.Lease().End) < c.millis() {
		t.Fatalf("renewed, the same generator goes on: %+v until %d at %d", got, got.Lease().End, c.millis())
	}
	c.use(f)

	// Out of sight for longer than a lease lasts: another one may have the worker now.
	f.down = true
	c.tick(3 * leaseMillis / 10)
	f.down = false
	if _, err := old.TryNext(); !errors.Is(err, snowflake.ErrLeaseEnded) {
		t.Errorf("after the end of the lease: %v", err)
	}
	c.leasing()
	for _, l := range f.Status().Workers {
		if l.Worker == first.Worker && l.Start == first.Start && f.Status().Generators[l.Slot] != old {
			t.Errorf("I9: a second generator for %+v", l)
		}
	}
}

func TestGenerators_GiveBackWhatTheyDidNotUse(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	if _, err := f.Status().Generators[0].TryNext(); err != nil {
		t.Fatal(err)
	}
	used, unused := f.Status().Workers[0], f.Status().Workers[1]
	if used.Slot != 0 {
		used, unused = unused, used
	}
	gens := f.Status().Generators
	c.turn(f, &replica.Input{StopIDs: true})
	for _, gen := range gens {
		if _, err := gen.TryNext(); !errors.Is(err, snowflake.ErrLeaseEnded) {
			t.Errorf("I9: what was given back goes on: %v", err)
		}
	}
	s := f.Status()
	if !s.IDsStopped || s.WorkersReleasing != 2 || len(s.Workers) > 0 || !errors.Is(s.IDsRefused, isotone.ErrNoLeader) {
		t.Errorf("after the stop: %+v", s)
	}
	c.until("it is on record", func() bool { return f.Status().WorkersReleasing == 0 })
	for l, next := range map[oracle.WorkerLease]uint64{used: c.millis(), unused: unused.Start + 1} {
		if got, _ := c.leader().WorkerLease(l.Worker); got.Session != 0 || got.End > next || got.End <= l.Start {
			t.Errorf("%+v was given back as %+v", l, got)
		}
	}
	c.turn(f, &replica.Input{StopIDs: true})
	c.tick(200)
	if got := f.Status().Workers; len(got) > 0 {
		t.Errorf("it holds %+v and wants none", got)
	}
}

// A lease that was given back is not seen without a generator by any step: that would begin
// again where the lease began. This is found 1 of the reading of the first release: there,
// the node ended the generator, and the replica heard of it a turn later.
func TestGenerators_AGrantThatIsGivenBackIsNeverRevived(t *testing.T) {
	c := newIDCluster(t, func(cfg *replica.Config) { cfg.IDAheadMax = 50 * time.Millisecond })
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	seen := map[snowflake.ID]bool{}
	note := func() {
		for _, gen := range f.Status().Generators {
			if gen == nil {
				continue
			}
			if id, err := gen.TryNext(); err == nil {
				if seen[id] {
					t.Fatalf("I9: %d twice", id)
				}
				seen[id] = true
			}
		}
	}
	for range 40 {
		c.tick(1)
		note()
	}
	f.skew = -250 * time.Millisecond // the wall clock is stepped back
	for _, in := range []*replica.Input{{Behind: 3}, {}, {Ticks: 1}, {Behind: 3}, {}} {
		c.turn(f, in)
		note()
	}
	for range 200 {
		c.tick(1)
		note()
	}
	if len(seen) < 100 {
		t.Errorf("only %d ids", len(seen))
	}
}

// A clock that went far back stops a worker until it has come after; another one takes its
// place at once, unless the worker is fixed, and only while ids may be made at all.
func TestGenerators_AnotherWorkerTakesThePlaceOfOneThatWaitsForTheClock(t *testing.T) {
	c := newIDCluster(t, func(cfg *replica.Config) {
		cfg.Workers = 1
		if cfg.Self.NodeID == 3 {
			cfg.FixedWorker = 7
		}
	})
	for _, n := range c.nodes {
		n.workers = 1
	}
	c.leasing()
	for _, id := range []uint64{2, 3} {
		n := c.nodes[id]
		was := n.Status().Generators[0]
		c.use(n)
		c.turn(n, &replica.Input{Behind: 1})
		if is := n.Status().Generators[0] == was; is != (id == 3) {
			t.Errorf("node %d keeps its generator: %v", id, is)
		}
		c.leasing()
		if _, err := n.next(); err != nil {
			t.Errorf("node %d: %v", id, err)
		}
	}
}

func TestGenerators_NodesWhoseClockIsFarOffItsPeersMakeNoIDs(t *testing.T) {
	c := newIDCluster(t, nil)
	c.leasing()
	f := c.nodes[c.leader().id%3+1]
	for _, skew := range []time.Duration{time.Minute, -time.Minute, replica.SkewMax + time.Second} {
		f.skew = skew
		c.tick(1)
		s := f.Status()
		if !errors.Is(s.IDsRefused, isotone.ErrClock) || !strings.Contains(s.IDsRefused.Message, "median") {
			t.Errorf("%v off: refused with %v", skew, s.IDsRefused)
		}
		f.skew = replica.SkewMax - time.Second
		c.tick(1)
		if got := f.Status().IDsRefused; got != nil {
			t.Errorf("it agrees again, and is refused with %v", got)
		}
	}
	f.skew = 0
	c.tick(1)

	// Out of sight of all: what was decided stays.
	c.isolate(f.id)
	c.tick(3000)
	if got := f.Status().IDsRefused; got != nil {
		t.Errorf("alone it is refused with %v", got)
	}
	c.isolate()
	f.skew = time.Minute
	c.tick(200)
	c.isolate(f.id)
	c.tick(3000)
	if got := f.Status().IDsRefused; !errors.Is(got, isotone.ErrClock) {
		t.Errorf("out of sight it is refused with %v", got)
	}

	// Before it has heard of anybody it makes none either.
	c.start(f)
	if got := f.Status().IDsRefused; !errors.Is(got, isotone.ErrNoLeader) {
		t.Errorf("at the start it is refused with %v", got)
	}
	alone := newCluster(t, 1, func(cfg *replica.Config) { idNode(cfg); cfg.Workers = 1 })
	alone.nodes[1].workers = 1
	alone.leasing()
	if slices.Contains(alone.nodes[1].Status().Generators, nil) {
		t.Error("a node alone makes none")
	}
}
