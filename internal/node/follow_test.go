package node

import (
	"errors"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// stillClock stands at a millisecond.
type stillClock struct {
	SystemClock
	ms int64
}

func (c *stillClock) Wall() time.Time { return time.UnixMilli(c.ms) }

const followBase = 1_700_000_000_000

// generator makes ids of a worker until end.
func generator(t *testing.T, clock *stillClock, worker int, end int64) *snowflake.Generator {
	t.Helper()
	g, err := snowflake.NewGenerator(worker, snowflake.Options{
		Now:   func() int64 { return clock.ms },
		Lease: snowflake.Lease{Start: followBase, End: followBase + end},
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// one makes an id by a slot, and wants it to be of a worker, or an error.
func (g *ids) one(t *testing.T, slot, worker int, want error) {
	t.Helper()
	var dst [1]snowflake.ID
	err := g.fill(slot, dst[:])
	if !errors.Is(err, want) || err == nil && snowflake.Twitter.Worker(dst[0]) != worker {
		t.Errorf("slot %d: worker %d, %v; want %d, %v", slot, snowflake.Twitter.Worker(dst[0]), err, worker, want)
	}
}

func TestFollow_ASlotUsesAnothersWorkerWhenItHasNone(t *testing.T) {
	clock := &stillClock{ms: followBase}
	g := newIDs(IDConfig{Layout: snowflake.Twitter, Workers: 3, FixedWorker: oracle.AnyWorker, Lease: time.Second}, clock, 1)
	g.one(t, 0, 0, isotone.ErrNoWorker)
	s := &replica.Status{Generators: []*snowflake.Generator{nil, generator(t, clock, 7, 1000), generator(t, clock, 8, 2000)}}
	g.follow(s)
	g.one(t, 0, 7, nil)
	g.one(t, 1, 7, nil)
	g.one(t, 2, 8, nil)
	clock.ms += 1500
	g.one(t, 1, 8, nil) // 7 was not renewed
	if worker, _, err := (slotIDs{g, 3}).Worker(); worker != 8 || err != nil {
		t.Errorf("worker %d, %v", worker, err)
	}
	if g.made() != 4 {
		t.Errorf("%d ids were made", g.made())
	}
	s.IDsRefused = isotone.Errorf(isotone.CodeClock, "off")
	g.follow(s)
	g.one(t, 1, 0, isotone.ErrClock)
	if _, _, err := (slotIDs{g, 0}).Worker(); !errors.Is(err, isotone.ErrClock) {
		t.Errorf("%v", err)
	}
}

// The replica hears of a generator whose clock went back, once for each time that it was
// tried.
func TestFill_NotesGeneratorsThatWaitForTheClock(t *testing.T) {
	clock := &stillClock{ms: followBase + 20_000}
	g := newIDs(IDConfig{Layout: snowflake.Twitter, Workers: 2, FixedWorker: oracle.AnyWorker, Lease: time.Second}, clock, 1)
	g.follow(&replica.Status{Generators: []*snowflake.Generator{generator(t, clock, 3, 30_000), generator(t, clock, 4, 30_000)}})
	g.one(t, 1, 4, nil)
	if got := g.takeBehind(); got != 0 {
		t.Errorf("behind: %b", got)
	}
	clock.ms -= 20_000
	g.one(t, 1, 3, nil)
	if got := g.takeBehind(); got != 0b10 {
		t.Errorf("behind: %b", got)
	}
	if got := g.takeBehind(); got != 0 {
		t.Errorf("behind, taken again: %b", got)
	}
}
