//go:build linux

package namespace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// hubAddr is the address of the hub, behind those of all hosts.
const hubAddr = subnet + "254"

// Network joins hosts by a bridge. Hosts are numbered from 1.
type Network struct {
	// Hub is the host of the bridge, where clients run.
	Hub   *Host
	hosts []*Host
}

// port returns the hub's end of the cable of a host.
func port(id int) string { return fmt.Sprint("port", id) }

// NewNetwork makes a network of count hosts. End it by Close.
func NewNetwork(count int, logPath string) (*Network, error) {
	n := &Network{}
	for range count {
		h, err := New("a node", logPath, true)
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n.hosts = append(n.hosts, h)
	}
	joined, err := Join(n.hosts, logPath)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return joined, nil
}

// Close ends all hosts. A nil network has none.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.Close())
	}
	if n.Hub != nil {
		errs = append(errs, n.Hub.Close())
	}
	return errors.Join(errs...)
}

// Command returns the command line that runs a command on a host, 0 for the hub. With a nil network it is the command itself.
func (n *Network) Command(id int, command ...string) []string {
	switch {
	case n == nil:
		return command
	case id == 0:
		return n.Hub.Command(command...)
	}
	return n.hosts[id-1].Command(command...)
}

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

// Begin adds rules, and End removes them.
func (n *Network) Begin(rules ...Rule) error { return n.change("--append", rules) }

// End is described with [Network.Begin].
func (n *Network) End(rules ...Rule) error { return n.change("--delete", rules) }

func (n *Network) change(action string, rules []Rule) error {
	var errs []error
	for _, r := range rules {
		rule := []string{"iptables", "--wait", action, "INPUT", "--source", IP(r.From)}
		errs = append(errs, n.hosts[r.To-1].Do(append(rule, r.Packets...)...))
	}
	return errors.Join(errs...)
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
