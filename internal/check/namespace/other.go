//go:build !linux

// Package namespace is for Linux. Elsewhere there is no network of hosts, and processes run on this machine.
package namespace

import "errors"

// Network is nil.
type Network struct{}

// NetworkDenied returns why nodes can have no network of their own here.
func NetworkDenied() string { return "only Linux has network namespaces" }

// NewNetwork fails.
func NewNetwork(int, string) (*Network, error) { return nil, errors.New(NetworkDenied()) }

func (n *Network) Close() error                              { return nil }
func (n *Network) Command(_ int, command ...string) []string { return command }
func (n *Network) Connect(int, bool) error                   { return errors.New(NetworkDenied()) }
func (n *Network) Begin(...Rule) error                       { return errors.New(NetworkDenied()) }
func (n *Network) End(...Rule) error                         { return errors.New(NetworkDenied()) }
