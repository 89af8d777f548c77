package verify

import (
	"errors"

	"github.com/isotone/isotone/internal/check/namespace"
)

// networkDenied returns why nodes can have no network of their own here, or "".
func networkDenied() string { return namespace.NetworkDenied() }

// network is the hosts of nodes, joined by a bridge where the clients are. Nodes are numbered from 0. A nil network is
// that of this machine.
type network struct {
	hosts  []*namespace.Host
	joined *namespace.Network
}

func newNetwork(count int, log string) (*network, error) {
	n := &network{}
	for range count {
		h, err := namespace.New("a node", log, true)
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.hosts = append(n.hosts, h)
	}
	var err error
	if n.joined, err = namespace.Join(n.hosts, log); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *network) close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.Close())
	}
	if n.joined != nil {
		errs = append(errs, n.joined.Hub.Close())
	}
	return errors.Join(errs...)
}

func (n *network) host(node int) string { return namespace.IP(node + 1) }

// prefix returns what has a command run on the host of a node.
func (n *network) prefix(node int) func([]string) []string {
	if n == nil {
		return same
	}
	return func(command []string) []string { return n.hosts[node].Command(command...) }
}

// clients returns what has a command run where the clients are.
func (n *network) clients() func([]string) []string {
	if n == nil {
		return same
	}
	return func(command []string) []string { return n.joined.Hub.Command(command...) }
}

// connect opens or closes the cable of a node.
func (n *network) connect(node int, up bool) error { return n.joined.Connect(node+1, up) }

// A rule says what happens to the packets from one node to another.
type rule struct {
	from, to int
	packets  namespace.Packets
}

func lost(from, to int) rule { return rule{from, to, namespace.Dropped()} }

func thinned(from, to int) rule { return rule{from, to, namespace.Lost(1. / 3)} }

func (n *network) begin(r rule) error { return n.joined.Begin(r.from+1, r.to+1, r.packets) }
func (n *network) end(r rule) error   { return n.joined.End(r.from+1, r.to+1, r.packets) }
