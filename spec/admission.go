package spec

// Hello is what a process says of itself when it connects.
type Hello struct {
	// Cluster is that for which its directory is set up, 0 for none. Formed is set once that is formed.
	Cluster uint64 `json:"c,omitempty"`
	Formed  bool   `json:"formed,omitempty"`
	// Incarnation tells its directory from others, Boot counts the starts of that, and Session tells processes apart.
	Incarnation uint64 `json:"i,omitempty"`
	Boot        uint64 `json:"boot,omitempty"`
	Session     uint64 `json:"s,omitempty"`
	// Last is the end of its log, Tick the length of its ticks in nanoseconds, and Level the newest feature level that it knows.
	Last  uint64 `json:"last,omitempty"`
	Tick  int64  `json:"tick,omitempty"`
	Level uint64 `json:"level,omitempty"`
	// Floor is that of the backup from which it is to restore a cluster.
	Floor uint64 `json:"floor,omitempty"`
}

// Member is the record of a member: the latest process that is known, and up to where it is known to have the log on disk.
type Member struct {
	ID          uint64 `json:"id"`
	Incarnation uint64 `json:"i,omitempty"`
	Boot        uint64 `json:"boot,omitempty"`
	Session     uint64 `json:"s,omitempty"`
	Durable     uint64 `json:"d,omitempty"`
}

// handshakeMax is how long before a connection the peer may have been let in, in nanoseconds.
const handshakeMax = 10 * second

// records are what was applied of a member, the latest last, and at what time; first, that nothing was known. Of those that are older than handshakeMax, only the latest is kept.
type records []recorded

type recorded struct {
	Member
	at int64
}

// latest returns the latest record.
func (r records) latest() Member {
	if len(r) == 0 {
		return Member{}
	}
	return r[len(r)-1].Member
}

// record notes a record of a member.
func (n *node) record(m Member) {
	list := n.records[m.ID]
	if len(list) == 0 {
		list = make(records, 1)
	}
	for len(list) > 1 && n.at-list[1].at > handshakeMax {
		list = list[1:]
	}
	n.records[m.ID] = append(list, recorded{m, n.at})
}

// register changes a record by what the process of a member says. The first directory and the latest start of it count.
func (n *node) register(m Member) {
	was := n.records[m.ID].latest()
	if was.Incarnation == 0 || was.Incarnation == m.Incarnation && was.Boot <= m.Boot {
		m.Durable = max(m.Durable, was.Durable)
		n.record(m)
	}
}

// permits reports whether a process may be let in by a record: its directory is that of the member, and no older copy of it.
func (m Member) permits(h Hello, before Hello) bool {
	if m.Incarnation == 0 {
		return true
	}
	onRecord := h.Session == m.Session && h.Boot == m.Boot
	return h.Incarnation == m.Incarnation && (onRecord || h.Boot > m.Boot && (h.Last >= m.Durable || h.Session == before.Session))
}

// meet checks that a peer that connects may do so, by a record of the time of its handshake, and by what has connected before.
func (s *Spec) meet(n *node, e Event) {
	h, before := *e.Hello, n.hellos[e.Peer]
	n.hellos[e.Peer] = h
	if n.applied == 0 {
		return // it knows nothing of members yet
	}
	s.require("admission", h.Cluster == 0 || h.Cluster == n.cluster, "it lets node %d of cluster %x in", e.Peer, h.Cluster)
	s.require("admission", h.Tick == n.tick, "it lets node %d in, whose ticks take %d ns", e.Peer, h.Tick)
	s.require("admission", before.Incarnation != h.Incarnation || before.Boot < h.Boot || before.Boot == h.Boot && before.Session == h.Session,
		"it lets start %d of node %d in, and start %d was there before", h.Boot, e.Peer, before.Boot)
	list := n.records[e.Peer]
	ok := len(list) == 0
	for i, m := range list {
		last := i == len(list)-1
		ok = ok || (last || n.at-list[i+1].at <= handshakeMax) && m.permits(h, before)
	}
	s.require("admission", ok, "it lets node %d in with %+v, and has on record %+v", e.Peer, h, list)
}
