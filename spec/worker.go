package spec

import "slices"

// Worker is the record of a worker: its latest lease. The process Session of Node, both 0 for nobody, may make the IDs of this worker whose unix millisecond is at least Start and below End.
type Worker struct {
	Worker  uint64 `json:"w"`
	Node    uint64 `json:"n,omitempty"`
	Session uint64 `json:"s,omitempty"`
	Start   uint64 `json:"f"`
	End     uint64 `json:"l"`
	Revoked bool   `json:"revoked,omitempty"`
}

// Lease asks for worker leases from From until Until, in unix milliseconds, or for later ends of those that the process holds. Space names the layout of IDs.
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

// Used names the lease of Worker that began at Start. No ID was made from the millisecond Next on; it does not count in a revocation.
type Used struct {
	Worker uint64 `json:"w"`
	Start  uint64 `json:"f"`
	Next   uint64 `json:"l,omitempty"`
}

// workersChanged checks the records that have changed in this step against the commands that were applied in it.
func (s *Spec) workersChanged(n *node, e Event) {
	for _, w := range e.Workers {
		s.require("grant", n.explains(w), "the commands that were applied do not change %+[2]v to %+[1]v", w, n.workers[w.Worker])
		n.workers[w.Worker] = w
	}
	if len(n.commands) == 1 && n.space == "" {
		n.space = n.commands[0].Lease.space()
	}
	s.checkHeld(n)
}

// explains reports whether the command about workers that was applied in this step may have changed a record to w. If there were several, as on a process that catches up, only the order of
// the leases is checked; other processes have applied the commands one by one.
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
		if w.Start != h.Start { // that lease has ended
			s.require("hold", w.Start >= h.End, "it makes IDs under %+v, and the log has %+v", h, w)
			continue
		}
		s.require("hold", w.Session == h.Session && w.Node == h.Node && w.End >= h.End, "it makes IDs under %+v, and the log has %+v", h, w)
	}
}
