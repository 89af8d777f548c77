package sim

import (
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
)

// Links that stay broken (liveness). In some runs, when the cluster has recovered from all faults, links
// are cut in one direction for good, or come and go, except those between some quorum of the voters. It
// must go on, without changing its leader for ever. These links have a source of randomness of their
// own, so that runs are the same up to then with and without them.

const (
	// brokenRuns is one in how many runs has such links.
	brokenRuns = 3
	// brokenTicks is for how long, in ticks, links stay broken after the time that the cluster has to
	// find a leader. brokenTermsMax is in how many terms leaders may serve meanwhile: the links of the first may
	// work well enough for a while. Where links come and go, several nodes outside the quorum may lead in turns,
	// each while its links work, so there may be one term more for each 2*flapTicks; but no node leads in more
	// than brokenTermsMax of them.
	brokenTicks    = 2 * healTicks
	brokenTermsMax = 4
	// flapTicks bounds how long, in ticks, a link works and does not in turns.
	flapTicks = 40
	// manyBlocks is more than there are faults at a time that block or unblock one link.
	manyBlocks = 1 << 20
)

// breakLinks lets links stay broken for a while, and checks that the cluster serves meanwhile.
func (w *world) breakLinks() {
	if w.broken.IntN(brokenRuns) > 0 || w.violation != nil {
		return
	}
	quorum := w.drawQuorum()
	if quorum == nil {
		return
	}
	w.stats.BrokenLinks++
	from, last := w.now, true
	termsMax := brokenTermsMax
	if w.cutLasting(quorum, func() bool { return last }) {
		termsMax += brokenTicks / (2 * flapTicks)
	}
	terms, latest, by := 0, uint64(0), map[uint64]int{}
	for w.violation == nil && w.votersChanged <= from && w.now < from+(healTicks+brokenTicks)*w.cfg.tick {
		w.advance(w.now + w.cfg.tick)
		if w.now > max(w.liveness.last, from)+(healTicks+2*timeoutMax)*w.cfg.tick && w.isServed(form16) {
			w.fail("liveness: no answer within %d ticks, though the links between %v are in order", healTicks, ids(quorum))
		}
		l := w.leader()
		if l == nil || w.now < from+healTicks*w.cfg.tick || l.replica.Brief().Term <= latest {
			continue
		}
		latest = l.replica.Brief().Term
		terms++
		if by[l.id]++; by[l.id] > brokenTermsMax {
			w.fail("liveness: node %d served in %d terms, though the links between %v are in order", l.id, by[l.id], ids(quorum))
		}
		if terms > termsMax {
			w.fail("liveness: leaders served in %d terms, though the links between %v are in order", terms, ids(quorum))
		}
	}
	last = false
	w.mendLinks()
}

// drawQuorum draws a majority of the voters that run and follow the leader, nil if there are too few, or
// no links but those between them.
func (w *world) drawQuorum() (quorum []*node) {
	l := w.leader()
	if l == nil || len(l.replica.OutgoingVoters()) > 0 {
		return nil
	}
	lead, voters := l.replica.Brief(), 0
	for _, m := range l.replica.Members() {
		if m.Learner {
			continue
		}
		voters++
		if n := w.node(m.ID); n != nil && w.follows(n, l, lead) {
			quorum = append(quorum, n)
		}
	}
	size := voters/2 + 1
	if len(quorum) < size || voters < 3 {
		return nil
	}
	w.broken.Shuffle(len(quorum), func(i, j int) { quorum[i], quorum[j] = quorum[j], quorum[i] })
	return quorum[:size]
}

// follows reports whether n is l, or is connected to it, follows it, and knows the same voters.
func (w *world) follows(n, l *node, lead replica.Brief) bool {
	if !n.up() {
		return false
	}
	s := n.replica.Brief()
	return s.Term == lead.Term && s.Leader == lead.Leader && slices.Equal(n.voterIDs(), l.voterIDs()) && (n == l || w.connected(n, l))
}

// cutLasting cuts links for good, or lets them come and go as long as they may, except those within a
// quorum. It reports whether any comes and goes.
func (w *world) cutLasting(quorum []*node, lasts func() bool) (flapping bool) {
	rng := w.broken
	share, flaps := rng.Float64(), []float64{0, 0.5, 1}[rng.IntN(3)]
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a == b || slices.Contains(quorum, a) && slices.Contains(quorum, b) || rng.Float64() > share {
				continue
			}
			if rng.Float64() >= flaps {
				w.link(a, b).blocked = manyBlocks
				continue
			}
			flapping = true
			length := func() time.Duration { return time.Duration(1+rng.IntN(flapTicks)) * w.cfg.tick }
			w.comeAndGo(w.link(a, b), [2]time.Duration{length(), length()}, lasts)
		}
	}
	w.trace("LINKS stay broken, except those between %v", ids(quorum))
	return flapping
}

// comeAndGo cuts a link for the first time span, and mends it for the second, as long as that lasts.
func (w *world) comeAndGo(l *link, spans [2]time.Duration, lasts func() bool) {
	if !lasts() {
		return
	}
	l.blocked = manyBlocks
	w.after(spans[0], func() { l.blocked = -manyBlocks })
	w.after(spans[0]+spans[1], func() { w.comeAndGo(l, spans, lasts) })
}

// mendLinks unblocks all links. What goes on that blocks and unblocks some has no effect any more.
func (w *world) mendLinks() {
	for i := range w.links {
		for j := range w.links[i] {
			w.links[i][j].blocked = -manyBlocks
		}
	}
}

func ids(nodes []*node) (list []uint64) {
	for _, n := range nodes {
		list = append(list, n.id)
	}
	return list
}
