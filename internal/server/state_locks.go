package server

import (
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/survey"
	"github.com/isotone/isotone/internal/node"
)

// describeLocks returns what a node tells of sessions, locks and frontiers, or nil if it does not lead or there are none.
func describeLocks(n *node.Node) *survey.Locks {
	s, ok := n.LockStatus(survey.LongestMax)
	if !ok || s.Sessions+s.Held+len(s.Groups) == 0 {
		return nil
	}
	l := &survey.Locks{Sessions: s.Sessions, Held: s.Held, Waiting: s.Waiting, Groups: len(s.Groups), Longest: []survey.HeldLock{}}
	for _, g := range s.Groups {
		l.LagSeconds = max(l.LagSeconds, g.Lag.Seconds())
	}
	for _, h := range s.Longest {
		held := time.Duration(s.Time - min(s.Time, h.Token.Timestamp().Time))
		l.Longest = append(l.Longest, survey.HeldLock{Token: h.Token.String(), Session: front.SessionHash(h.Session), Seconds: held.Seconds()})
	}
	return l
}
