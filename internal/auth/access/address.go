package access

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/auth/address"
)

const (
	// addressesMax bounds the addresses that are tracked: 10 MB. Beyond it, all others share
	// one record.
	addressesMax = 65536
	// addressKeep is how long an address is remembered without a connection: longer than it
	// takes for its rates to recover.
	addressKeep = 40 * time.Second
)

// Pool is a number of connections that a process keeps at most, on one port or several.
type Pool int

// The pools: of the client port, and of the Thrift port.
const (
	ClientPool Pool = iota
	ThriftPool
	pools
)

// Without limits of its own, an address or a user may take its share of the connections of a pool, and half of those of
// the client port for streams: so that it takes more than one to lock everybody else out.
const streamsShare, streamsOut = 1, 2

// shares are those of a process; 0: none.
type shares struct {
	connections [pools]atomic.Int64
	streams     atomic.Int64
}

// Share sets how many connections the process keeps in a pool at most, of which each address and each user has a share.
func (c *Control) Share(p Pool, most int) {
	c.shares.connections[p].Store(int64(address.Share(most)))
	if p == ClientPool {
		c.shares.streams.Store(max(1, int64(most)*streamsShare/streamsOut))
	}
}

// ofStreams returns how many streams one may have if there are at most all of them; 0: no limit.
func (s *shares) ofStreams(all int64) int64 {
	share := s.streams.Load()
	if share == 0 {
		return 0
	}
	return min(share, max(1, all/streamsOut*streamsShare))
}

// hasRoom reports whether u may have one more connection in a pool.
func (s *shares) hasRoom(u *usage, p Pool) bool {
	most, share := u.limits.Load().Connections, s.connections[p].Load()
	switch {
	case most > 0:
		return u.connections.Load() < most
	case share > 0:
		return u.inPool[p].Load() < share
	}
	return true
}

// addresses has what each client address uses.
type addresses struct {
	mu     *sync.Mutex
	by     map[netip.Addr]*usage
	idle   map[netip.Addr]time.Duration // since when there was no connection, as trim noticed
	others *usage
	limits *Limits // shared by all records
}

func newAddresses() addresses {
	l := &Limits{}
	return addresses{mu: new(sync.Mutex), by: map[netip.Addr]*usage{}, idle: map[netip.Addr]time.Duration{}, others: newUsage(*l), limits: l}
}

func (a *addresses) setLimits(l Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = &l
	a.others.limits.Store(&l)
	for _, u := range a.by {
		u.limits.Store(&l)
	}
}

// open counts a connection from addr, or returns nil if it has too many.
func (a *addresses) open(addr netip.Addr, p Pool, s *shares) *usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.record(addr)
	if !s.hasRoom(u, p) {
		return nil
	}
	u.connect(p, 1)
	return u
}

// find returns what addr uses.
func (a *addresses) find(addr netip.Addr) *usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.record(addr)
}

// record returns the record of addr, with mu held.
func (a *addresses) record(addr netip.Addr) *usage {
	addr = address.Network(addr)
	u := a.by[addr]
	if u == nil {
		if len(a.by) >= addressesMax {
			u = a.others
		} else {
			u = &usage{}
			u.limits.Store(a.limits)
			a.by[addr] = u
		}
	}
	return u
}

// trim forgets addresses that have had no connection for a while.
func (a *addresses) trim(now time.Duration) {
	wall := time.Now().UnixMilli()
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, u := range a.by {
		since, was := a.idle[addr]
		switch {
		case u.connections.Load() > 0 || u.leases.live(wall) > 0:
			delete(a.idle, addr)
		case !was:
			a.idle[addr] = now
		case now-since > addressKeep:
			delete(a.by, addr)
			delete(a.idle, addr)
		}
	}
}

// limited returns u, or nil if nothing is limited but connections and workers.
func (u *usage) limited() *usage {
	if u == nil {
		return nil
	}
	if l := u.limits.Load(); l.Requests == 0 && l.Timestamps == 0 && l.Streams == 0 {
		return nil
	}
	return u
}
