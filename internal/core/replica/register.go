package replica

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/route"
)

// Registration: the leader keeps the member records up to date with what the processes of the
// members say of themselves.

// register proposes, as leader, updates of the member records that differ from the
// hellos of their nodes, its own included.
func (ms *membership) register() {
	if ms.role != raft.StateLeader {
		return
	}
	self := ms.cfg.Self
	self.PeerAddr = ms.ownAddr()
	ms.registerNode(self)
	for _, m := range ms.state.Members {
		if p := ms.peers[m.ID]; p != nil && p.hello.NodeID != 0 {
			ms.registerNode(p.hello)
		}
	}
}

func (ms *membership) registerNode(h Hello) {
	m, ok := ms.state.Member(h.NodeID)
	addr, configured := ms.addrOf(m, h)
	// Not m.ClientAddr: an operator may have changed that since.
	if !ok || m.Boot == h.Boot && m.Session == h.Session && m.Advertised == h.ClientAddr && m.Incarnation == h.Incarnation &&
		m.Level == h.Level && m.PeerAddr == addr && m.Configured == configured {
		return
	}
	if m.PeerAddr == addr {
		addr = ""
	}
	m.Incarnation, m.Boot, m.Session, m.ClientAddr, m.Level = h.Incarnation, h.Boot, h.Session, h.ClientAddr, h.Level
	m.PeerAddr, m.Configured = addr, configured
	m.Durable, m.Promote, m.Replaces, m.Advertised = 0, false, 0, ""      // not part of it
	ms.tail.propose(oracle.Command{Kind: oracle.KindRegister, Member: m}) // the next epoch tries again
}

// addrOf returns the peer address that is to be on record for a member, and the one in its
// settings. An operator may have changed the record since the process told its address. So the
// record follows only a change of the settings.
func (ms *membership) addrOf(m oracle.Member, h Hello) (addr, configured string) {
	changed := h.Configured && m.Configured != "" && m.Configured != h.PeerAddr && !mutant.On(mutant.KeepAddress)
	switch {
	case h.PeerAddr == "" || !ms.isDialable(h.PeerAddr):
		return m.PeerAddr, m.Configured
	case m.PeerAddr == "" || changed:
		addr = h.PeerAddr
	default:
		addr = m.PeerAddr
	}
	if h.Configured {
		return addr, h.PeerAddr
	}
	return addr, m.Configured
}

// isDialable reports whether other members may be able to dial addr. If the members are on several
// machines, they cannot dial what only the machine of its node reaches.
func (f *facts) isDialable(addr string) bool {
	if !route.IsLocal(addr) || mutant.On(mutant.RecordLocal) {
		return true
	}
	remote := func(m oracle.Member) bool { return m.PeerAddr != "" && !route.IsLocal(m.PeerAddr) }
	return !slices.ContainsFunc(f.state.Members, remote) && !slices.ContainsFunc(f.cfg.Founders, remote)
}

// ownAddr returns the peer address that this node tells. If its settings have none, the record is
// better than where it listens.
func (f *facts) ownAddr() string {
	m, _ := f.state.Member(f.cfg.Self.NodeID)
	if f.cfg.Self.Configured || m.PeerAddr == "" {
		return f.cfg.Self.PeerAddr
	}
	return m.PeerAddr
}

// PeerAddrs is where a node may be reached, most trusted first.
type PeerAddrs struct {
	ID    uint64
	Addrs []string
}

// PeerAddrs returns where each other node to connect with may be reached, for [route.Route.Know]: at
// the address on record, and at the one in this node's settings, which configured returns for the ID of
// a member, "" if there is none. The record comes first; while the cluster is being formed, only the
// settings may be right.
func (r *Replica) PeerAddrs(configured func(id uint64) string) (list []PeerAddrs) {
	self := r.cfg.Self.NodeID
	for _, s := range r.admission.strangers {
		list = append(list, PeerAddrs{s.hello.NodeID, []string{s.hello.PeerAddr, configured(s.hello.NodeID)}})
	}
	for _, m := range r.state.Members {
		addrs := []string{m.PeerAddr, configured(m.ID)}
		switch {
		case m.ID == self:
			continue
		case oracle.NodeOf(m.ID) == oracle.NodeOf(self) && m.PeerAddr == r.ownAddr():
			continue // it replaces this one at the same address, or is replaced by it
		case r.forming != nil:
			slices.Reverse(addrs)
		}
		list = append(list, PeerAddrs{m.ID, addrs})
	}
	return list
}
