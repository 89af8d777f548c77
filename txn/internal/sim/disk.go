package sim

import (
	"errors"
	"math/rand/v2"

	"github.com/isotone/isotone/txn/internal/mutant"
	"github.com/isotone/isotone/txn/internal/volatile"
)

// disk is a simulated store. It shows a write at once, and syncs it later: to its disk, or to a replica. It keeps
// the contract of txn.Store by when it answers: not before what an answer says is synced. Restarts and
// failovers lose what is not synced, and end all calls that wait for that. After a failed sync it refuses
// everything until it restarts.
type disk struct {
	*volatile.Store
	life   int // how often it has restarted
	broken bool
	lies   bool            // with a mutant: it takes everything for synced, and nothing is any more
	former *volatile.Store // with a mutant: the server before the last failover, which goes on to serve
}

var errDisk = errors.New("a sync has failed")

// diskFaults are the probabilities of one run.
type diskFaults struct {
	sync                    float64 // of a step, for each store; 1 syncs every write at once
	restart, fail, takeOver float64 // of a step
}

func drawDiskFaults(rng *rand.Rand) diskFaults {
	if rng.IntN(2) == 0 {
		return diskFaults{sync: 1}
	}
	f := diskFaults{sync: 0.02 + 0.4*rng.Float64()}
	for _, p := range []*float64{&f.restart, &f.fail, &f.takeOver} {
		if rng.IntN(2) == 0 {
			*p = 0.02 * rng.Float64()
		}
	}
	return f
}

// server returns what carries out a call.
func (d *disk) server(rng *rand.Rand) *volatile.Store {
	if d.former != nil && mutant.On(mutant.FormerServes) && rng.IntN(2) == 0 {
		return d.former
	}
	return d.Store
}

// mayAnswer reports whether a call may be answered that has seen, or is, the first n changes.
func (d *disk) mayAnswer(n int, isWrite bool) bool {
	switch {
	case n <= d.Synced(), d.lies:
		return true
	case isWrite:
		return mutant.On(mutant.StoreAnswersEarly)
	default:
		return mutant.On(mutant.StoreShowsEarly)
	}
}

// syncSome syncs some of what was written.
func (d *disk) syncSome(rng *rand.Rand) {
	if d.lies || d.broken {
		return
	}
	d.Sync(d.Synced() + rng.IntN(d.Written()-d.Synced()+1))
}

func (d *disk) syncAll() {
	if !d.lies && !d.broken {
		d.Sync(d.Written())
	}
}

// fail has a sync fail.
func (d *disk) fail() {
	if mutant.On(mutant.StoreGoesOn) {
		d.lies = true
		return
	}
	d.broken = true
}

// restart loses some of what was not synced.
func (d *disk) restart(rng *rand.Rand) {
	d.Restart(d.Synced() + rng.IntN(d.Written()-d.Synced()+1))
	d.life++
	d.broken, d.lies = false, false
}

// failOver has a replica take over.
func (d *disk) failOver(rng *rand.Rand) {
	if mutant.On(mutant.FormerServes) {
		d.former = d.Clone()
	}
	if mutant.On(mutant.FailoverLags) {
		d.Restart(max(0, d.Synced()-1-rng.IntN(8)))
	}
	d.restart(rng)
}

// trouble has faults of the stores happen.
func (w *world) trouble() {
	happens := func(p float64) bool { return p > 0 && w.diskRNG.Float64() < p }
	for _, space := range spaces {
		d := w.disks[space]
		if w.diskFaults.sync < 1 && happens(w.diskFaults.sync) {
			d.syncSome(w.diskRNG)
		}
		if happens(w.diskFaults.fail) {
			d.fail()
		}
		restart, takeOver := happens(w.diskFaults.restart) || d.broken && w.diskRNG.IntN(50) == 0, happens(w.diskFaults.takeOver)
		if takeOver {
			d.failOver(w.diskRNG)
		} else if restart {
			d.restart(w.diskRNG)
		}
		if restart || takeOver {
			w.result.Restarts++
		}
	}
}

// syncAll syncs all stores, and has those that cannot restart.
func (w *world) syncAll() {
	for _, space := range spaces {
		d := w.disks[space]
		d.syncAll()
		if d.broken {
			d.restart(w.diskRNG)
		}
	}
}
