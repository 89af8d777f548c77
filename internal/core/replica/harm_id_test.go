package replica_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// idHarms are the bugs of generators that random runs would take too long to find.
var idHarms = map[mutant.Mutant]func(*testing.T) bool{
	mutant.WholeLease:       func(t *testing.T) bool { return repeatsAfterRestore(t, 3) || repeatsAfterRestore(t, 1) },
	mutant.LeaseBeforeEpoch: fixesUnusableSpace,
	mutant.RenewRarely:      runsOutOfShortLeases,
}

func TestGenerators_NoHarmIsDone(t *testing.T) { wantNoHarm(t, idHarms) }

// longLeases starts nodes that want one worker each, by leases of an hour.
func longLeases(t *testing.T, nodes int) *cluster {
	c := newCluster(t, nodes, func(cfg *replica.Config) {
		cfg.Space, cfg.FixedWorker, cfg.Workers = space, oracle.AnyWorker, 1
		cfg.LeaseMillis, cfg.ClockJumpMax = oracle.LeaseMax, time.Second
	})
	for _, n := range c.nodes {
		n.workers = 1
	}
	return c
}

// repeatsAfterRestore has the clock of a node with a lease of an hour jump ahead by half an hour between two
// steps, and reports whether the node makes an id there that a cluster might make again which is restored from a backup of
// before the lease, by right clocks.
func repeatsAfterRestore(t *testing.T, nodes int) bool {
	c := longLeases(t, nodes)
	l := c.leader()
	b := l.Backup()
	c.leasing()
	c.tick(20)
	for range 3 {
		c.use(l) // they work
		l.skew = 30 * time.Minute
		id, err := l.next()
		l.skew = 0
		c.tick(1)
		if err != nil {
			continue
		}
		state, err := oracle.DecodeState(b.State)
		if err != nil {
			t.Fatal(err)
		}
		now := uint64(c.mono)
		begin, err := replica.Beginning{Backup: replica.Mark{Time: state.Ceiling, At: now}, Now: now, Margin: 10 * time.Second}.Time()
		if err != nil {
			t.Fatal(err)
		}
		if fence := oracle.Restored(state, begin).Fence.Members; snowflake.Layout(space).Time(id).UnixMilli() >= int64(fence) {
			return true
		}
	}
	return false
}

// TestGenerators_UseTheirLeasesUpWhenCutOff: the steady clock goes on while no peer is heard.
func TestGenerators_UseTheirLeasesUpWhenCutOff(t *testing.T) {
	c := longLeases(t, 3)
	l := c.leader()
	c.leasing()
	f := c.followers(l)[0]
	c.isolate(f.id)
	end := time.Duration(f.Status().Workers[0].End) * time.Millisecond
	c.tick(100)
	for c.mono = c.mono + 50*time.Minute; c.mono < end-time.Second; c.tick(100) {
		c.turn(f, &replica.Input{Ticks: 1})
		if _, err := f.next(); err != nil {
			t.Fatalf("%v before the end of its lease: %v", end-c.mono, err)
		}
	}
	c.mono = end
	if _, err := f.next(); !errors.Is(err, snowflake.ErrLeaseEnded) {
		t.Errorf("at the end of its lease: %v", err)
	}
}

// TestGenerators_ASoleNodeRefusesAJumpOfItsClock until it is set back.
func TestGenerators_ASoleNodeRefusesAJumpOfItsClock(t *testing.T) {
	c := longLeases(t, 1)
	l := c.leader()
	c.leasing()
	c.tick(2)
	c.use(l)
	l.skew = time.Minute
	c.tick(2)
	if err := l.Status().IDsRefused; !errors.Is(err, isotone.ErrClock) {
		t.Errorf("a minute ahead: %v", err)
	}
	l.skew = 0
	c.tick(2)
	if err := l.Status().IDsRefused; err != nil {
		t.Errorf("set right: %v", err)
	}
	c.use(l)
}

