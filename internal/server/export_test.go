package server

import (
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/front"
)

// What tests need that run a node.

const (
	AdminConnectionsMax = adminConnectionsMax
	AdminShare          = adminShare
)

var (
	Outward         = outward
	StartForwarding = startForwarding
)

func (f *forwarding) Of(status func() *front.Status) { f.of(status) }
func (f *forwarding) Client() *client.Client         { return f.client }
func (f *forwarding) Close() error                   { return f.close() }

// IDsOf returns the IDs of a proxy that has leased a worker.
func IDsOf(g *client.Generator) front.IDs {
	l := new(leasedIDs)
	l.generator.Store(g)
	return l
}

// HasState reports whether the document of the node's state has been loaded.
func (m *Member) HasState() bool { return m.docs.state.Lookup("state") != nil }
