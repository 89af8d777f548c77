package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/snowflake"
)

// Gateway runs an [Upstream] in a loop of its own, with the fronts of a node in it. Make
// it with [StartGateway]. All methods are safe for concurrent use.
type Gateway struct {
	upstream *Upstream
	loop     *loop.Loop
	done     chan struct{}
	err      error // why the loop has ended; after done

	mu    sync.Mutex
	calls []func() // bounded: a few for each Serve and StopServing
	stop  bool

	lane Lane // the loop's
}

// Lane is the fronts in the loop. Its functions run on the loop's goroutine.
type Lane struct {
	// Open returns the handler of a new connection; see loop.Loop.Listen.
	Open func(*loop.Conn) loop.Handler
	// Stop is called once when no more connections are accepted. Requests under way are
	// still to be answered; after that the connections should close.
	Stop func()
	// Conns returns how many connections are left.
	Conns func() int
}

// StartGateway starts the loop. keepProcessor is as in [Config]. The caller must Close it.
func StartGateway(cfg UpstreamConfig, keepProcessor bool, log *slog.Logger) (*Gateway, error) {
	l, err := loop.New(log)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if keepProcessor {
		l.KeepProcessor()
	}
	if cfg.Log == nil {
		cfg.Log = log
	}
	g := &Gateway{loop: l, upstream: NewUpstream(cfg, l.Wake), done: make(chan struct{})}
	go g.run()
	return g, nil
}

// Backend is the cluster, for fronts outside the loop.
func (g *Gateway) Backend() front.Backend { return g.upstream }

// Done is closed when the gateway has ended, by Close or a failure; see Err.
func (g *Gateway) Done() <-chan struct{} { return g.done }

// Err returns why the gateway has ended, once it has.
func (g *Gateway) Err() error { <-g.done; return g.err }

// run is the loop's goroutine.
func (g *Gateway) run() {
	defer close(g.done)
	for {
		err := g.loop.Wait(idleWait)
		calls, stop := g.take()
		for _, f := range calls {
			f()
		}
		g.upstream.Turn(g.loop.Now())
		g.loop.Flush()
		if err == nil && !stop {
			continue
		}
		g.upstream.Close()
		g.loop.Flush()
		if g.err = err; g.err == nil {
			g.err = g.loop.Close()
		} else {
			_ = g.loop.Close()
		}
		return
	}
}

func (g *Gateway) take() (calls []func(), stop bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls, g.calls = g.calls, nil
	return calls, g.stop
}

// call runs f on the loop's goroutine and waits for it. It reports whether it has run.
func (g *Gateway) call(f func()) bool {
	ran := make(chan struct{})
	g.mu.Lock()
	g.calls = append(g.calls, func() { f(); close(ran) })
	g.mu.Unlock()
	g.loop.Wake()
	select {
	case <-ran:
		return true
	case <-g.done:
		return false
	}
}

// Serve accepts connections from ln, which the gateway owns from now on. open is called on
// the loop's goroutine, with the backend for the fronts in that loop. It is called once.
func (g *Gateway) Serve(ln net.Listener, limits loop.Limits, open func(front.Backend, *loop.Loop) Lane) error {
	err := error(errClosed)
	g.call(func() {
		g.lane = open(g.upstream, g.loop)
		err = g.loop.Listen(ln, limits, g.lane.Open)
	})
	if err != nil {
		_ = ln.Close()
	}
	return err
}

// StopServing accepts no more connections, tells the fronts, and waits until they have
// none left, or for ctx.
func (g *Gateway) StopServing(ctx context.Context) {
	left := 0
	stop := func() {
		if g.lane.Stop != nil {
			g.loop.StopListening()
			g.lane.Stop()
		}
	}
	count := func() {
		if left = 0; g.lane.Conns != nil {
			left = g.lane.Conns()
		}
	}
	g.call(stop)
	for g.call(count) && left > 0 {
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the gateway. What is still open is cut.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.stop = true
	g.mu.Unlock()
	g.loop.Wake()
	return g.Err()
}

// Generator makes ids without a request for each; *client.Generator is one.
type Generator interface {
	TryNext() (snowflake.ID, error)
	Worker() int
	Layout() snowflake.Layout
}

// IDs is a [front.IDs] over a generator, for any goroutine.
type IDs struct{ Generator }

// Fill sets all of dst or fails; ids that it has made until then are lost.
func (i IDs) Fill(dst []snowflake.ID) error {
	for at := range dst {
		id, err := i.TryNext()
		if err != nil {
			return err
		}
		dst[at] = id
	}
	return nil
}

// Worker returns whose ids they are.
func (i IDs) Worker() (int, snowflake.Layout, error) { return i.Generator.Worker(), i.Layout(), nil }
