package replica

import (
	"fmt"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/snowflake"
)

// Which generators of ids run (I9). Each of this node's workers has a slot; a slot has a
// generator while the node holds a lease for it. Generators are made, extended and stopped
// here, in the step that takes in why, and nowhere else; others only ask them for ids. A
// lease that is given back counts as given back from that step on, so no other step can
// find it without a generator and make a second one: that would begin again where the
// lease began.

// generators are what makes the ids of this process.
type generators struct {
	// slots are replaced, never changed: Status hands them out.
	slots []*snowflake.Generator
	// stopped is set once the process makes no more ids.
	stopped bool
	// refused is why no ids are made although there may be leases, nil if they are.
	refused *isotone.Error
	// used is the Start of the latest lease of each worker that had a generator. A grant
	// has at most one in the life of a process.
	used map[uint16]uint64
}

// Why this node makes no ids.
var (
	errClockUnknown = isotone.Errorf(isotone.CodeNoLeader, "no peer has told its clock yet, with which this node's has to agree before it makes ids")
	errIDsStopped   = isotone.Errorf(isotone.CodeNoLeader, "this node is stopping")
)

func newGenerators(workers int) generators {
	g := generators{slots: make([]*snowflake.Generator, workers), used: map[uint16]uint64{}}
	if workers > 0 {
		g.refused = errClockUnknown
	}
	return g
}

// workersWanted is how many workers this node wants to have leased now.
func (r *Replica) workersWanted() int {
	if r.ids.stopped || r.ids.refused != nil {
		return 0
	}
	return len(r.ids.slots)
}

// giveBack ends generators and gives their leases back: all of them for good, or those that
// wait for a clock that went back, if others can be had. Who has a fixed worker waits.
func (r *Replica) giveBack(in *Input) {
	g := &r.ids
	if in.StopIDs && !g.stopped {
		g.stopped, g.refused = true, errIDsStopped
		r.effects.Changed = true
	}
	if in.Behind == 0 && !g.stopped {
		return
	}
	var rest []oracle.Used
	for slot, gen := range g.slots {
		behind := in.Behind&(1<<slot) != 0 && r.cfg.FixedWorker == oracle.AnyWorker && g.refused == nil
		if gen == nil || !behind && !g.stopped {
			continue
		}
		rest = append(rest, oracle.Used{Worker: uint16(gen.Worker()), Start: uint64(gen.Lease().Start), Next: uint64(gen.Stop())})
		r.setGenerator(slot, nil)
	}
	if len(rest) > 0 && !r.mutateReturn(rest) {
		r.returnLeases(rest)
	}
}

// returnLeases has leases given back at once.
func (r *Replica) returnLeases(list []oracle.Used) {
	r.workers.returning = append(r.workers.returning, list...) // no more than there are slots
	r.workers.returned = 0
	r.relist()
}

// follow makes the generators those of the leases that this process holds.
func (r *Replica) follow() {
	var held [oracle.SlotsMax]bool
	for _, l := range r.workers.held {
		slot := int(l.Slot)
		if slot >= len(r.ids.slots) || r.ids.stopped {
			continue
		}
		held[slot] = true
		old := r.ids.slots[slot]
		if old != nil && old.Worker() == int(l.Worker) && old.Lease().Start == int64(l.Start) {
			old.Extend(int64(l.End))
			continue
		}
		if old != nil {
			old.Stop()
		}
		r.setGenerator(slot, r.newGenerator(l))
	}
	for slot, old := range r.ids.slots {
		if old != nil && !held[slot] {
			old.Stop()
			r.setGenerator(slot, nil)
		}
	}
}

func (r *Replica) newGenerator(l oracle.WorkerLease) *snowflake.Generator {
	if used, ok := r.ids.used[l.Worker]; ok && l.Start <= used && !mutant.On(mutant.ReleaseInNextStep) {
		panic(fmt.Sprintf("I9: a second generator for the lease %+v", l))
	}
	r.ids.used[l.Worker] = l.Start
	gen, err := snowflake.NewGenerator(int(l.Worker), snowflake.Options{
		Layout: snowflake.Layout(r.cfg.Space), Now: r.cfg.IDClock, AheadMax: r.cfg.IDAheadMax,
		Lease: snowflake.Lease{Start: int64(l.Start), End: int64(l.End)},
	})
	if err != nil {
		panic(fmt.Sprintf("I9: a lease that no generator takes: %+v: %v", l, err))
	}
	return gen
}

func (r *Replica) setGenerator(slot int, gen *snowflake.Generator) {
	r.ids.slots = slices.Clone(r.ids.slots)
	r.ids.slots[slot] = gen
	r.effects.Changed = true
}

// checkSkew lets ids be made, or not: a node whose clock is far off its peers' makes none.
// While no peer is heard of, what was decided stays; a node with peers makes no ids before
// it has heard of one.
func (r *Replica) checkSkew() {
	g := &r.ids
	if len(g.slots) == 0 || g.stopped {
		return
	}
	refused := g.refused
	switch skew, known := r.Skew(); {
	case len(r.state.Members) <= 1 || known && skew.Abs() <= SkewMax:
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
		r.effects.Changed = true
	}
	g.refused = refused
}
