//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/namespace"
)

// The ports of nodes that have networks of their own.
const (
	networkHTTP = 8080
	networkRaft = 60001
)

// routes has the networks of nodes by their addresses; all others are dialed from this machine's own network.
var routes sync.Map // from string to *namespace.Network

// newHost makes a host that ends with the test, so it must be made before what runs in it.
func newHost(t testing.TB, name, logPath string, network bool) *namespace.Host {
	t.Helper()
	h, err := namespace.New(name, logPath, network)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, h)
	return h
}

func closeAfter(t testing.TB, h *namespace.Host) {
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// joinHosts gives the nodes a network.
func (c *Cluster) joinHosts(hosts []*namespace.Host) {
	c.t.Helper()
	network, err := namespace.Join(hosts, filepath.Join(c.Dir, "hosts.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	closeAfter(c.t, network.Hub)
	for _, n := range c.Nodes {
		n.network = network
		n.HTTPAddr = fmt.Sprintf("%s:%d", namespace.IP(int(n.ID)), networkHTTP)
		n.RaftAddr = fmt.Sprintf("%s:%d", namespace.IP(int(n.ID)), networkRaft)
		routes.Store(n.HTTPAddr, network)
		c.t.Cleanup(func() { routes.Delete(n.HTTPAddr) })
	}
}

// PowerLoss kills the node as a power failure does: its machine says nothing more on the
// connections that it had, so that peers keep them. It takes [Options.Network]. The rules stay:
// closing a connection of this node later is not heard by its peers either.
func (c *Cluster) PowerLoss(n *Node) {
	c.t.Helper()
	for _, flag := range []string{"FIN", "RST"} {
		packets := namespace.Packets{"--protocol", "tcp", "--tcp-flags", flag, flag, "-j", "DROP"}
		n.do(n.network.Begin(namespace.OutOf(int(n.ID), len(c.Nodes), packets)...))
	}
	n.Kill()
}

// CutOff loses everything that a node sends and gets, without a reset, until restore is called. It
// takes [Options.Network].
func (c *Cluster) CutOff(n *Node) (restore func()) {
	c.t.Helper()
	set := func(up bool) {
		c.t.Helper()
		n.do(n.network.Connect(int(n.ID), up))
	}
	set(false)
	return func() { set(true) }
}

// Part loses everything between some nodes and all others, without a reset, until heal is called. Among themselves they are still connected, and
// clients reach all of them. It takes [Options.Network].
func (c *Cluster) Part(nodes ...*Node) (heal func()) {
	c.t.Helper()
	var rules []namespace.Rule
	for _, n := range nodes {
		for _, other := range c.Nodes {
			if !slices.Contains(nodes, other) {
				from, to := int(n.ID), int(other.ID)
				rules = append(rules, namespace.Rule{From: from, To: to, Packets: namespace.Dropped()}, namespace.Rule{From: to, To: from, Packets: namespace.Dropped()})
			}
		}
	}
	network := c.Nodes[0].network
	c.Nodes[0].do(network.Begin(rules...))
	return func() {
		c.t.Helper()
		c.Nodes[0].do(network.End(rules...))
	}
}

// Dialer returns what connects clients with the nodes: from the hub with [Options.Network], and else nil, which stands for this machine.
func (c *Cluster) Dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if n := c.Nodes[0].network; n != nil {
		return n.Hub.DialContext
	}
	return nil
}
