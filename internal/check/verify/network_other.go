//go:build !linux

package verify

import "errors"

func networkDenied() string { return "only Linux has network namespaces" }

// network is nil: nodes share the network of this machine.
type network struct{}

var errNoNetwork = errors.New("only Linux has network namespaces")

func newNetwork(int, string) (*network, error) { return nil, errNoNetwork }

func (n *network) close() error                       { return nil }
func (n *network) host(int) string                    { return "" }
func (n *network) prefix(int) func([]string) []string { return same }
func (n *network) clients() func([]string) []string   { return same }
func (n *network) connect(int, bool) error            { return errNoNetwork }

// rule is as on Linux.
type rule struct{}

func lost(int, int) rule    { return rule{} }
func thinned(int, int) rule { return rule{} }

func (n *network) begin(rule) error { return errNoNetwork }
func (n *network) end(rule) error   { return errNoNetwork }
