package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/oracle"
	"github.com/isotone/isotone/internal/replica"
	"github.com/isotone/isotone/snowflake"
)

// IDConfig says which snowflake ids a node makes. The zero value is none.
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

// ids is the generators of a node. Its loop replaces them as leases come and go (I9);
// anybody uses them.
type ids struct {
	cfg   IDConfig
	clock Clock
	slots []idSlot
	// refused, if not nil, is why no ids are made at all.
	refused atomic.Pointer[isotone.Error]
	// noWorker, if not nil, is why the cluster leases no worker to this node.
	noWorker atomic.Pointer[isotone.Error]
}

// idSlot is a worker that is leased. Each loop has one that others leave alone, as long
// as theirs can do.
type idSlot struct {
	generator atomic.Pointer[snowflake.Generator] // nil: there is no lease
	made      atomic.Uint64
	// behind is set when the clock went back so far that this worker makes no ids for a
	// while. Another one can.
	behind atomic.Bool
	_      [128 - 24]byte // another cache line
}

func newIDs(cfg IDConfig, clock Clock, loops int) *ids {
	return &ids{cfg: cfg, clock: clock, slots: make([]idSlot, cfg.workers(loops))}
}

// wanted is how many workers to lease.
func (g *ids) wanted() int {
	if g.refused.Load() != nil {
		return 0
	}
	return len(g.slots)
}

// fill makes ids by the worker of a slot, or by another that can.
func (g *ids) fill(slot int, dst []snowflake.ID) error {
	if err := g.refused.Load(); err != nil {
		return err
	}
	var last error = errNoWorker
	if why := g.noWorker.Load(); why != nil {
		last = why
	}
	for i := range g.slots {
		s := &g.slots[(slot+i)%len(g.slots)]
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
			s.behind.Store(true)
		}
	}
	return idFault(last)
}

var errNoWorker = isotone.Errorf(isotone.CodeNoLeader, "this node has no worker id yet, or could not renew it")

// idFault puts an error of a generator into the vocabulary.
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

// follow makes the generators those of leases. It belongs to the loop's goroutine.
func (g *ids) follow(leases []oracle.WorkerLease) {
	var held [oracle.SlotsMax]bool
	for _, l := range leases {
		if int(l.Slot) >= len(g.slots) {
			continue // of a time when more were wanted, which is never
		}
		held[l.Slot] = true
		s := &g.slots[l.Slot]
		old := s.generator.Load()
		if old != nil && old.Worker() == int(l.Worker) && old.Lease().Start == int64(l.Start) {
			old.Extend(int64(l.End))
			continue
		}
		if old != nil {
			old.Stop()
		}
		made, err := snowflake.NewGenerator(int(l.Worker), snowflake.Options{
			Layout: g.cfg.Layout, Now: g.now, Lease: snowflake.Lease{Start: int64(l.Start), End: int64(l.End)},
		})
		if err != nil {
			panic(fmt.Sprintf("I9: a lease that no generator takes: %+v: %v", l, err))
		}
		s.generator.Store(made)
	}
	for i := range g.slots {
		if old := g.slots[i].generator.Load(); old != nil && !held[i] {
			old.Stop()
			g.slots[i].generator.Store(nil)
		}
	}
}

// stop ends all generators, and returns what of their leases was not used.
func (g *ids) stop() (rest []oracle.Used) {
	for i := range g.slots {
		s := &g.slots[i]
		if old := s.generator.Load(); old != nil {
			rest = append(rest, oracle.Used{
				Worker: uint16(old.Worker()), Start: uint64(old.Lease().Start), Next: uint64(old.Stop()),
			})
			s.generator.Store(nil)
		}
	}
	return rest
}

// giveUpBehind ends the generators that wait for the clock to come after, if others can be
// had, and returns what of their leases was not used. Whoever has a fixed worker waits.
func (g *ids) giveUpBehind() (rest []oracle.Used) {
	for i := range g.slots {
		s := &g.slots[i]
		old := s.generator.Load()
		if !s.behind.Swap(false) || old == nil || g.cfg.FixedWorker != oracle.AnyWorker || g.refused.Load() != nil {
			continue
		}
		rest = append(rest, oracle.Used{Worker: uint16(old.Worker()), Start: uint64(old.Lease().Start), Next: uint64(old.Stop())})
		s.generator.Store(nil)
	}
	return rest
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
	for i := range g.slots {
		if generator := g.slots[(s.slot+i)%len(g.slots)].generator.Load(); generator != nil {
			return generator.Worker(), g.cfg.Layout, nil
		}
	}
	return 0, g.cfg.Layout, errNoWorker
}

// IDs returns the ids for a loop's fronts, counted from 0, or for everything else: -1.
// See front.IDs. They may be used from any goroutine, at the price of a shared cache line.
func (n *Node) IDs(loop int) slotIDs {
	if loop < 0 {
		loop = len(n.branches) + 1
	}
	return slotIDs{n.ids, loop}
}

// ReleaseWorkers gives the worker ids back, so that they can be leased again at once. No
// ids are made from here on. It returns when a quorum has agreed, or with ctx.
func (n *Node) ReleaseWorkers(ctx context.Context) error {
	released := make(chan struct{})
	if !n.mail.post(func(in *mail) { in.calls = append(in.calls, func() { n.releaseWorkers(released) }) }) {
		return nil
	}
	select {
	case <-released:
		return nil
	case <-n.homeDone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node %d: give worker ids back: %w", n.cfg.NodeID, context.Cause(ctx))
	}
}

// releaseWorkers is ReleaseWorkers, in the loop.
func (n *Node) releaseWorkers(released chan struct{}) {
	n.ids.refused.Store(errStopped)
	n.release = append(n.release, n.ids.stop()...)
	if len(n.release) == 0 && n.replica.Status().WorkersReturning == 0 {
		close(released)
		return
	}
	n.returned = append(n.returned, released)
}

// followWorkers carries what the replica says of worker ids to those who make ids.
func (n *Node) followWorkers(r *replica.Status) {
	var noWorker *isotone.Error
	if r.WorkersRefused != nil {
		noWorker = isotone.Errorf(isotone.CodeNoLeader, "this node has no worker id: %s", r.WorkersRefused.Err().Message)
	}
	n.ids.noWorker.Store(noWorker)
	if n.ids.refused.Load() != errStopped {
		n.ids.follow(r.Workers)
		n.release = append(n.release, n.ids.giveUpBehind()...)
	}
	if len(n.release) == 0 && r.WorkersReturning == 0 {
		for _, c := range n.returned {
			close(c)
		}
		n.returned = nil
	}
}

// NowMillis returns the node's clock, unix milliseconds.
func (n *Node) NowMillis() int64 { return n.ids.now() }
