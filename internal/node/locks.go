package node

import (
	"context"
	"fmt"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// Locks and frontiers, for operators.

// Locks describes who holds which lock; see front.Operator.
func (n *Node) Locks(ctx context.Context, prefix string) (front.LockList, error) {
	l := front.LockList{Locks: []front.LockRecord{}}
	w, err := n.look(ctx, &front.SessionWatch{Prefix: prefix})
	if err != nil {
		return l, err
	}
	for _, h := range w.Holders {
		l.Locks = append(l.Locks, front.LockRecord{
			Name: h.Name, Token: h.Token.Timestamp().String(), Token64: h.Token, Since: oracle.Instant(h.Token.Milli()), Value: h.Value, Session: front.SessionHash(h.Session), Label: h.Label,
		})
	}
	l.More = len(l.Locks) == holdersMax
	return l, nil
}

// Blockers describes what keeps a frontier from going on; see front.Operator.
func (n *Node) Blockers(ctx context.Context, group string) (front.BlockerList, error) {
	l := front.BlockerList{Group: group, Blockers: []front.BlockerRecord{}}
	w, err := n.look(ctx, &front.SessionWatch{Group: group, Blockers: true})
	if err != nil {
		return l, err
	}
	l.Frontier = w.Frontier.String()
	for _, b := range w.Blocked {
		r := front.BlockerRecord{Label: b.Label, Low: b.Low.String(), High: b.High.String(), Seconds: b.For.Seconds(), Connected: b.Connected}
		if b.Session != 0 {
			r.Session = front.SessionHash(b.Session)
		}
		l.Blockers = append(l.Blockers, r)
	}
	return l, nil
}

const (
	// frontierLagMax is from which lag on the log is told what a frontier waits for, frontierLogPause how often at most.
	frontierLagMax, frontierLogPause = time.Second, 10 * time.Second
	// blockersLogged is how many it is told.
	blockersLogged = 3
)

// sessionStats returns the state of sessions for the metrics.
func (c *core) sessionStats() telemetry.SessionStats {
	s, _ := c.replica.SessionStats()
	stats := telemetry.SessionStats{Sessions: s.Sessions, Held: s.Held, Waiting: s.Waiting, Lags: map[string]time.Duration{}}
	worst := replica.GroupStats{}
	for _, g := range s.Groups {
		if stats.Lags[g.Name] = g.Lag; g.Lag > worst.Lag {
			worst = g
		}
	}
	if now := c.loop.Now(); worst.Lag > frontierLagMax && now >= c.reported.frontiersNext {
		c.reported.frontiersNext = now + frontierLogPause
		c.logBlockers(worst)
	}
	return stats
}

// logBlockers says what keeps a frontier from going on.
func (c *core) logBlockers(g replica.GroupStats) {
	attrs := []any{"group", g.Name, "lag", g.Lag.String()}
	list := c.blockers(g.Name)
	for _, b := range list[:min(len(list), blockersLogged)] {
		who := "writers of an earlier leader, or that have ended: a member of the group has to seal their stamps"
		if b.Session != 0 {
			who = fmt.Sprintf("session %s (%q), for %v", front.SessionHash(b.Session), b.Label, b.For)
		}
		attrs = append(attrs, "by", who)
	}
	c.node.cfg.Log.Warn("the frontier of a group stands; isotone frontier blockers shows more", attrs...)
}

// look has the core answer a watch.
func (n *Node) look(ctx context.Context, w *front.SessionWatch) (*front.SessionWatch, error) {
	done := make(chan struct{})
	w.Done = func(*front.SessionWatch) { close(done) }
	err := n.inCore(ctx, done, func() { n.core.watchSessions(w) })
	if err != nil {
		return nil, err
	}
	return w, w.Err
}

// inCore runs f in the core's loop, and waits for done.
func (n *Node) inCore(ctx context.Context, done <-chan struct{}, f func()) error {
	if !n.post(f) {
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	case <-n.hosts[0].Done():
		return errStopped
	}
	return isotone.Errorf(isotone.CodeDeadlineExceeded, "the leader has not answered in time")
}

// BreakLock ends the session that holds a lock; see front.Operator.
func (n *Node) BreakLock(ctx context.Context, name string, token isotone.Timestamp64) (front.LockBroken, error) {
	done := make(chan struct{})
	r := &front.SessionRequest{
		Request: session.Request{Lock: &session.LockRequest{Op: session.LockBreak, Name: name, Token: token}},
		Done:    func(*front.SessionRequest) { close(done) },
	}
	if err := n.inCore(ctx, done, func() { n.core.askSession(r) }); err != nil {
		return front.LockBroken{}, err
	}
	return front.LockBroken{Name: name, Token: token.Timestamp().String(), Token64: token, FreeAfter: r.Reply.FreeAfter.Seconds()}, r.Err
}

// LockStatus is the state of sessions, locks and frontiers.
type LockStatus struct {
	replica.SessionStats
	// Longest are the locks that have been held for the longest time, the oldest first.
	Longest []front.Holder
	// Time is that of the oracle, in unix nanoseconds.
	Time uint64
}

// LockStatus returns the state of sessions, with at most limit locks; ok is false unless this node leads.
func (n *Node) LockStatus(limit int) (s LockStatus, ok bool) {
	n.call(func() {
		c := n.core
		if s.SessionStats, ok = c.replica.SessionStats(); !ok {
			return
		}
		s.Time = c.replica.Upcoming().Time
		for _, h := range c.replica.OldestHolders(limit) {
			if isShown(h) {
				s.Longest = append(s.Longest, c.holder(h))
			}
		}
	})
	return s, ok
}
