package proxy

import (
	"net"
	"net/netip"
	"sync"

	"github.com/isotone/isotone/internal/host/address"
)

// Without more than one address nobody locks all others out: it has three quarters of the connections of clients.
const shareOf, shareIn = 3, 4

// clients are the open connections of clients, whose number has bounds: for all together, and for one address.
type clients struct {
	most, share int

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

func newClients(most int) *clients {
	return &clients{most: most, share: max(1, most*shareOf/shareIn), from: map[netip.Addr]int{}}
}

// enter counts a connection, unless there are too many, and returns how to end that. It must be called once.
func (c *clients) enter(nc net.Conn) (leave func(), ok bool) {
	addr := address.NetworkOf(nc.RemoteAddr())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.from[addr] >= c.share {
		return nil, false
	}
	c.all++
	c.from[addr]++
	return func() { c.leave(addr) }, true
}

func (c *clients) leave(addr netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.from[addr]--; c.from[addr] == 0 {
		delete(c.from, addr)
	}
}

// count returns how many connections are open.
func (c *clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}
