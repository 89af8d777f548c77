//go:build linux

package chaos

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// The network of hosts has addresses of its own that nobody else sees.
const (
	subnet      = "10.77.0."
	hubAddr     = subnet + "254"
	networkHTTP = 8080
	networkRaft = 60001
)

// hostIP returns the address of the host of the node with an ID.
func hostIP(id uint64) string { return fmt.Sprint(subnet, id) }

// hubPort returns the hub's end of the cable of the node with an ID.
func hubPort(id uint64) string { return fmt.Sprint("port", id) }

// newNetwork joins hosts by a bridge. It returns the bridge's host, where the clients are.
func newNetwork(t testing.TB, hosts []*Host, logPath string) *Host {
	t.Helper()
	hub := newHost(t, "the clients", logPath, true)
	run := func(h *Host, args ...string) {
		t.Helper()
		if err := h.do(append([]string{"ip"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	run(hub, "link", "set", "lo", "up")
	run(hub, "link", "add", "hub", "type", "bridge")
	run(hub, "addr", "add", hubAddr+"/24", "dev", "hub")
	run(hub, "link", "set", "hub", "up")
	for i, h := range hosts {
		id := uint64(i + 1)
		port := hubPort(id)
		run(hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(h.sleeper.PID()))
		run(hub, "link", "set", port, "master", "hub", "up")
		run(h, "link", "set", "lo", "up")
		run(h, "addr", "add", hostIP(id)+"/24", "dev", "eth0")
		run(h, "link", "set", "eth0", "up")
	}
	return hub
}

// packets is what happens to the packets that one node gets from another: the end of an
// iptables rule.
type packets []string

func dropped() packets { return packets{"-j", "DROP"} }

func lost(part float64) packets {
	return packets{"-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.3f", part), "-j", "DROP"}
}

// PowerLoss kills the node as a power failure does: its machine says nothing more on the
// connections that it had, so that peers keep them. It takes [Options.Network]. The rules stay:
// closing a connection of this node later is not heard by its peers either.
func (c *Cluster) PowerLoss(n *Node) {
	c.t.Helper()
	for _, peer := range c.Others(n) {
		for _, flag := range []string{"FIN", "RST"} {
			n.do(way{n, peer}.begin(packets{"--protocol", "tcp", "--tcp-flags", flag, flag, "-j", "DROP"}))
		}
	}
	n.Kill()
}

// way is one direction between two nodes. A rule for it leaves the other direction alone.
type way struct{ from, to *Node }

func (w way) String() string { return fmt.Sprintf("%d → %d", w.from.ID, w.to.ID) }

// begin adds a rule for the packets on the way, end removes it.
func (w way) begin(p packets) error { return w.rule("--append", p) }
func (w way) end(p packets) error   { return w.rule("--delete", p) }

func (w way) rule(action string, p packets) error {
	rule := []string{"iptables", "--wait", action, "INPUT", "--source", hostIP(w.from.ID)}
	return w.to.host.do(append(rule, p...)...)
}

// CutOff loses everything that a node sends and gets, without a reset, until restore is called. It
// takes [Options.Network].
func (c *Cluster) CutOff(n *Node) (restore func()) {
	c.t.Helper()
	hub, _ := routes.Load(n.HTTPAddr)
	set := func(up bool) {
		c.t.Helper()
		n.do(hub.(*Host).setLink(hubPort(n.ID), up))
	}
	set(false)
	return func() { set(true) }
}

// setLink opens or closes a network interface of the host. Unlike a command it takes effect within
// some microseconds.
func (h *Host) setLink(name string, up bool) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	return h.inside(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
			return err
		}
		flags := request.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		request.SetUint16(flags)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	})
}
