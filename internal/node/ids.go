package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// IDConfig says which snowflake ids a node makes. The zero value disables them.
type IDConfig struct {
	Layout snowflake.Layout
	// Workers is how many worker ids the node leases, at most oracle.SlotsMax; 0 means one
	// for each loop and one for everything else.
	Workers int
	// FixedWorker is the one worker id that the node leases, or oracle.AnyWorker.
	FixedWorker int
	// Lease is for how long a worker id is leased; 0 means that no ids are made.
	Lease time.Duration
}

func (c *IDConfig) workers(loops int) int {
	switch {
	case c.Lease == 0:
		return 0
	case c.FixedWorker != oracle.AnyWorker:
		return 1
	case c.Workers > 0:
		return c.Workers
	default:
		return min(max(loops, 1)+1, oracle.SlotsMax)
	}
}

// ids holds the generators of a node. The replica decides which there are, the core stores
// them here, and any goroutine makes ids with them (I9).
type ids struct {
	cfg   IDConfig
	clock Clock
	slots []idSlot
	// refused, if not nil, is why no ids are made at all.
	refused atomic.Pointer[isotone.Error]
	// noWorker, if not nil, is why the cluster leases no worker to this node.
	noWorker atomic.Pointer[isotone.Error]
	// behind has a bit for each slot whose generator makes no ids for a while because the
	// clock went back. A generator of another worker can.
	behind atomic.Uint64
}

// idSlot is one leased worker. Each loop prefers a slot of its own.
type idSlot struct {
	generator atomic.Pointer[snowflake.Generator] // nil: there is no lease
	made      atomic.Uint64
	_         [128 - 16]byte // another cache line
}

func newIDs(cfg IDConfig, clock Clock, loops int) *ids {
	g := &ids{cfg: cfg, clock: clock, slots: make([]idSlot, cfg.workers(loops))}
	if len(g.slots) > 0 {
		g.refused.Store(errNoWorker)
	}
	return g
}

// fill makes ids with the worker of a slot, or with another one if that cannot.
func (g *ids) fill(slot int, dst []snowflake.ID) error {
	if err := g.refused.Load(); err != nil {
		return err
	}
	var last error = errNoWorker
	if why := g.noWorker.Load(); why != nil {
		last = why
	}
	for i := range g.slots {
		at := (slot + i) % len(g.slots)
		s := &g.slots[at]
		generator := s.generator.Load()
		if generator == nil {
			continue
		}
		err := generator.TryFill(dst)
		if err == nil {
			s.made.Add(uint64(len(dst)))
			return nil
		}
		if last = err; errors.Is(err, snowflake.ErrInvalidSystemClock) {
			g.behind.Or(1 << at)
		}
	}
	return idFault(last)
}

var errNoWorker = isotone.Errorf(isotone.CodeNoWorker, "this node has no worker id yet, or could not renew it")

// idFault translates an error of a generator.
func idFault(err error) error {
	var e *isotone.Error
	switch {
	case errors.Is(err, snowflake.ErrLeaseEnded):
		return errNoWorker // it is renewed by a quorum
	case errors.As(err, &e):
		return e
	default:
		return err
	}
}

// follow stores what the replica has decided.
func (g *ids) follow(r *replica.Status) {
	for i := range g.slots {
		g.slots[i].generator.Store(r.Generators[i])
	}
	g.refused.Store(r.IDsRefused)
	var noWorker *isotone.Error
	if r.WorkersRefused != nil {
		noWorker = isotone.Errorf(isotone.CodeNoWorker, "this node has no worker id: %s", r.WorkersRefused.Err().Message)
	}
	g.noWorker.Store(noWorker)
}

// takeBehind returns behind and clears it.
func (g *ids) takeBehind() uint64 {
	if g.behind.Load() == 0 {
		return 0
	}
	return g.behind.Swap(0)
}

func (g *ids) now() int64 { return g.clock.Wall().UnixMilli() }

// made is how many ids there have been.
func (g *ids) made() (sum uint64) {
	for i := range g.slots {
		sum += g.slots[i].made.Load()
	}
	return sum
}

// slotIDs is the ids of one loop, or of everything else. It implements front.IDs.
type slotIDs struct {
	ids  *ids
	slot int
}

func (s slotIDs) Fill(dst []snowflake.ID) error { return s.ids.fill(s.slot, dst) }

func (s slotIDs) Worker() (worker int, layout snowflake.Layout, err error) {
	g := s.ids
	if err := g.refused.Load(); err != nil {
		return 0, g.cfg.Layout, err
	}
	now := g.now()
	for i := range g.slots {
		if generator := g.slots[(s.slot+i)%len(g.slots)].generator.Load(); generator != nil && generator.Lease().End > now {
			return generator.Worker(), g.cfg.Layout, nil
		}
	}
	return 0, g.cfg.Layout, errNoWorker
}

// IDs returns the ids for a loop's fronts, counted from 0, or for everything else: -1.
// See front.IDs. They may be used from any goroutine, at the price of a shared cache line.
func (n *Node) IDs(loop int) slotIDs {
	if loop < 0 {
		loop = len(n.hosts)
	}
	return slotIDs{n.ids, loop}
}

// ReleaseWorkers gives the worker ids back, so that they can be leased again at once. No
// ids are made from here on. It returns when a quorum has agreed, or with ctx.
func (n *Node) ReleaseWorkers(ctx context.Context) error {
	returned := make(chan struct{})
	c := n.core
	if !n.post(func() {
		n.ids.refused.Store(errStopped)
		c.next.StopIDs = true
		c.returned = append(c.returned, returned)
	}) {
		return nil
	}
	return n.wait(ctx, returned, "give worker ids back")
}

// NowMillis returns the node's clock, unix milliseconds.
func (n *Node) NowMillis() int64 { return n.ids.now() }
