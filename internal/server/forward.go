package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/operator"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// forwardTimeout bounds how long a node waits for the leader on behalf of a client: as
// long as a leader would have a request wait.
const forwardTimeout = 5 * time.Second

// forwarding asks the leader for what reaches a node that does not lead, and the owner of a timeline for what reaches another node. The
// zero value does nothing.
type forwarding struct {
	client *client.Client
	addr   string
	status atomic.Pointer[func() *front.Status] // the node's
}

// startForwarding learns the cluster from the node at addr, which need not be up yet.
func startForwarding(addr string, out *operator.Access, log *slog.Logger) (*forwarding, error) {
	rejected := func(addr string, err error) { logRejected(log, addr, err) }
	c, err := client.NewWith(context.Background(), client.Options{
		Addrs: []string{addr}, Lazy: true, Dial: dialer(out), TraceParent: traceparent, Hooks: client.Hooks{Rejected: rejected},
	})
	if err != nil {
		return nil, fmt.Errorf("FORWARD: %w", err)
	}
	return &forwarding{client: c, addr: addr}, nil
}

// of tells where this node says of which cluster it is. Until then nothing is forwarded.
func (f *forwarding) of(status func() *front.Status) {
	if f != nil {
		f.status.Store(&status)
	}
}

// readerOf returns what reads the timestamps that are wanted of a cluster.
func readerOf(c *client.Client, w forward.Want) client.Reader {
	r := c.In(w.Mode)
	if w.Timeline != "" {
		r = c.Timeline(w.Timeline).In(w.Mode)
	}
	return r.Above(w.Floor)
}

// Timestamps implements forward.Source.
func (f *forwarding) Timestamps(ctx context.Context, w forward.Want) (r isotone.Range, err error) {
	err = f.ask(func() (err error) {
		r, err = readerOf(f.client, w).Timestamps(ctx, w.Count)
		return err
	})
	return r, err
}

// Timestamps64 implements forward.Source.
func (f *forwarding) Timestamps64(ctx context.Context, w forward.Want) (r isotone.Range64, err error) {
	err = f.ask(func() (err error) {
		r, err = readerOf(f.client, w).Timestamps64(ctx, w.Count)
		return err
	})
	return r, err
}

// ReadWrite implements forward.Source.
func (f *forwarding) ReadWrite(ctx context.Context, w forward.Want) (ms uint64, err error) {
	err = f.ask(func() (err error) {
		ms, err = readWrite(ctx, f.client, w)
		return err
	})
	return ms, err
}

// readWrite asks the oracle of reads and writes of a timeline.
func readWrite(ctx context.Context, c *client.Client, w forward.Want) (ms uint64, err error) {
	oracle := readerOf(c, w).ReadWrite()
	switch w.Op {
	case timeline.OpWrite:
		return oracle.Write(ctx)
	case timeline.OpPeek:
		return oracle.Peek(ctx)
	case timeline.OpRead:
		return oracle.Read(ctx)
	}
	return oracle.Apply(ctx, w.At)
}

// ask calls request, and returns an error unless its answer is one of this node's cluster. The
// address that this node tells clients may lead elsewhere, and so may the client that begins there:
// what comes from another cluster than the node's own is not this node's to give (I10).
func (f *forwarding) ask(request func() error) error {
	own := f.own()
	if own == 0 {
		return isotone.Errorf(isotone.CodeNoLeader, "this node does not know its cluster yet")
	}
	err := request()
	if there := f.client.Cluster(); err == nil && there != 0 && there != own {
		return isotone.Errorf(isotone.CodeWrongCluster,
			"this node is of cluster %s, and by its client address %s it forwards to %s", own, f.addr, there)
	}
	return err
}

// own returns the cluster that this node is of; 0 until it knows.
func (f *forwarding) own() isotone.ClusterID {
	status := f.status.Load()
	if status == nil {
		return 0
	}
	return isotone.ClusterID((*status)().ClusterID)
}

// forwarder returns what forwards for one loop; see node.Config.Forward.
func (f *forwarding) forwarder(wake func()) node.Forwarder {
	return forward.NewUpstream(forward.Config{Source: f, Addr: f.addr, Timeout: forwardTimeout}, wake)
}

func (f *forwarding) close() error {
	if f == nil {
		return nil
	}
	return f.client.Close()
}

// dialer returns what connects to nodes and asks them not to forward what comes: two nodes that
// take each other for the leader must not wait for one another.
func dialer(out *operator.Access) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		raw, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
		c, err := handshake(ctx, out, raw, addr)
		if err == nil {
			err = commandOK(c, "CLIENT", "FORWARD", "OFF")
		}
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("connect to %s: %w", addr, err)
		}
		return c, nil
	}
}
