package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/snowflake"
)

// The generators of ids of this node (I9). Each slot has a generator while the node holds a
// lease for it. Only this file makes, extends and stops generators, in the step that brings
// the reason; other goroutines only ask them for ids. A lease is released in the same step
// that stops its generator. Otherwise a later step would find a lease without a generator,
// make a second one, and begin again at the start of the lease.
//
// A generator reads its node's clock by itself, and a lease may be an hour long. So that a clock that jumps ahead
// between two steps makes no ids there, a generator may use its lease only up to SkewMax beyond the quorum's clock. A
// restored cluster relies on that (oracle.Restored): it does not know the latest leases. While this node knows
// too few clocks, the steady clock continues the latest reading: so a node that is cut off uses its leases up.

var (
	errClockUnknown = isotone.Errorf(isotone.CodeNoLeader, "no ids before this node's clock was compared with a peer's, and no peer has sent a reading yet")
	errIDsStopped   = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping")
)

func newIDs(workers int) ids {
	g := ids{slots: make([]*snowflake.Generator, workers), used: map[uint16]uint64{}}
	if workers > 0 {
		g.refused = errClockUnknown
	}
	return g
}

// slotsNeeded is the number of workers that this node should have leased now.
func (g *ids) slotsNeeded() int {
	if g.stopped || g.refusedNow() != nil {
		return 0
	}
	return len(g.slots)
}

// refusedNow returns Status.IDsRefused.
func (g *ids) refusedNow() *isotone.Error {
	if g.refused == nil && g.early {
		return errBeforeEpoch(g.cfg.Space)
	}
	return g.refused
}

// isBeforeEpoch reports whether an id of that millisecond would be before the epoch of its layout. Nobody leases a worker for
// such ids: the first lease fixes the layout of the cluster, and the epoch may be a typing error. The rule is the
// proposer's. What is applied has to be the same in all versions.
func isBeforeEpoch(s oracle.Space, millis uint64) bool {
	return millis < uint64(s.Epoch) && !mutant.On(mutant.LeaseBeforeEpoch)
}

func errBeforeEpoch(s oracle.Space) *isotone.Error {
	return isotone.Errorf(isotone.CodeClock, "no snowflake ids before their epoch, %s (SNOWFLAKE_EPOCH_MS=%d): set the clock or the epoch right", oracle.Instant(uint64(s.Epoch)), s.Epoch)
}

// stop stops generators and releases their leases: all of them for good, or those
// whose clock went back, to request others. A fixed worker waits for its clock.
func (g *ids) stop(in *Input) {
	if in.StopIDs && !g.stopped {
		g.stopped, g.refused = true, errIDsStopped
		g.effects.Changed = true
	}
	if in.Behind == 0 && !g.stopped {
		return
	}
	var used []oracle.Used
	for slot, gen := range g.slots {
		behind := in.Behind&(1<<slot) != 0 && g.cfg.FixedWorker == oracle.AnyWorker && g.refusedNow() == nil
		if gen == nil || !behind && !g.stopped {
			continue
		}
		used = append(used, oracle.Used{Worker: uint16(gen.Worker()), Start: uint64(gen.Lease().Start), Next: uint64(gen.Stop())})
		g.setGenerator(slot, nil)
	}
	if len(used) > 0 && !g.mutateRelease(used) {
		g.releaseLeases(used)
	}
}

// releaseLeases begins to release leases, one for each slot at most.
func (g *ids) releaseLeases(used []oracle.Used) {
	g.releasing = append(g.releasing, used...)
	g.releasedAt = 0
	g.updateLeases()
}

// updateGenerators makes, extends and stops generators according to the held leases.
func (g *ids) updateGenerators() {
	var held [oracle.SlotsMax]bool
	for _, l := range g.held {
		slot := int(l.Slot)
		if slot >= len(g.slots) || g.stopped {
			continue
		}
		held[slot] = true
		old := g.slots[slot]
		if old != nil && old.Worker() == int(l.Worker) && old.Lease().Start == int64(l.Start) {
			old.Extend(int64(g.usableEnd(l)))
			continue
		}
		if old != nil {
			g.replaceGenerator(old)
		}
		g.setGenerator(slot, g.newGenerator(l))
	}
	for slot, old := range g.slots {
		if old != nil && !held[slot] {
			old.Stop()
			g.setGenerator(slot, nil)
		}
	}
}

