package proxy

import (
	"net"
	"net/netip"
	"sync"

	"github.com/isotone/isotone/internal/auth/address"
)

// clients counts the open connections of clients. Their number has two bounds: for all together, and for one address.
type clients struct {
	most, share int

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

func newClients(most int) *clients {
	return &clients{most: most, share: address.Share(most), from: map[netip.Addr]int{}}
}

// enter counts a connection, unless there are too many, and returns a function that ends the count. The caller calls it exactly once.
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
