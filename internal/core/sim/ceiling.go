package sim

import (
	"cmp"
	"slices"
	"time"
)

// The check of I11: the ceiling passes what the clocks of a quorum can vouch for by no more
// than the bound. What a clock can vouch for is what it has shown lately; a reading may be
// some time on its way, and counts for a while.

const (
	// recently is how long ago a reading may have been taken that still counts: a reservation
	// may wait for a disk that hangs for minutes.
	recently = 400 * time.Second
	// driftMax is how far a reading can be off that goes on by a steady clock that is wrong in
	// rate, for as long as internal/core/replica believes it and it may be on its way.
	driftMax = 30 * time.Second * clockDriftPercent / 100
	// recentSpan is the grain in which readings are remembered.
	recentSpan = 10 * time.Second
	// absenceMax is internal/core/replica's: how far ahead of the ceiling a voter that is alone
	// believes its clock at its start.
	absenceMax = 366 * 24 * time.Hour
	// reserveIntervals is internal/core/replica's.
	reserveIntervals = 4
)

// ahead is how far a clock was ahead of true time, at most, in one span.
type ahead struct {
	span time.Duration
	most time.Duration
}

// noteClock remembers what the clock of n shows.
func (w *world) noteClock(n *node) {
	wall, _ := n.clock.read(w.now)
	span, off := w.now/recentSpan, wall-w.now
	if last := len(n.aheads) - 1; last >= 0 && n.aheads[last].span == span {
		n.aheads[last].most = max(n.aheads[last].most, off)
		return
	}
	n.aheads = append(n.aheads, ahead{span, off})
}

// vouches returns how far ahead of true time the clock of n was lately, at most.
func (w *world) vouches(n *node) time.Duration {
	from := (w.now - recently) / recentSpan
	n.aheads = slices.DeleteFunc(n.aheads, func(a ahead) bool { return a.span < from })
	most := time.Duration(-1 << 62)
	for _, a := range n.aheads {
		most = max(most, a.most)
	}
	return most
}

// checkCeiling checks a ceiling that n is the first to know.
func (w *world) checkCeiling(n *node, ceiling uint64) {
	if n.voters > 0 && n.replica.Voters() != n.voters {
		w.votersChanged = w.now
	}
	n.voters = n.replica.Voters()
	if ceiling <= w.ceiling+1 {
		w.ceiling = max(w.ceiling, ceiling)
		return
	}
	w.ceiling = ceiling
	if w.now < w.votersChanged+recently && w.votersChanged > 0 {
		return // it may have been reserved when others vouched for it
	}
	lead := w.lead()
	var voters []time.Duration
	for _, m := range n.replica.Members() {
		if o := w.node(m.ID); o != nil && !m.Learner {
			voters = append(voters, w.vouches(o))
		}
	}
	limit := n.aloneLimit(w)
	if len(voters) > 1 {
		slices.SortFunc(voters, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		// A reading goes on by a steady clock that may be wrong in rate.
		limit = w.now + voters[len(voters)/2] + driftMax
	}
	if time.Duration(ceiling) > limit+lead {
		w.fail("I11: node %d has ceiling %v at %v, the clocks of %d voters vouch for %v and %v", n.id, time.Duration(ceiling)-worldStart, w.now,
			len(voters), limit-worldStart, lead)
	}
}

// lead is how far a ceiling may be ahead of the clocks.
func (w *world) lead() time.Duration {
	return reserveIntervals*time.Duration(w.cfg.epochTicks)*w.cfg.tick + w.cfg.clockJumpMax
}

// aloneLimit is what a voter that has always been alone may believe.
func (n *node) aloneLimit(w *world) time.Duration {
	began := time.Duration(n.began.ceiling)
	if began == 0 || n.began.wall <= began+absenceMax {
		began = max(began, n.began.wall)
	}
	passed := w.now - n.began.at
	limit := began + passed + passed*clockDriftPercent/100 + time.Duration(n.jumps)*w.cfg.clockJumpMax + w.cfg.tick
	// What an earlier process has reserved may lie in the log and be applied only now.
	return max(limit, n.began.limit)
}

// beginning is what a process found in its first turn.
type beginning struct {
	turn     uint64
	at, wall time.Duration
	// ceiling is the largest that was known, or reserved in the log of this process.
	ceiling uint64
	limit   time.Duration // of the process before
}