// TestGenerators_WhoHearsNobodyNoticesAJumpOfItsClock, and says so: an isolated node, and a sole voter whose learner is
// not up.
func TestGenerators_WhoHearsNobodyNoticesAJumpOfItsClock(t *testing.T) {
	for name, alone := range map[string]func() (*cluster, *node){
		"isolated": func() (*cluster, *node) {
			c := longLeases(t, 3)
			f := c.followers(c.leader())[0]
			c.leasing()
			c.isolate(f.id)
			c.tick(1500)
			return c, f
		},
		"sole voter": func() (*cluster, *node) {
			c := longLeases(t, 1)
			l := c.leader()
			c.leasing()
			if err := c.change(l, replica.AddLearner, 4, "peer:1"); err != nil {
				t.Fatal(err)
			}
			c.tick(200)
			return c, l
		},
	} {
		c, n := alone()
		c.use(n)
		n.skew = time.Minute
		c.tick(2)
		if err := n.Status().IDsRefused; !errors.Is(err, isotone.ErrClock) {
			t.Errorf("%s, a minute ahead: %v", name, err)
		}
		n.skew = 0
		c.tick(2)
		if err := n.Status().IDsRefused; err != nil {
			t.Errorf("%s, set right: %v", name, err)
		}
		c.use(n)
	}
}

// runsOutOfShortLeases: a lease lasts five ticks, the least that the settings allow. It reports whether ids fail although
// all is well.
func runsOutOfShortLeases(t *testing.T) bool {
	c := newIDCluster(t, func(cfg *replica.Config) { cfg.LeaseMillis = 5 * uint64(tick/time.Millisecond) })
	c.leasing()
	for range 200 {
		c.tick(1)
		for _, n := range c.running() {
			if _, err := n.next(); errors.Is(err, snowflake.ErrLeaseEnded) {
				return true
			}
		}
	}
	return false
}

// fixesUnusableSpace: the epoch is a typing error, far ahead of all clocks. It reports whether that becomes the cluster's for
// ever, by a lease of a node or of a client.
func fixesUnusableSpace(t *testing.T) (fixed bool) {
	for _, workers := range []int{1, 0} {
		c := newCluster(t, 3, func(cfg *replica.Config) {
			idNode(cfg)
			cfg.Space.Epoch, cfg.Workers = 1704067200000000, workers
		})
		l := c.leader()
		c.lease(l, c.wants(91))
		c.tick(200)
		fixed = fixed || l.Space() != (oracle.Space{})
	}
	return fixed
}

// TestGenerators_MakeNoIDsBeforeTheirEpoch, say so, and begin with it.
func TestGenerators_MakeNoIDsBeforeTheirEpoch(t *testing.T) {
	const epoch = uint64(2 * time.Hour / time.Millisecond)
	c := newIDCluster(t, func(cfg *replica.Config) { cfg.Space.Epoch = int64(epoch) })
	l := c.leader()
	token := c.lease(l, c.wants(91))
	c.tick(200)
	if got := l.leaseOutcome(token); got != isotone.CodeClock {
		t.Errorf("a client is answered %q", got)
	}
	for _, n := range c.running() {
		if err := n.Status().IDsRefused; !errors.Is(err, isotone.ErrClock) || !strings.Contains(err.Message, "SNOWFLAKE_EPOCH_MS=7200000") {
			t.Errorf("node %d: %v", n.id, err)
		}
	}
	c.mono = time.Duration(epoch) * time.Millisecond
	c.leasing()
	for _, n := range c.running() {
		c.use(n)
	}
}

// TestLease_AClientMayAskForTheBeginningOfTime: where a lease begins, the cluster decides.
func TestLease_AClientMayAskForTheBeginningOfTime(t *testing.T) {
	c := newIDCluster(t, func(cfg *replica.Config) { cfg.Space.Epoch = 1000 })
	c.mono += time.Hour
	l := c.leader()
	q := c.wants(91)
	q.Space, q.FromMillis = l.Space(), 1
	token := c.lease(l, q)
	c.tick(20)
	if got := l.leaseOutcome(token); got != "ok" {
		t.Errorf("answered %q", got)
	}
}
