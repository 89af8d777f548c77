//go:build linux

package namespace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The network of hosts has addresses of its own that nobody else sees.
const (
	subnet  = "10.77.0."
	hubAddr = subnet + "254"
	// HostsMax is the largest number of hosts of a network.
	HostsMax = 253
)

// Network joins hosts by a bridge. Hosts are numbered from 1.
type Network struct {
	// Hub is the host of the bridge, where clients run.
	Hub   *Host
	hosts []*Host
}

// IP returns the address of a host.
func IP(id int) string { return fmt.Sprint(subnet, id) }

// port returns the hub's end of the cable of a host.
func port(id int) string { return fmt.Sprint("port", id) }

// Join joins hosts that have networks. The output of the hub's process is appended to the file at logPath.
func Join(hosts []*Host, logPath string) (*Network, error) {
	hub, err := New("the clients", logPath, true)
	if err != nil {
		return nil, err
	}
	n := &Network{Hub: hub, hosts: hosts}
	if err := n.connect(); err != nil {
		return nil, errors.Join(err, hub.Close())
	}
	return n, nil
}

func (n *Network) connect() error {
	var errs []error
	run := func(h *Host, args ...string) { errs = append(errs, h.Do(append([]string{"ip"}, args...)...)) }
	run(n.Hub, "link", "set", "lo", "up")
	run(n.Hub, "link", "add", "hub", "type", "bridge")
	run(n.Hub, "addr", "add", hubAddr+"/24", "dev", "hub")
	run(n.Hub, "link", "set", "hub", "up")
	for i, h := range n.hosts {
		id := i + 1
		run(n.Hub, "link", "add", port(id), "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(h.sleeper.PID()))
		run(n.Hub, "link", "set", port(id), "master", "hub", "up")
		run(h, "link", "set", "lo", "up")
		run(h, "addr", "add", IP(id)+"/24", "dev", "eth0")
		run(h, "link", "set", "eth0", "up")
	}
	return errors.Join(errs...)
}

// Packets is what happens to the packets that a host gets from another: the end of an iptables rule.
type Packets []string

// Dropped has all of them lost.
func Dropped() Packets { return Packets{"-j", "DROP"} }

// Lost has a part of them lost, 0 to 1.
func Lost(part float64) Packets {
	return Packets{"-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.3f", part), "-j", "DROP"}
}

// Begin adds a rule for the packets from one host to another, and leaves the other direction alone.
func (n *Network) Begin(from, to int, p Packets) error { return n.rule("--append", from, to, p) }

// End removes the rule that [Network.Begin] added with the same arguments.
func (n *Network) End(from, to int, p Packets) error { return n.rule("--delete", from, to, p) }

func (n *Network) rule(action string, from, to int, p Packets) error {
	rule := []string{"iptables", "--wait", action, "INPUT", "--source", IP(from)}
	return n.hosts[to-1].Do(append(rule, p...)...)
}

// Connect opens or closes the cable of a host. Unlike a command it takes effect within some microseconds.
func (n *Network) Connect(id int, up bool) error {
	request, err := unix.NewIfreq(port(id))
	if err != nil {
		return err
	}
	return n.Hub.inside(func() error {
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
