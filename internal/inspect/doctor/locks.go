package doctor

import (
	"fmt"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/session"
)

// frontierLagMax is from which lag of a frontier on, in seconds, there is a warning.
const frontierLagMax = 10

// locks judges sessions, locks and frontiers, as the leader tells them.
func (j *findings) locks(c *Cluster) {
	s := c.view()
	if s == nil || s.Locks == nil {
		return
	}
	before, l := len(*j), s.Locks
	for _, limit := range []struct {
		what      string
		have, max int
		do        string
	}{
		{"locks are held", l.Held, oracle.HoldsMax, "isotone locks list shows who holds them; use one lock for things that are done together"},
		{"sessions", l.Sessions, session.Max, "use one session for each process, and close it at its end; labels of sessions say whose they are"},
	} {
		if float64(limit.have) >= nearLimit*float64(limit.max) {
			j.add(Warning, "locks", "limits", fmt.Sprintf("%d of %d %s", limit.have, limit.max, limit.what), limit.do)
		}
	}
	if l.LagSeconds > frontierLagMax {
		j.add(Warning, "locks", "frontier", fmt.Sprintf("a frontier is %.0f s behind", l.LagSeconds), "isotone_frontier_lag_seconds and the leader's log name the group; then: isotone frontier blockers GROUP")
	}
	if len(*j) == before {
		j.ok("locks", "", "%s held in %s, %s of writers", count(l.Held, "lock"), count(l.Sessions, "session"), count(l.Groups, "group"))
	}
}
