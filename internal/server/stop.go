package server

import (
	"context"
	"log/slog"
	"time"
)

// drain asks the member to end. It can be called more than once, by any goroutine.
func (m *Member) drain() { m.askOnce.Do(func() { close(m.asked) }) }

// redirectTime is the default of Member.RedirectTime.
const redirectTime = 100 * time.Millisecond

// redirectPoll is how often a member looks whether the clients that it redirects have left.
const redirectPoll = 5 * time.Millisecond

// Stop drains the member and ends it. At first it only says that it is not ready, and serves for
// the delay; then it transfers leadership, waits until others own its timelines, redirects, lets requests under way finish,
// and gives its worker ids back.
func (m *Member) Stop(log *slog.Logger) error {
	reached(m.steps, "drain received")
	owned := m.Node.GroupsToLeave() > 0
	m.Node.Drain()
	m.fronts.drain()
	reached(m.steps, "drain announced")
	m.pause(m.shutdownDelay)
	led := m.Node.Status().Role == "leader"
	ctx, cancel := context.WithTimeout(context.Background(), m.transferTimeout)
	defer cancel()
	if err := m.Node.TransferLeadership(ctx); err != nil {
		log.Warn("stopping without transferring leadership", "err", err)
	}
	for m.Node.GroupsToLeave() > 0 && ctx.Err() == nil {
		m.pause(redirectPoll)
	}
	if owned || led && m.Node.Status().Role != "leader" {
		for end := time.Now().Add(m.RedirectTime); m.Node.Conns()+m.fronts.web.Connections() > 0 && time.Now().Before(end); {
			m.pause(redirectPoll)
		}
	}
	reached(m.steps, "drain transferred")
	return m.Close()
}

// pause waits, unless the member fails.
func (m *Member) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.Node.Failed():
	case <-m.served:
	}
}
