package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// idleWait bounds how long the loop sleeps with nothing to do.
const idleWait = time.Second

// Gateway runs an [Upstream] in a loop of its own, with fronts in it. Make it with
// [StartGateway]. All methods are safe for concurrent use.
type Gateway struct {
	upstream *Upstream
	hosts    loop.Hosts // one
}

// StartGateway starts the loop. keepProcessor is as in [loop.Loop.KeepProcessor]. The caller
// must Close it.
func StartGateway(cfg Config, keepProcessor bool, log *slog.Logger) (*Gateway, error) {
	l, err := loop.New(log)
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	if keepProcessor {
		l.KeepProcessor()
	}
	if cfg.Log == nil {
		cfg.Log = log
	}
	u := NewUpstream(cfg, l.Wake)
	h := loop.NewHost(l, loop.HostConfig{Work: work{u, l}})
	h.Start()
	return &Gateway{upstream: u, hosts: loop.Hosts{h}}, nil
}

// work is the upstream as the host of its loop sees it.
type work struct {
	*Upstream
	loop *loop.Loop
}

func (w work) Sleep() time.Duration { return idleWait }
func (w work) Turn()                { w.Upstream.Turn(w.loop.Now()) }
func (w work) Flushed()             {}

// Backend is the cluster, for fronts outside the loop.
func (g *Gateway) Backend() front.Backend { return g.upstream }

// Done is closed when the gateway has ended, by Close or a failure; see Err.
func (g *Gateway) Done() <-chan struct{} { return g.hosts[0].Done() }

// Err waits until the gateway has ended, and returns why.
func (g *Gateway) Err() error { return g.hosts[0].Err() }

// Serve accepts connections from ln, which the gateway owns from now on. open is called once,
// on the loop's goroutine, with the backend for the fronts in that loop; i is 0. Serve is
// called once.
func (g *Gateway) Serve(ln net.Listener, limits loop.Limits, open func(i int, b front.Backend, l *loop.Loop) loop.Service) error {
	return g.hosts.Serve(ln, limits, func(i int, l *loop.Loop) loop.Service { return open(i, g.upstream, l) })
}

// StopServing accepts no more connections, tells the fronts, and waits until they have none
// left, or for ctx.
func (g *Gateway) StopServing(ctx context.Context) { g.hosts.StopServing(ctx) }

// Close ends the gateway. Open connections are closed.
func (g *Gateway) Close() error {
	g.hosts.Stop()
	return g.Err()
}
