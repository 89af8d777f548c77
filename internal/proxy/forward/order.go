package forward

import (
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
)

// order is one order of timestamps: what waits of it, and what is under way. It is the default one, or a timeline, as long as any
// request of that waits. Two orders have no floor and no bundle in common. All of it is of the loop.
type order struct {
	timeline string
	places   int               // how many bundles may be under way
	pending  []*front.Batch    // that no bundle has yet
	floored  []*front.Batch    // the same, with the right to move time and floors above highest; at most flooredMax
	turn     bool              // it is the turn of floored
	highest  isotone.Timestamp // the largest that the cluster has answered
	under    int               // bundles under way
	above    int               // those of them with a floor
	parked   int               // batches that are not above their floors yet
	listed   bool              // it is in Upstream.waiting
}

const (
	// linePlaces is how many requests of a timeline are under way at most: package client sends two at a time. With linesUnderMax of
	// all timelines no other one begins: each request has a goroutine. It takes owners that do not answer to have so many.
	linePlaces    = 2
	linesUnderMax = 1024
	// lineShare is the part of all requests that wait which one timeline may have, as at a node: a flood leaves room for others.
	lineShare = 8
)

// hasPlace reports whether another bundle may be under way.
func (o *order) hasPlace() bool { return o.under < o.places }

// mayFloor reports whether a bundle with a floor may begin. They take at most half of the places, because the cluster may hold them
// until its clock has passed the floor.
func (o *order) mayFloor() bool { return len(o.floored) > 0 && o.above < max(o.places/2, 1) }

// maySend reports whether there is something to send.
func (o *order) maySend() bool { return o.hasPlace() && (len(o.pending) > 0 || o.mayFloor()) }

// take takes all that waits.
func (o *order) take() []*front.Batch {
	all := slices.Concat(o.pending, o.floored)
	o.pending, o.floored = nil, nil
	return all
}

// orderOf returns the order that a batch is of.
func (u *Upstream) orderOf(b *front.Batch) *order {
	if b.Timeline == "" {
		return &u.main
	}
	o := u.lines[b.Timeline]
	if o == nil {
		o = &order{timeline: b.Timeline, places: linePlaces}
		u.lines[b.Timeline] = o
	}
	return o
}

// admit takes a batch into those that wait.
func (u *Upstream) admit(b *front.Batch) {
	o := u.orderOf(b)
	switch {
	case !b.Raise || !o.highest.Before(b.Floor):
		o.pending = append(o.pending, b)
	case len(o.floored) < flooredMax:
		o.floored = append(o.floored, b)
	default:
		b.Err = isotone.Errorf(isotone.CodeOverloaded, "%d requests with floors are waiting for the cluster", len(o.floored))
		u.done(o, b)
	}
	u.goOn(o)
}

// goOn has a timeline wait for its turn if there is something to send, and forgets it if nothing of it is left.
func (u *Upstream) goOn(o *order) {
	switch {
	case o == &u.main || o.listed:
	case o.maySend():
		o.listed = true
		u.waiting = append(u.waiting, o)
	case o.under == 0 && o.parked == 0 && len(o.pending) == 0 && len(o.floored) == 0:
		delete(u.lines, o.timeline)
	}
}

// sendLines sends what waits of timelines, as far as it may be under way.
func (u *Upstream) sendLines() {
	at := 0
	for ; at < len(u.waiting) && u.linesUnder < linesUnderMax; at++ {
		o := u.waiting[at]
		o.listed = false
		u.send(o)
	}
	u.waiting = slices.Delete(u.waiting, 0, at)
}

// send makes bundles of what waits of an order, as far as they may be under way.
func (u *Upstream) send(o *order) {
	for o.maySend() {
		o.turn = !o.turn
		if o.mayFloor() && (o.turn || len(o.pending) == 0) {
			b := o.floored[0]
			o.floored = slices.Delete(o.floored, 0, 1)
			u.begin(u.bundleOf(o, b))
		} else {
			u.begin(u.bundlePending(o))
		}
	}
}

// begin sends b on its way.
func (u *Upstream) begin(b *bundle) {
	o := b.order
	o.under++
	if b.isAbove() {
		o.above++
	}
	if o == &u.main {
		u.work <- b
		return
	}
	// What waits for an owner that does not answer is given up when its time is over, and not later because others were before it. That is
	// a little before the fronts give up, so that clients are told why.
	b.until = b.parts[0].Taken.Add(u.cfg.Timeout - u.cfg.Timeout/10)
	u.linesUnder++
	u.workers.Go(func() { u.carry(b) })
}

// ended: b is not under way any more.
func (u *Upstream) ended(b *bundle) {
	o := b.order
	o.under--
	if b.isAbove() {
		o.above--
	}
	if o != &u.main {
		u.linesUnder--
	}
}
