package sim

import (
	"cmp"
	"slices"
	"time"
)

// The check of I11: the ceiling is ahead of what the clocks of a quorum vouch for by no more
// than the bound. A clock vouches for what it showed lately; a reading is some time on its way
// and counts for a while.

const (
	// recently is how long a reading counts: a reservation may wait for a disk that hangs for
	// minutes.
	recently = 400 * time.Second
	// driftMax is how far off a reading can be that a replica continues by a steady clock of
	// the wrong rate, while it is on its way and as long as it counts there.
	driftMax = 30 * time.Second * clockDriftPercent / 100
	// recentSpan is the precision in which readings are kept.
	recentSpan = 10 * time.Second
	// absenceMax and reserveIntervals are those of internal/core/replica.
	absenceMax       = 366 * 24 * time.Hour
	reserveIntervals = 4
)

// ahead is how far a clock was ahead of true time in one span, at most.
type ahead struct {
	span time.Duration
	most time.Duration
}

// noteClock records a reading of the clock of n.
func (w *world) noteClock(n *node) {
	wall, _ := n.clock.read(w.now)
	span, off := w.now/recentSpan, wall-w.now
	if last := len(n.aheads) - 1; last >= 0 && n.aheads[last].span == span {
		n.aheads[last].most = max(n.aheads[last].most, off)
		return
	}
	n.aheads = append(n.aheads, ahead{span, off})
}

// aheadLately returns how far the clock of n was ahead of true time lately, at most.
func (w *world) aheadLately(n *node) time.Duration {
	from := (w.now - recently) / recentSpan
	n.aheads = slices.DeleteFunc(n.aheads, func(a ahead) bool { return a.span < from })
	most := time.Duration(-1 << 62)
	for _, a := range n.aheads {
		most = max(most, a.most)
	}
	return most
}

// checkCeiling checks the ceiling of n if it is the largest so far.
func (w *world) checkCeiling(n *node, ceiling uint64) {
	w.noteFloor(n, ceiling)
	if ceiling <= w.ceiling+1 {
		w.ceiling = max(w.ceiling, ceiling)
		return
	}
	w.ceiling = ceiling
	if w.floor.asked > 0 && ceiling <= w.floor.asked+2 || time.Duration(ceiling) <= time.Duration(w.floor.asked)+recently {
		return // an operator said so; from there time holds, and the ceiling rises by nanoseconds
	}
	w.checkReach(n, ceiling, w.lead()+w.floorLead()+w.interval.lead(w), "")
}

// checkShared checks the ceiling that timelines share, if it is the largest so far. Tenures may have it two reservations ahead of the clock. Floors of the default order do
// not raise it, unless the cluster was restored: then it begins at the ceiling of that.
func (w *world) checkShared(n *node, ceiling uint64) {
	if ceiling <= w.timelines.ceiling || w.loss.floor > 0 && w.floor.asked > 0 {
		return
	}
	w.timelines.ceiling = ceiling
	w.checkReach(n, ceiling, w.lead()+reserveIntervals*time.Duration(w.cfg.epochTicks)*w.cfg.tick, " of timelines")
}

// checkReach checks that the clocks of a quorum vouch for a ceiling that n has, and is to be ahead of them by at most lead.
func (w *world) checkReach(n *node, ceiling uint64, lead time.Duration, what string) {
	if w.now < w.votersChanged+recently && w.votersChanged > 0 {
		return // former voters may have vouched for it
	}
	if time.Duration(ceiling) <= time.Duration(w.loss.floor)+recently {
		return // the restored cluster begins there
	}
	var voters []time.Duration
	for _, m := range n.replica.Members() {
		if o := w.node(m.ID); o != nil && !m.Learner {
			voters = append(voters, w.aheadLately(o))
		}
	}
	limit := n.aloneLimit(w)
	if len(voters) > 1 {
		slices.SortFunc(voters, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		limit = w.now + voters[len(voters)/2] + driftMax
	}
	if time.Duration(ceiling) > limit+lead {
		w.fail("I11: node %d has ceiling%s %v at %v, the clocks of %d voters vouch for %v and %v", n.id, what, time.Duration(ceiling)-worldStart, w.now,
			len(voters), limit-worldStart, lead)
	}
}

// noteVoters notes a change of the voters that n knows.
func (w *world) noteVoters(n *node) {
	if voters := n.voterIDs(); !slices.Equal(voters, n.voters) {
		if len(n.voters) > 0 {
			w.votersChanged = w.now
		}
		n.voters = voters
	}
}

// voterIDs returns the voters that n knows, in a joint configuration those of both halves.
func (n *node) voterIDs() (ids []uint64) {
	for _, m := range n.replica.Members() {
		if !m.Learner {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// lead is how far a ceiling may be ahead of the clocks.
func (w *world) lead() time.Duration {
	return reserveIntervals*time.Duration(w.cfg.epochTicks)*w.cfg.tick + w.cfg.clockJumpMax
}

// aloneLimit is the latest time that a node which was always the sole voter may use.
func (n *node) aloneLimit(w *world) time.Duration {
	began := time.Duration(n.began.ceiling)
	if began == 0 || n.began.wall <= began+absenceMax {
		began = max(began, n.began.wall)
	}
	passed := w.now - n.began.at
	limit := began + passed + passed*clockDriftPercent/100 + time.Duration(n.jumps)*w.cfg.clockJumpMax + w.cfg.tick
	// A reservation of the former process may be in the log and be applied only now.
	return max(limit, n.began.limit)
}

// beginning is what a process found in its first turn, or, if the cluster was not formed
// then, in the first one after that.
type beginning struct {
	voted    bool // there are voters
	turn     uint64
	at, wall time.Duration
	// ceiling is the largest that any node knew or the log of this process reserved.
	ceiling uint64
	limit   time.Duration // of the former process
}
