package survey

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes a report as text: a line about the cluster, a table of its members, the
// problems, and the warnings.
func WriteTable(w io.Writer, r *Report) error {
	var out strings.Builder
	answered, members := r.count()
	leader := "No leader"
	switch {
	case r.Leader != nil:
		leader = fmt.Sprintf("Node %d leads in term %d", r.Leader.NodeID, r.Term)
	case r.forming():
		leader = "The cluster is being formed"
	case r.untold():
		leader = "The cluster is not known"
	}
	fmt.Fprintf(&out, "%s; %d of %d members answer", leader, answered, members)
	if clusters := r.clusters(); len(clusters) == 1 {
		fmt.Fprintf(&out, "; cluster %s", clusters[0])
	}
	out.WriteString("\n\n")
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	// What matters most comes first: narrow terminals cut lines.
	heads := strings.Fields("NODE CLIENTS ROLE READY TERM LAG CLOCK TS/S IDS/S P50 P99 LEAD UP PEERS")
	print := func(cells []string, interval string) {
		if r.intervals() { // after CLOCK
			cells = slices.Insert(cells, 7, interval)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	print(heads, "INTERVAL")
	seen := r.clocks()
	for _, v := range r.Views {
		interval := noFigure
		if v.State != nil {
			interval = v.State.Interval.cell()
		}
		print(r.row(v, seen), interval)
	}
	_ = t.Flush()
	out.WriteString(seen.legend())
	if r.Leader != nil {
		out.WriteString("LAG: log entries that a member lacks; LEAD: how far issued time is ahead of the leader's clock\n")
	}
	r.writeUTC(&out)
	if len(r.Problems)+len(r.Warnings) > 0 {
		out.WriteByte('\n')
	}
	for _, trouble := range slices.Concat(r.Problems, r.Warnings) {
		fmt.Fprintf(&out, "! %s\n", trouble)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// count returns how many members answer, of how many.
func (r *Report) count() (answered, members int) {
	unknown := 0 // proxies, peer ports, and nodes that do not say which member they are
	for _, v := range r.Views {
		switch {
		case v.State != nil:
			answered++
		case v.NodeID == 0 && v.answersOtherwise():
			unknown++
		}
	}
	if answered == 0 {
		unknown = 0 // they are all that is known
	}
	return answered, len(r.Views) - unknown
}

// row returns the cells of one member. Its lag is taken from the leader's document.
func (r *Report) row(v View, seen clocks) []string {
	node := "?"
	if v.NodeID != 0 {
		node = fmt.Sprint(v.NodeID)
	}
	_, addr, _ := strings.Cut(v.Addr, "://")
	peers := r.peerAddr(v)
	missing, _ := r.asSeenByLeader(v.NodeID)
	clock := seen.of(v.NodeID)
	if v.State == nil {
		ready := "no answer"
		switch {
		case v.Addr == "" && r.forming():
			ready = r.awaited(v.NodeID)
		case v.Refused != nil:
			ready = "refuses"
		case v.Error == errNoNode.Error():
			ready = "not a node"
		case v.Error == ErrPeerPort.Error():
			ready = "peer port"
		}
		none := noFigure
		return []string{node, or(addr), none, ready, none, missing, clock, none, none, none, none, none, none, peers}
	}
	s := v.State
	ahead, ready := noFigure, "yes"
	if s.Epoch != nil {
		ahead = lead(s.Epoch.LeadSeconds)
	}
	if !s.Node.Ready {
		ready = "no" // why is among the problems
	}
	if !s.Clock.OK || s.Clock.Exceeded && !s.Clock.SoleVoter {
		clock += " wrong"
	}
	role := or(s.Node.Role)
	if s.Node.Forming {
		role = noFigure
	}
	return []string{node, or(addr), role, ready, fmt.Sprint(s.Term), missing, clock, perSecond(s.Rates.TimestampsPerSecond),
		perSecond(s.Rates.IDsPerSecond), duration(s.Latency.P50), duration(s.Latency.P99), ahead, uptime(s.Node.UptimeSeconds), peers}
}

// peerAddr returns the address of a member for the others: the replicated one, as the member
// itself knows it, or else any other.
func (r *Report) peerAddr(of View) string {
	addr := ""
	for _, v := range r.Views {
		if v.State == nil || of.NodeID == 0 {
			continue
		}
		for _, m := range v.State.Members {
			if m.NodeID == of.NodeID && (m.Self || addr == "") {
				addr = m.PeerAddr
			}
		}
	}
	return or(addr)
}

// awaited says whether any member has reached a member whose client address is unknown,
// while the cluster is being formed.
func (r *Report) awaited(id uint64) string {
	for _, v := range r.Views {
		if v.State == nil {
			continue
		}
		for _, m := range v.State.Members {
			if m.NodeID == id && m.Connected {
				return fmt.Sprintf("node %d has reached it", v.NodeID)
			}
		}
	}
	return "not reached"
}

// asSeenByLeader returns what the leader's own document says about a member.
func (r *Report) asSeenByLeader(id uint64) (missing string, linked bool) {
	missing = noFigure
	for _, v := range r.Views {
		if v.State == nil || r.Leader == nil || v.NodeID != r.Leader.NodeID {
			continue
		}
		for _, m := range v.State.Members {
			if m.NodeID == id {
				missing, linked = lag(m.LagEntries), m.Connected
			}
		}
	}
	return missing, linked
}
