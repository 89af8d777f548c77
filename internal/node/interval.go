package node

import (
	"sync/atomic"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/front"
)

// clusterClock is the cluster clock as any goroutine of a node reads it; see front.Clock. The core
// publishes what it knows of the clock, and each read continues that by the steady clock.
type clusterClock struct {
	on    bool  // constant; INTERVAL_MS is not 0
	clock Clock // constant
	known atomic.Pointer[knownClock]
}

// knownClock is what the core knows of the cluster clock. It never changes.
type knownClock struct {
	estimate interval.Estimate
	cluster  uint64
	broken   bool
}

var (
	errIntervalsOff = isotone.Errorf(isotone.CodeNotFound, "this node reads no cluster clock: INTERVAL_MS is 0")
	errNoReading    = isotone.Errorf(isotone.CodeNoLeader, "no reading of the cluster clock is valid: this node has none yet")
	errOldReading   = isotone.Errorf(isotone.CodeNoLeader, "no reading of the cluster clock is valid: the limit of the latest has passed, as the leader was not confirmed since, or is too far away for INTERVAL_MS")
	errBrokenClock  = isotone.Errorf(isotone.CodeClock, "no reading of the cluster clock is valid: the steady clock of this node or of the leader has a wrong rate")
)

// Now implements [front.Clock].
func (c *clusterClock) Now() (interval.Reading, error) {
	if !c.on {
		return interval.Reading{}, errIntervalsOff
	}
	// The estimate is loaded before the clock is read (R5): after a pause between the two its limit
	// has passed.
	known := c.known.Load()
	switch {
	case known == nil:
		return interval.Reading{}, errNoReading
	case known.broken:
		return interval.Reading{}, errBrokenClock
	}
	r, good := known.estimate.Told(c.clock.Steady())
	r.Cluster = known.cluster
	switch {
	case good:
		return r, nil
	case r.Term == 0:
		return interval.Reading{}, errNoReading
	}
	return r, errOldReading
}

// Clock returns the cluster clock as this node reads it.
func (n *Node) Clock() front.Clock { return &n.clock }

// publishClock makes what the replica knows of the cluster clock visible to all goroutines.
func (c *core) publishClock(s *replica.Status) {
	if c.node.clock.on {
		c.node.clock.known.Store(&knownClock{*c.replica.ClockEstimate(), s.ClusterID, s.Interval.Broken})
	}
}

// exchangeClock sends questions and readings to peers, and publishes what has changed. A peer
// without a connection, or one that does not read, is asked again by a later step.
func (c *core) exchangeClock(e *replica.Effects) {
	to := func(id uint64, add func(b []byte) []byte) {
		if conn := c.peers.conns[id]; conn != nil && !conn.full() {
			conn.write(add(conn.conn.Buffered()))
		}
	}
	for _, a := range e.AskClock {
		to(a.Peer, func(b []byte) []byte { return wire.AppendClockAsk(b, a.Nonce) })
	}
	for _, a := range e.TellClock {
		to(a.Peer, func(b []byte) []byte { return wire.AppendClockTold(b, a.Nonce, a.Reading) })
	}
	if e.ClockChanged {
		s := c.replica.Status()
		c.publishClock(&s)
	}
}

// clockFramesMax bounds the questions of one peer in one turn, and its readings. A peer asks once in
// a while, and answers each question once; more of them are dropped, which is as if they were lost.
const clockFramesMax = 4

// askedClock takes in a question of the peer for the cluster clock.
func (p *peerConn) askedClock(nonce uint64) {
	in, id, n := &p.core.next, p.stream.Peer(), 0
	for i := range in.ClockAsks {
		if in.ClockAsks[i].Peer == id {
			n++
		}
	}
	if p.core.node.clock.on && n < clockFramesMax {
		in.ClockAsks = append(in.ClockAsks, replica.ClockAsk{Peer: id, Nonce: nonce})
	}
}

// toldClock takes in a reading of the peer.
func (p *peerConn) toldClock(nonce uint64, r interval.Reading) {
	in, id, n := &p.core.next, p.stream.Peer(), 0
	for i := range in.ClockAnswers {
		if in.ClockAnswers[i].Peer == id {
			n++
		}
	}
	if p.core.node.clock.on && n < clockFramesMax {
		in.ClockAnswers = append(in.ClockAnswers, replica.ClockAnswer{Peer: id, Nonce: nonce, Reading: r})
	}
}
