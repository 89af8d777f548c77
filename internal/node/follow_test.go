package node

import (
	"errors"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/oracle"
	"github.com/isotone/isotone/snowflake"
)

// stillClock stands at a millisecond.
type stillClock struct {
	SystemClock
	ms int64
}

func (c *stillClock) Wall() time.Time { return time.UnixMilli(c.ms) }

const followBase = 1_700_000_000_000

func newFollowing(workers int) (*ids, *stillClock) {
	clock := &stillClock{ms: followBase}
	return newIDs(IDConfig{Layout: snowflake.Twitter, Workers: workers, FixedWorker: oracle.AnyWorker, Lease: time.Second}, clock, 1), clock
}

func leaseOf(slot uint8, worker uint16, start, end uint64) oracle.WorkerLease {
	return oracle.WorkerLease{Slot: slot, Worker: worker, Start: followBase + start, End: followBase + end}
}

// one makes an id by a slot, and wants it to be of a worker, or an error.
func (g *ids) one(t *testing.T, slot, worker int, want error) snowflake.ID {
	t.Helper()
	var dst [1]snowflake.ID
	err := g.fill(slot, dst[:])
	if !errors.Is(err, want) || err == nil && snowflake.Twitter.Worker(dst[0]) != worker {
		t.Errorf("slot %d: worker %d, %v; want %d, %v", slot, snowflake.Twitter.Worker(dst[0]), err, worker, want)
	}
	return dst[0]
}

func TestFollow_AGeneratorLivesAsLongAsItsGrant(t *testing.T) {
	g, clock := newFollowing(1)
	g.one(t, 0, 0, isotone.ErrNoLeader)
	g.follow([]oracle.WorkerLease{leaseOf(0, 4, 0, 1000)})
	first := g.one(t, 0, 4, nil)
	old := g.slots[0].generator.Load()

	clock.ms += 1000 // the lease ends; renewed, the same generator goes on
	g.one(t, 0, 0, isotone.ErrNoLeader)
	g.follow([]oracle.WorkerLease{leaseOf(0, 4, 0, 2000)})
	if second := g.one(t, 0, 4, nil); second <= first || g.slots[0].generator.Load() != old {
		t.Errorf("%d after %d", second, first)
	}

	// Another grant of the same worker: whoever still has the old generator is refused (I9).
	clock.ms += 1000
	g.follow([]oracle.WorkerLease{leaseOf(0, 4, 2000, 3000)})
	third := g.one(t, 0, 4, nil)
	if _, err := old.TryNext(); !errors.Is(err, snowflake.ErrLeaseEnded) {
		t.Errorf("the generator of the former grant: %v", err)
	}
	if snowflake.Twitter.Millis(third) < followBase+2000 {
		t.Errorf("%d is of the former grant", third)
	}

	old = g.slots[0].generator.Load()
	g.follow(nil) // the grant is gone
	g.one(t, 0, 0, isotone.ErrNoLeader)
	if _, err := old.TryNext(); !errors.Is(err, snowflake.ErrLeaseEnded) {
		t.Errorf("the generator of a grant that is gone: %v", err)
	}
	if g.made() != 3 {
		t.Errorf("%d ids were made", g.made())
	}
}

func TestFollow_ASlotUsesAnothersWorkerWhenItHasNone(t *testing.T) {
	g, clock := newFollowing(3)
	g.follow([]oracle.WorkerLease{leaseOf(1, 7, 0, 1000), leaseOf(2, 8, 0, 2000), leaseOf(3, 9, 0, 2000)}) // there is no slot 3
	g.one(t, 0, 7, nil)
	g.one(t, 1, 7, nil)
	g.one(t, 2, 8, nil)
	clock.ms += 1500
	g.one(t, 1, 8, nil) // 7 was not renewed
	if worker, _, err := (slotIDs{g, 3}).Worker(); worker != 7 || err != nil {
		t.Errorf("worker %d, %v", worker, err)
	}
	g.refused.Store(isotone.Errorf(isotone.CodeClock, "off"))
	g.one(t, 1, 0, isotone.ErrClock)
	if _, _, err := (slotIDs{g, 0}).Worker(); !errors.Is(err, isotone.ErrClock) || g.wanted() != 0 {
		t.Errorf("%v, %d wanted", err, g.wanted())
	}
}

func TestStop_GivesBackWhatWasNotUsed(t *testing.T) {
	g, _ := newFollowing(3)
	g.follow([]oracle.WorkerLease{leaseOf(0, 1, 0, 1000), leaseOf(2, 3, 500, 1000)})
	g.one(t, 0, 1, nil)
	rest := g.stop()
	want := []oracle.Used{
		{Worker: 1, Start: followBase, Next: followBase + 1},
		{Worker: 3, Start: followBase + 500, Next: followBase + 500}, // never used
	}
	if len(rest) != 2 || rest[0] != want[0] || rest[1] != want[1] {
		t.Errorf("%+v, want %+v", rest, want)
	}
	g.one(t, 0, 0, isotone.ErrNoLeader)
	if again := g.stop(); len(again) != 0 {
		t.Errorf("given back twice: %+v", again)
	}
}

// A clock that went far back stops a worker until it has come after; another one takes its
// place at once, unless the worker is fixed, and only while ids may be made at all.
func TestGiveUpBehind_LetsAnotherWorkerTakeThePlace(t *testing.T) {
	g, clock := newFollowing(1)
	clock.ms += 20_000
	g.follow([]oracle.WorkerLease{leaseOf(0, 4, 0, 30_000)})
	ahead := g.one(t, 0, 4, nil)
	old := g.slots[0].generator.Load()
	if rest := g.giveUpBehind(); rest != nil {
		t.Fatalf("a worker that makes ids was given up: %+v", rest)
	}
	clock.ms -= 20_000
	g.one(t, 0, 0, isotone.ErrClock)

	g.refused.Store(errClockUnknown)
	if rest := g.giveUpBehind(); rest != nil || g.slots[0].generator.Load() != old {
		t.Fatalf("given up although no ids may be made: %+v", rest)
	}
	g.refused.Store(nil)
	g.one(t, 0, 0, isotone.ErrClock)
	rest := g.giveUpBehind()
	next := uint64(snowflake.Twitter.Millis(ahead)) + 1
	if len(rest) != 1 || rest[0] != (oracle.Used{Worker: 4, Start: followBase, Next: next}) {
		t.Fatalf("given back: %+v, want the milliseconds from %d on", rest, next)
	}
	var dst [1]snowflake.ID
	if err := old.TryFill(dst[:]); !errors.Is(err, snowflake.ErrLeaseEnded) {
		t.Errorf("I9: what was given up goes on: %v", err)
	}
	g.follow([]oracle.WorkerLease{leaseOf(0, 5, 0, 1000)})
	g.one(t, 0, 5, nil)

	fixed, clock := newFollowing(1)
	fixed.cfg.FixedWorker = 4
	clock.ms += 20_000
	fixed.follow([]oracle.WorkerLease{leaseOf(0, 4, 0, 30_000)})
	fixed.one(t, 0, 4, nil)
	clock.ms -= 20_000
	fixed.one(t, 0, 0, isotone.ErrClock)
	if rest := fixed.giveUpBehind(); rest != nil {
		t.Errorf("a fixed worker was given up: %+v", rest)
	}
}
