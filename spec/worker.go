package spec

import "slices"

// Worker is the right to make the ids of one number whose milliseconds lie from Start to End. The log has a record of each: its latest grant. Node and Session are its holder, 0 for nobody.
type Worker struct {
	Worker  uint64 `json:"w"`
	Node    uint64 `json:"n,omitempty"`
	Session uint64 `json:"s,omitempty"`
	Start   uint64 `json:"f"`
	End     uint64 `json:"l"`
	Revoked bool   `json:"revoked,omitempty"`
}

// Lease asks for workers, or for later ends of those that a process holds. Space names the layout of ids.
type Lease struct {
	Node    uint64 `json:"n,omitempty"`
	Session uint64 `json:"s"`
	From    uint64 `json:"f"`
	Until   uint64 `json:"l"`
	Space   string `json:"space"`
}

func (q *Lease) space() string {
	if q == nil {
		return ""
	}
	return q.Space
}

// Used ends the grant of a worker that began at Start: nothing from Next on was used. For a revocation Next is 0.
type Used struct {
	Worker uint64 `json:"w"`
	Start  uint64 `json:"f"`
	Next   uint64 `json:"l,omitempty"`
}

// workersChanged checks records that have changed in this step: a command that was applied in it has to explain each.
func (s *Spec) workersChanged(n *node, e Event) {
	for _, w := range e.Workers {
		s.require("grant", n.explains(w), "no command that was applied makes %+v of %+v", w, n.workers[w.Worker])
		n.workers[w.Worker] = w
	}
	if len(n.commands) == 1 && n.space == "" {
		n.space = n.commands[0].Lease.space()
	}
	s.checkHeld(n)
}

// explains reports whether the command about workers of this step may have changed a record to w. Grants of a worker do not overlap: one begins at or after the end of the one before, which
// a release sets back to what was used. Of a process that catches up, and so applies several in a step, the order of the grants is checked only; others have applied them one by one.
func (n *node) explains(w Worker) bool {
	old, known := n.workers[w.Worker]
	if len(n.commands) != 1 {
		return w.Start >= old.Start
	}
	c := n.commands[0]
	switch {
	case c.Revoke != nil:
		old.Revoked = true
		return w == old && c.Revoke.Worker == w.Worker && c.Revoke.Start == w.Start
	case c.Lease == nil:
		i := slices.IndexFunc(c.Release, func(u Used) bool { return u.Worker == w.Worker && u.Start == old.Start })
		return i >= 0 && w == Worker{Worker: w.Worker, Start: old.Start, End: min(old.End, max(old.Start+1, c.Release[i].Next))}
	case w.Node != c.Lease.Node || w.Session != c.Lease.Session || n.space != "" && c.Lease.Space != n.space:
		return false
	case known && w.Start == old.Start:
		return w.Session == old.Session && w.Node == old.Node && !old.Revoked && w.End == max(old.End, c.Lease.Until)
	}
	return w.Start >= max(c.Lease.From, old.End) && w.End-w.Start == c.Lease.Until-c.Lease.From
}

// checkHeld checks that what a process holds is on record.
func (s *Spec) checkHeld(n *node) {
	for _, h := range n.held {
		w := n.workers[h.Worker]
		if w.Start != h.Start { // it has ended
			s.require("hold", w.Start >= h.End, "it holds %+v, and the log has granted %+v", h, w)
			continue
		}
		s.require("hold", w.Session == h.Session && w.Node == h.Node && w.End >= h.End, "it holds %+v, and the log says %+v", h, w)
	}
}