// extendGenerators lets generators use more of their leases as time passes.
func (g *ids) extendGenerators() {
	for _, l := range g.held {
		if slot := int(l.Slot); slot < len(g.slots) {
			if gen := g.slots[slot]; gen != nil && gen.Worker() == int(l.Worker) && gen.Lease().Start == int64(l.Start) {
				gen.Extend(int64(g.usableEnd(l)))
			}
		}
	}
}

// usableEnd returns the millisecond before which a generator may use a lease now. At the start of the lease nothing of
// it is usable yet.
func (g *ids) usableEnd(l oracle.WorkerLease) uint64 {
	vouched, _ := g.vouched.now(g.mono) // 0 if it is not known
	if mutant.On(mutant.WholeLease) {
		return l.End
	}
	return max(l.Start, min(l.End, (vouched+uint64(SkewMax))/uint64(time.Millisecond)))
}

// replaceGenerator stops a generator whose slot has another lease. If its own was revoked, that
// is released: others may have the worker at once.
func (g *ids) replaceGenerator(old *snowflake.Generator) {
	used := oracle.Used{Worker: uint16(old.Worker()), Start: uint64(old.Lease().Start), Next: uint64(old.Stop())}
	l, _ := g.state.Worker(used.Worker)
	if l.Revoked && l.IsHeldBy(g.cfg.Self.NodeID, g.cfg.Self.Session) && isSame(l, used) {
		g.releasing = append(g.releasing, used)
		g.releasedAt = 0
	}
}

func (g *ids) newGenerator(l oracle.WorkerLease) *snowflake.Generator {
	if used, ok := g.used[l.Worker]; ok && l.Start <= used && !mutant.On(mutant.ReleaseInNextStep) {
		panic(fmt.Sprintf("I9: a second generator for the lease %+v", l))
	}
	g.used[l.Worker] = l.Start
	gen, err := snowflake.NewGenerator(int(l.Worker), snowflake.Options{
		Layout: snowflake.Layout(g.cfg.Space), Now: g.cfg.IDClock, AheadMax: g.cfg.IDAheadMax,
		Lease: snowflake.Lease{Start: int64(l.Start), End: int64(g.usableEnd(l))},
	})
	if err != nil {
		panic(fmt.Sprintf("I9: no generator accepts the lease %+v: %v", l, err))
	}
	return gen
}

func (g *ids) setGenerator(slot int, gen *snowflake.Generator) {
	g.slots = slices.Clone(g.slots)
	g.slots[slot] = gen
	g.effects.Changed = true
}

// checkSkew refuses ids while this node's clock is more than SkewMax off its peers'. Without
// a reading of a peer the former decision stays: at the start, that a node with peers makes
// none.
func (g *ids) checkSkew() {
	if len(g.slots) == 0 || g.stopped {
		return
	}
	if early := isBeforeEpoch(g.cfg.Space, g.millis()); early != g.early {
		g.early, g.effects.Changed = early, true
	}
	if g.clocks.quorum.known {
		g.vouched = g.clocks.quorum
	}
	vouched, isVouched := g.vouched.now(g.mono)
	off, refused := difference(g.now, vouched), g.refused
	switch skew, known := g.clocks.skew(); {
	case !known && isVouched && off > SkewMax:
		refused = isotone.Errorf(isotone.CodeClock, "this node's clock has jumped ahead by %.1f s since it was last compared, at most %.0f s are allowed: it makes no ids until the clock is set right, or the node is started again",
			off.Seconds(), SkewMax.Seconds())
	case len(g.state.Members) <= 1 || known && skew.Abs() <= SkewMax || !known && isVouched && off.Abs() <= SkewMax:
		refused = nil
	case known:
		where := "behind"
		if skew < 0 {
			where = "ahead of"
		}
		refused = isotone.Errorf(isotone.CodeClock, "this node's clock is %.1f s %s the median of its peers', at most %.0f s are allowed: it makes no ids until that is set right",
			skew.Abs().Seconds(), where, SkewMax.Seconds())
	}
	if (refused == nil) != (g.refused == nil) || refused != nil && refused.Code != g.refused.Code {
		g.effects.Changed = true
	}
	g.refused = refused
}
