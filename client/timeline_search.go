package client

import (
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
)

// This file decides which node is asked for a timeline. Its methods are called with timelines.mu, unless they say that they take it.

// pick returns the pool of the node to ask next, or nil if none is reached.
func (t *timelines) pick(line *timeline) *pool {
	if line.owner != nil {
		if line.owner.node.conns > 0 {
			return line.owner
		}
		line.owner.node.wanted = true
	}
	t.seeks = true
	t.client.wake()
	line.turn++
	if p := t.nodes[t.client.seen.Load().Leader]; line.turn == 1 && p != nil && p.node.conns > 0 {
		return p // it takes what a node that is gone has owned
	}
	var reached []*pool
	for _, addr := range slices.Sorted(maps.Keys(t.nodes)) {
		if p := t.nodes[addr]; p.node.conns > 0 {
			reached = append(reached, p)
		}
	}
	if len(reached) == 0 {
		return nil
	}
	return reached[line.turn%len(reached)]
}

// setOwner notes which node owns a timeline; nil for unknown.
func (t *timelines) setOwner(line *timeline, p *pool) {
	if line.owner == p {
		return
	}
	if line.owner != nil {
		line.owner.node.owns--
	}
	if line.owner = p; p != nil {
		p.node.owns++
	}
}

// withdraw has a timeline wait for nothing.
func (t *timelines) withdraw(o *order) {
	line := o.timeline
	isIt := func(other *order) bool { return other == o }
	switch line.place {
	case placeQueued:
		line.at.node.waiting = slices.DeleteFunc(line.at.node.waiting, isIt)
	case placeLost:
		t.lost = slices.DeleteFunc(t.lost, isIt)
	}
	line.place, line.at = placeNone, nil
}

// answered: the node has answered a request of the timeline. It takes mu.
func (t *timelines) answered(o *order, p *pool) {
	t.mu.Lock()
	line := o.timeline
	if line.gone {
		t.mu.Unlock()
		return
	}
	found := line.owner != p || line.failures > 0
	t.setOwner(line, p)
	line.failures, line.moves, line.turn = 0, 0, 0
	t.mu.Unlock()
	if found {
		t.client.trouble.clear()
	}
}

// moved: a node says that another one owns the timeline, which is asked at once if it is reached. It takes mu, and returns the pool of that.
func (t *timelines) moved(o *order, owner string) *pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, p := o.timeline, t.node(owner)
	if line.gone {
		return nil
	}
	t.setOwner(line, p)
	line.moves++
	if p.node.conns > 0 && line.moves <= search.MovesMax {
		t.withdraw(o)
		return t.queue(o)
	}
	p.node.wanted = true
	t.client.wake()
	t.pause(o)
	return nil
}

// refused: a node cannot answer now, and others are asked after a pause. It takes mu.
func (t *timelines) refused(o *order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setOwner(o.timeline, nil)
	t.pause(o)
}

// eagerFailures is how many pauses are short: about the first second.
const eagerFailures = 128

// pause has a timeline wait, longer after each failure in a row.
func (t *timelines) pause(o *order) {
	most := search.EagerPauseMax
	if o.timeline.failures > eagerFailures {
		most = search.PauseMax
	}
	t.pauseFor(o, backoffTo(o.timeline.failures, most))
}

// pauseFor has a timeline wait after a failure.
func (t *timelines) pauseFor(o *order, pause time.Duration) {
	line := o.timeline
	if line.place == placePaused || line.gone {
		return
	}
	t.withdraw(o)
	line.failures++
	line.paused++
	line.place = placePaused
	number := line.paused
	time.AfterFunc(pause, func() { t.resume(o, number) })
}

// limited: a quota is used up, and the timeline waits for as long as the node asks. It takes mu.
func (t *timelines) limited(o *order, refusal *isotone.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pauseFor(o, quotaPause(refusal, o.timeline.failures))
}

// resume ends a pause. It takes mu.
func (t *timelines) resume(o *order, pause uint64) {
	if !t.client.enter() {
		return
	}
	defer t.client.work.Done()
	t.mu.Lock()
	if o.timeline.place != placePaused || o.timeline.paused != pause {
		t.mu.Unlock()
		return
	}
	o.timeline.place = placeNone
	p := t.queue(o)
	t.mu.Unlock()
	if p != nil {
		p.dispatch()
	}
}

// reached: there is a connection to a node. Timelines that wait for it go on. It takes mu.
func (t *timelines) reached(p *pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.node.conns++; p.node.conns > 1 {
		return
	}
	lost := t.lost
	t.lost = nil
	for _, o := range lost {
		o.timeline.place = placeNone
		t.queue(o)
	}
	for _, o := range t.orders {
		if o.timeline.owner == p && o.timeline.place == placePaused {
			o.timeline.place = placeNone
			t.queue(o)
		}
	}
}

// left: a connection to a node has ended. Timelines that wait for it go to others if it was the last one. It takes mu.
func (t *timelines) left(p *pool) {
	t.mu.Lock()
	p.node.conns--
	var others []*pool
	if p.node.conns == 0 {
		waiting := p.node.waiting
		p.node.waiting = nil
		for _, o := range waiting {
			o.timeline.place, o.timeline.at = placeNone, nil
			if other := t.queue(o); other != nil {
				others = append(others, other)
			}
		}
	}
	t.mu.Unlock()
	for _, other := range others {
		other.dispatch()
	}
}

// isReached reports whether there is a connection to any node, or no need of one. It takes mu.
func (t *timelines) isReached() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.nodes {
		if p.node.conns > 0 {
			return true
		}
	}
	return len(t.orders) == 0
}

// refuse fails the calls of timelines that wait until a node is reached, and later ones until it is called with nil. It takes mu.
func (t *timelines) refuse(why *isotone.Error) {
	t.mu.Lock()
	if why == nil && t.why == nil {
		t.mu.Unlock()
		return
	}
	t.why = why
	var failed []*order
	for _, o := range t.orders {
		if o.refused.Store(why); why != nil && o.timeline.place != placeNone {
			failed = append(failed, o)
		}
	}
	t.mu.Unlock()
	for _, o := range failed {
		o.fail(why)
	}
}
