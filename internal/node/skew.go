package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/oracle"
	"github.com/isotone/isotone/internal/peer"
)

const (
	// skewMax is how far this node's clock may be off the median of its peers' clocks
	// before it makes no more ids, as in Twitter's Snowflake.
	skewMax = 10 * time.Second
	// clockEvery is how often peers are told what this node's clock shows.
	clockEvery = time.Second
)

// hearClock notes what a peer's clock shows. It is off by the time on the way.
func (p *peerConn) hearClock(theirs int64) {
	p.ahead, p.heard = time.Duration(theirs)-p.node.cfg.Clock.Mono(), true
}

// skew is how far the peer's clock is ahead of this node's. Between two tellings it goes on
// by the clock that nobody sets, so that a jump of this node's own is noticed at once.
func (p *peerConn) skew() time.Duration {
	n := p.node
	return p.ahead + n.mono - time.Duration(n.wall.UnixNano())
}

// tellClock tells each peer what this node's clock shows, now and then.
func (n *Node) tellClock() {
	for _, p := range n.links {
		if now := n.loop.Now(); p.told == 0 || now-p.told >= clockEvery {
			p.told = now
			p.conn.SetBuffered(peer.AppendClock(p.conn.Buffered(), n.cfg.Clock.Wall().UnixNano()))
			p.sent = now
		}
	}
}

// skew returns the median of how far the peers' clocks are ahead of this node's. Of two
// in the middle it is the smaller difference: one bad clock beside a good one is not ours.
func (n *Node) skew() (median time.Duration, known bool) {
	var list []time.Duration
	for _, p := range n.links {
		if p.heard {
			list = append(list, p.skew())
		}
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	low, high := list[(len(list)-1)/2], list[len(list)/2]
	if low.Abs() < high.Abs() {
		return low, true
	}
	return high, true
}

// checkSkew lets ids be made, or not. While no peer is heard of, what was decided stays;
// a node with peers makes no ids before it has heard of one.
func (n *Node) checkSkew(members int) {
	if n.ids.refused.Load() == errStopped {
		return
	}
	median, known := n.skew()
	n.median = median
	switch {
	case members <= 1 || known && median.Abs() <= skewMax:
		if old := n.ids.refused.Swap(nil); old != nil && old != errClockUnknown {
			n.cfg.Log.Info("ids are made again: the clock agrees with the peers'", "ahead", (-median).String())
		}
	case known:
		n.refuseIDs(median)
	}
}

// errClockUnknown is why no ids are made before a peer's clock is known.
var errClockUnknown = isotone.Errorf(isotone.CodeNoLeader, "no peer has told its clock yet, with which this node's has to agree before it makes ids")

func (n *Node) refuseIDs(median time.Duration) {
	where := "behind"
	if median < 0 {
		where = "ahead of"
	}
	err := isotone.Errorf(isotone.CodeClock, "this node's clock is %.1f s %s the median of its peers', at most %.0f s are allowed: it makes no ids until that is set right",
		median.Abs().Seconds(), where, skewMax.Seconds())
	if old := n.ids.refused.Swap(err); old == nil || old == errClockUnknown {
		n.cfg.Log.Error("ids are refused", "why", err.Message)
	}
}

// idsRefused says why this node makes no ids although it should; "" if it does, or soon
// will.
func (n *Node) idsRefused() string {
	if len(n.ids.slots) == 0 {
		return ""
	}
	if err := n.ids.refused.Load(); err != nil && err != errClockUnknown && err != errStopped {
		return err.Message
	}
	if r := n.replica.Status(); r.WorkersRefused != nil && !holdsWorker(r.Workers, uint64(n.wall.UnixMilli())) {
		return fmt.Sprintf("no snowflake ids: %s", r.WorkersRefused.Err().Message)
	}
	return ""
}

// holdsWorker reports whether one of the leases goes on: that is enough to make ids, fewer
// in a millisecond.
func holdsWorker(leases []oracle.WorkerLease, nowMillis uint64) bool {
	return slices.ContainsFunc(leases, func(l oracle.WorkerLease) bool { return l.End > nowMillis })
}
