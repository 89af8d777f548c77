package server

import (
	"fmt"
	"net"
	"strconv"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/snowflake"
)

// ThriftPort is the default of THRIFT_PORT.
const ThriftPort = "7609"

// listenThrift opens the Thrift port. If the default port is taken, by another node of this
// machine for instance, or none is wanted, the listener is nil.
func listenThrift(s *config.Settings) (net.Listener, error) {
	if s.ThriftPort == config.PortOff {
		return nil, nil
	}
	port := strconv.Itoa(s.ThriftPort)
	if s.ThriftPort < 0 {
		port = ThriftPort
	}
	l, err := net.Listen("tcp", net.JoinHostPort(s.HTTPHost, port))
	switch {
	case err == nil:
		return l, nil
	case s.ThriftPort < 0:
		return nil, nil
	default:
		return nil, fmt.Errorf("THRIFT_PORT: %w", err)
	}
}

// thriftIDs implements thriftrpc.IDs for a node.
type thriftIDs struct {
	front.IDs
	now func() int64
}

func (t thriftIDs) NextID() (snowflake.ID, error) {
	var ids [1]snowflake.ID
	err := t.Fill(ids[:])
	return ids[0], err
}

func (t thriftIDs) Worker() (datacenter, worker int, err error) {
	both, layout, err := t.IDs.Worker()
	datacenter, worker = layout.Split(both)
	return datacenter, worker, err
}

func (t thriftIDs) NowMillis() int64 { return t.now() }

// serveThrift starts the Thrift front of a node, if there is a listener for its port, as in
// config.Settings. wait waits until it has ended.
func serveThrift(l net.Listener, port int, n *node.Node, cfg thriftrpc.Config) (s *thriftrpc.Server, wait func() error) {
	if port == config.PortOff {
		return nil, func() error { return nil }
	}
	if l == nil {
		cfg.Log.Info("Thrift is not served: its default port is in use; set THRIFT_PORT to another, or off", "port", ThriftPort)
		return nil, func() error { return nil }
	}
	cfg.IDs = thriftIDs{n.IDs(-1), n.NowMillis}
	s = thriftrpc.New(cfg)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return s, func() error {
		err := <-ended
		ended <- err
		return err
	}
}
