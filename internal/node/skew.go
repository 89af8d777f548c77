package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/peer"
)

// hearClock notes what a peer's clock shows.
func (p *peerConn) hearClock(theirs int64) {
	p.node.clocks = append(p.node.clocks, replica.PeerClock{ID: p.stream.Peer(), Wall: theirs})
}

// tellClock tells the peer what this node's clock shows.
func (p *peerConn) tellClock() {
	p.conn.SetBuffered(peer.AppendClock(p.conn.Buffered(), int64(unixNanos(p.node.cfg.Clock.Wall()))))
	p.sent = p.node.loop.Now()
}

// idsRefused says why this node makes no ids although it should; "" if it does, or soon
// will.
func (n *Node) idsRefused(r *replica.Status) string {
	if len(n.ids.slots) == 0 {
		return ""
	}
	if err := r.IDsRefused; err != nil && err.Code == isotone.CodeClock {
		return err.Message
	}
	if r.WorkersRefused != nil && !holdsWorker(r.Workers, uint64(n.wall.UnixMilli())) {
		return fmt.Sprintf("no snowflake ids: %s", r.WorkersRefused.Err().Message)
	}
	return ""
}

// holdsWorker reports whether one of the leases goes on: that is enough to make ids, fewer
// in a millisecond.
func holdsWorker(leases []oracle.WorkerLease, nowMillis uint64) bool {
	return slices.ContainsFunc(leases, func(l oracle.WorkerLease) bool { return l.End > nowMillis })
}

// warnClock logs when this node begins or ceases to go by another clock than its own.
func (n *Node) warnClock(c replica.Clock) {
	if c.Exceeded == n.clockExceeded {
		return
	}
	n.clockExceeded = c.Exceeded
	offset := c.Offset.Round(time.Millisecond).String()
	switch {
	case !c.Exceeded:
		n.cfg.Log.Info("this node's clock is believed again", "offset", offset)
	case c.Alone:
		n.cfg.Log.Error("this node's wall clock has jumped, and time goes on by its steady clock; if the wall clock is right now, restart the node "+
			"(with CLOCK_JUMP_MAX_MS=0, if it was off for more than a year)", "by", offset, "limit", n.cfg.ClockJumpMax.String())
	default:
		n.cfg.Log.Error("this node's clock is off those of a quorum, and time goes on by theirs: set it right", "offset", offset, "limit", n.cfg.ClockJumpMax.String())
	}
}

// astray returns by how much this node's clock is ahead of the one that time goes by: that
// is its own, but within limit of the quorum's (I11).
func astray(c replica.Clock, limit time.Duration) time.Duration {
	switch {
	case !c.Exceeded:
		return 0
	case c.Offset > 0:
		return c.Offset - limit
	default:
		return c.Offset + limit
	}
}
