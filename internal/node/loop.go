package node

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/front"
)

// statusTicks is how often, in ticks, gauges are set although nothing changed.
const statusTicks = 10

// stallTicks is how many ticks without a turn are worth a warning: half of the
// shortest election timeout.
const stallTicks = 10

// doorWait bounds how long batches stand before the door while rounds are in flight.
const doorWait = time.Millisecond

// run is the loop: each turn takes what has arrived, steps the replica once, and
// carries out the effects.
func (n *Node) run() {
	defer n.finish()
	var in replica.Input
	var mail mail
	sinceStatus := 0
	n.turn(&in) // a replica that is alone has something to do at once
	due := n.cfg.Tick
	for {
		wait := max(0, due-n.loop.Now())
		switch {
		case n.replica.RoundsAreFull() && n.cfg.Mode == isotone.ReadQuorum:
			// What comes in by the door can wait: the answer of a peer, which is on its way,
			// has to come first, and brings the loop round.
			wait = min(wait, doorWait)
		case !n.door.isEmpty():
			wait = 0
		}
		if err := n.loop.Wait(wait); err != nil {
			n.fail(err)
		}
		// What a paused process missed is dropped: a burst of ticks would make a follower
		// campaign before it has read the heartbeats that piled up for it.
		in.Ticks = 0
		if now := n.loop.Now(); now >= due {
			in.Ticks = 1
			if due += n.cfg.Tick; due <= now {
				due = now + n.cfg.Tick
			}
		}
		mail = n.mail.take(mail.emptied())
		for _, f := range mail.calls {
			f()
		}
		if n.stopped() {
			n.fill(&in, &mail) // so that finish answers what was taken
			return
		}
		n.fill(&in, &mail)
		in.Behind, in.StopIDs, in.RaiseLevel = n.ids.takeBehind(), n.stopIDs, len(n.raising) > 0
		in.LeaseRequests = append(in.LeaseRequests[:0], n.desk.arrived...)
		n.desk.arrived = n.desk.arrived[:0]
		changed := n.turn(&in)
		if n.forwarder != nil {
			n.forwarder.Turn(n.loop.Now())
		}
		n.loop.Flush()
		if sinceStatus += in.Ticks; changed || n.changed || sinceStatus >= statusTicks {
			sinceStatus, n.changed = 0, false
			n.publish()
			n.ping()
		}
		n.retryHandOver(in.Ticks)
	}
}

// stopped reports whether the node is to end. Go chooses at random among what is ready,
// so a turn could otherwise follow a failure.
func (n *Node) stopped() bool {
	select {
	case <-n.stop:
		return true
	default:
		return false
	}
}

// fill makes one turn's input of the mail and of what the loop's connections brought.
func (n *Node) fill(in *replica.Input, m *mail) {
	clear(in.Messages)
	in.Messages = append(append(in.Messages[:0], m.messages...), n.arrived...)
	clear(n.arrived)
	n.arrived = n.arrived[:0]
	in.Persisted, in.Hellos = m.persisted, append(m.hellos, n.hellos...)
	n.hellos = n.hellos[:0]
	in.Clocks, n.clocks = append(in.Clocks[:0], n.clocks...), n.clocks[:0]
	in.Transfer, n.transfer = n.transfer, false
	clear(in.Requests)
	in.Requests = in.Requests[:0]
	n.submitted = n.door.take(n.submitted)
	for _, b := range n.submitted {
		mode := b.Mode
		if mode == isotone.ReadDefault {
			mode = n.cfg.Mode
		}
		if !runsInSuspend {
			mode = isotone.ReadQuorum // which promises more
		}
		b.Err = nil
		in.Requests = append(in.Requests, replica.Request{
			Token: n.calls.put(b), Mode: mode, Counts: b.Counts, Ranges: b.Ranges,
		})
	}
	clear(n.submitted)
	n.submitted = n.submitted[:0]
}

// turn steps the replica and carries out its effects. It reports whether something
// of the published status may have changed.
func (n *Node) turn(in *replica.Input) (changed bool) {
	wall := n.cfg.Clock.Wall()
	if wall.Before(n.wall) {
		n.cfg.Metrics.CountClockBackward()
		n.cfg.Log.Warn("the wall clock went back", "by", n.wall.Sub(wall).String())
	}
	n.wall = wall
	in.Now, in.Mono = unixNanos(wall), n.cfg.Clock.Mono()
	if stall := in.Mono - n.mono; n.mono > 0 && stall > stallTicks*n.cfg.Tick {
		n.cfg.Log.Warn("this process did not run for a while; was it stopped, or the machine too busy?", "for", stall.String())
	}
	n.mono = in.Mono
	e := n.replica.Step(in)
	if e.Fatal != nil {
		n.fail(e.Fatal)
		return true
	}
	n.send(e.Send)
	if e.Announce {
		n.announceHello()
	}
	if e.TellClock {
		for _, p := range n.links {
			p.tellClock()
		}
	}
	if e.Write != nil {
		n.disk.write(e.Write)
	}
	for _, a := range e.Answers {
		b := n.calls.take(a.Token)
		if a.Err != nil {
			b.Err = a.Err
		}
		if !forward(n.forwarder, b) {
			b.Done(b)
		}
	}
	if in.RaiseLevel {
		n.raised(e.LevelRefused)
	}
	for i := range e.LeaseAnswers {
		n.desk.answer(&e.LeaseAnswers[i])
	}
	for _, r := range e.Rounds {
		if r.Requests == 0 {
			continue // for the lease's sake
		}
		n.cfg.Metrics.ObserveRound(r.Requests, r.Took)
		n.cfg.Metrics.AddTimestamps(r.Timestamps)
	}
	return e.Changed
}

// finish answers everything that waits when the loop has ended.
func (n *Node) finish() {
	defer close(n.homeDone)
	rest := n.mail.close()
	for _, f := range rest.calls {
		f() // someone may wait for what it closes
	}
	err := errStopped
	if n.Err() != nil {
		err = errFailed
	}
	for _, b := range append(n.calls.drain(), n.door.close()...) {
		b.Err = err
		b.Done(b)
	}
	n.desk.close(err)
	if n.forwarder != nil {
		n.forwarder.Close()
	}
	n.publish()
	n.loop.Flush()
	if err := n.loop.Close(); err != nil {
		n.cfg.Log.Warn("the loop does not close", "err", err)
	}
}

// callTable maps tokens to the batches that the replica works on.
type callTable struct {
	slots []*front.Batch
	free  []uint64
}

func (t *callTable) put(b *front.Batch) uint64 {
	if n := len(t.free); n > 0 {
		token := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[token] = b
		return token
	}
	t.slots = append(t.slots, b)
	return uint64(len(t.slots) - 1)
}

func (t *callTable) take(token uint64) *front.Batch {
	b := t.slots[token]
	t.slots[token] = nil
	t.free = append(t.free, token)
	return b
}

func (t *callTable) drain() []*front.Batch {
	var list []*front.Batch
	for _, b := range t.slots {
		if b != nil {
			list = append(list, b)
		}
	}
	*t = callTable{}
	return list
}
