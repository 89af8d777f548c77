package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/gate"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/resp"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/node"
)

// fronts is everything that speaks with clients on one port: the hot requests in the
// node's loops, all else on the standard servers.
type fronts struct {
	node *node.Node
	web  *web.Server
	tls  *tls.Config
	docs *documents
	// stats is nil unless requests are measured.
	stats *requestStats
	// gates and secures have one for each loop. All are there before the first connection
	// is.
	gates   []*gate.Gate
	secures []*secure.Terminator
	altSvc  string
}

// elsewhere returns how many connections of the port are not behind gate g.
func (f *fronts) elsewhere(g *gate.Gate) func() int {
	return func() int {
		sum := f.web.Connections()
		for _, other := range f.gates {
			if other != g {
				sum += other.Connections()
			}
		}
		return sum
	}
}

// lane builds the fronts in one loop.
func (f *fronts) lane(b front.Backend, l *loop.Loop, mode isotone.ReadMode, m *telemetry.Metrics) node.Lane {
	http := http1.New(http1.Config{Backend: b, IDs: f.node.IDs(len(f.gates)), Live: f.docs.answer, Mode: mode, HandOver: f.web.Take, Observe: m.ObserveRequests, AltSvc: f.altSvc, Stats: f.stats.fastPath(), Loop: l})
	lessor, _ := b.(front.Lessor) // the node's backends are
	redis := resp.New(resp.Config{Backend: b, IDs: f.node.IDs(len(f.gates)), Lessor: lessor, Mode: mode, Observe: m.ObserveRequests, Version: version})
	var g *gate.Gate
	terminator := secure.New(secure.Config{
		Loop: l, TLS: f.tls,
		Open:     func(c *loop.Conn) loop.Handler { return g.Inside(c) },
		HandOver: func(nc net.Conn) { g.Rest(nc) }, HandOverProtocol: "h2",
	})
	g = gate.New(gate.Config{
		Loop: l, HTTP1: http.Open, RESP: redis.Open, Commands: resp.CommandNames(), TLS: terminator.Accept, Rest: f.web.Take, Refuse: f.web.Refuse,
		Elsewhere: func() int { return f.elsewhere(g)() },
	})
	f.gates, f.secures = append(f.gates, g), append(f.secures, terminator)
	return node.Lane{
		Open: g.Open,
		Stop: func() {
			g.Stop()
			terminator.Stop()
			http.Stop()
			redis.Stop()
		},
		Conns: func() int { return terminator.Conns() + http.Conns() + redis.Sessions() },
	}
}

// serve takes the client port over.
func (f *fronts) serve(so sockets, mode isotone.ReadMode, m *telemetry.Metrics) error {
	f.altSvc = web.AltSvc(so.quic.LocalAddr())
	open := func(b front.Backend, l *loop.Loop) node.Lane { return f.lane(b, l, mode, m) }
	if err := f.node.Serve(so.http, loop.Limits{}, open); err != nil {
		return errors.Join(err, so.quic.Close())
	}
	return f.web.Serve(so.quic)
}

// stop accepts no more, lets requests under way finish, until ctx ends, and closes
// everything.
func (f *fronts) stop(ctx context.Context) error {
	f.node.StopServing(ctx)
	err := f.web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what was still running has been cut, as announced
	}
	return err
}

// wait waits for what the fronts have begun beside the loops. The node has been closed.
func (f *fronts) wait() {
	for _, s := range f.secures {
		s.Wait()
	}
}

// loopsMax bounds LOOPS when it follows the number of cores.
const loopsMax = 8

// loops is how many loops own client connections. One has more to give than one core's
// worth of clients can ask; further ones take the socket work off it where cores are
// plenty. It is asked before GOMAXPROCS is changed.
func loops(s *config.Settings) int {
	if n := s.Loops.Int(); n > 0 {
		return n
	}
	return min(max(1, runtime.GOMAXPROCS(0)/4), loopsMax)
}
