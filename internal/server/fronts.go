package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/gate"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/front/pd"
	"github.com/isotone/isotone/internal/front/resp"
	"github.com/isotone/isotone/internal/front/thriftrpc"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
)

// clientServer runs fronts in its loops: a node, or a gateway to a cluster.
type clientServer interface {
	Serve(ln net.Listener, limits loop.Limits, open func(i int, b front.Backend, l *loop.Loop) loop.Service) error
	StopServing(ctx context.Context)
}

// frontsConfig says what speaks with clients. Server and Web are required.
type frontsConfig struct {
	version string // of this program
	server  clientServer
	// web configures the standard servers. What the fronts in the loops share with them is
	// taken from there: Clock, Mode, TLS, Live, Limits.
	web web.Config
	// ids returns the ids for the fronts in loop i; nil: none.
	ids func(i int) front.IDs
	// live answers requests for live documents in the loops; nil: nothing does.
	live func(name, acceptEncoding, ifNoneMatch string) []byte
	// observe is told of requests that were answered in a loop.
	observe func(protocol, code string, requests int, wall time.Duration)
	// pd answers clients of PD, whose connections pdListener accepts; nil: there are none.
	pd         *pd.Server
	pdListener net.Listener
	// slotsOfTimelines: see resp.Config.
	slotsOfTimelines bool
	// redisScripts are those of libraries for locks in Redis; nil: these are not served.
	redisScripts *resp.Scripts
	// tlsRequired refuses clients without TLS.
	tlsRequired bool
	// stats is nil unless requests are measured, trace unless they are traced.
	stats *requestStats
	trace *trace.Exporter
}

// redisScripts returns what knows the scripts of libraries for locks in Redis; nil if these are not served.
func redisScripts(on bool, metrics *telemetry.Metrics) *resp.Scripts {
	if !on {
		return nil
	}
	return &resp.Scripts{Unknown: metrics.CountUnknownScript}
}

// fronts is everything that speaks with clients on one port: the hot requests in the loops,
// all else on the standard servers.
type fronts struct {
	cfg    frontsConfig
	web    *web.Server
	altSvc string
	loops  atomic.Pointer[[]loopFronts] // one for each loop that has been opened
	pdErr  error                        // why clients of PD are not served
}

// loopFronts is what has to be asked of the fronts in one loop.
type loopFronts struct {
	loop   *loop.Loop
	gate   *gate.Gate
	http   *http1.Front
	http2  *http2.Front
	redis  *resp.Front
	secure *secure.Terminator // nil without TLS
	pd     *pdFront           // nil: not in this loop
}

func newFronts(cfg frontsConfig) *fronts {
	f := &fronts{cfg: cfg}
	f.loops.Store(&[]loopFronts{})
	cfg.web.Elsewhere, cfg.web.Wrap = func() int { return f.inLoops(nil) }, cfg.stats.wrap(cfg.trace)
	f.web = web.New(cfg.web)
	return f
}

// inLoops returns how many connections the loops have, but for those of one gate.
func (f *fronts) inLoops(but *gate.Gate) int {
	sum := 0
	for _, l := range *f.loops.Load() {
		if l.gate != but {
			sum += l.gate.Connections()
		}
	}
	return sum
}

// watchConnections adds the connections of clients to the metrics. thrift may be nil.
func (f *fronts) watchConnections(r *telemetry.Registry, thrift *thriftrpc.Server) {
	limit := 0
	if thrift != nil {
		_, limit, _ = thrift.Usage()
	}
	telemetry.WatchConnections(r, f.web.ConnectionsMax(), limit, func() []telemetry.Connections { return f.byProtocol(thrift) })
}

// byProtocol counts the connections of clients. Those under TLS in a loop count by what is
// inside.
func (f *fronts) byProtocol(thrift *thriftrpc.Server) []telemetry.Connections {
	var silent, handshakes, http, multiplexed, redis int
	var refused uint64
	var all []telemetry.Connections
	for _, l := range *f.loops.Load() {
		silent += l.gate.Undecided()
		refused += l.gate.Refused()
		http += l.http.Conns()
		multiplexed += l.http2.Conns()
		redis += l.redis.Conns()
		if l.secure != nil {
			handshakes += l.secure.Conns()
		}
		if l.pd != nil {
			all = append(all, l.pd.connections())
		}
	}
	quic, quicRefused := f.web.OverQUIC()
	all = append(all, []telemetry.Connections{
		{Protocol: "silent", Open: silent, Refused: refused, Refusable: true},
		{Protocol: "handshake", Open: handshakes},
		{Protocol: "http1", Open: http},
		{Protocol: "http2", Open: multiplexed},
		{Protocol: "resp", Open: redis},
		{Protocol: "web", Open: max(0, f.web.Connections()-quic)}, // the two are not read at once
		{Protocol: "h3", Open: quic, Refused: quicRefused, Refusable: true},
	}...)
	if thrift != nil {
		open, _, refused := thrift.Usage()
		all = append(all, telemetry.Connections{Protocol: "thrift", Open: open, Refused: refused, Refusable: true})
	}
	return all
}

// connections returns how many connections of clients are open.
func (f *fronts) connections() int { return f.web.Connections() + f.inLoops(nil) }

// open builds the fronts in loop i. It is called for one loop at a time.
func (f *fronts) open(i int, b front.Backend, l *loop.Loop) loop.Service {
	cfg := &f.cfg
	var ids front.IDs
	if cfg.ids != nil {
		ids = cfg.ids(i)
	}
	hot := http1.Config{
		Backend: b, IDs: ids, Clock: cfg.web.Clock, Live: cfg.live, Mode: cfg.web.Mode, Detached: f.web.Take, Observe: cfg.observe, AltSvc: f.altSvc,
		Stats: cfg.stats.fastPath(), Loop: l, Trace: cfg.trace,
	}
	http := http1.New(hot)
	multiplexed := http2.New(http2.Config{
		Loop: l, Hot: hot, Handler: f.web.Handler(), Backend: b, Refusing: cfg.web.Access.Refusing, Log: cfg.web.Log,
		Limits: http2.Limits{StreamsMax: cfg.web.Limits.StreamsMax, HeaderBytesMax: cfg.web.Limits.HeaderBytesMax, WriteTimeout: cfg.web.Limits.WriteTimeout},
	})
	lessor, _ := b.(front.Lessor) // a node is
	sessions, _ := b.(front.Sessions)
	redisLocks, _ := b.(front.RedisLocks)
	if cfg.redisScripts == nil {
		redisLocks = nil
	}
	redis := resp.New(resp.Config{
		Backend: b, IDs: ids, Clock: cfg.web.Clock, Lessor: lessor, Mode: cfg.web.Mode, Observe: cfg.observe, Trace: cfg.trace, Version: cfg.version,
		Post: func(f func()) { l.Post(f) }, SlotsOfTimelines: cfg.slotsOfTimelines, Sessions: sessions,
		RedisLocks: redisLocks, Scripts: cfg.redisScripts,
	})
	var g *gate.Gate
	entry := gate.Config{
		Loop: l, HTTP1: http.Open, HTTP2: multiplexed.Open, RESP: redis.Open, Commands: resp.CommandNames(), Rest: f.web.Take, Refuse: f.web.Refuse,
		Elsewhere: func() int { return f.web.Connections() + f.inLoops(g) }, ConnectionsMax: cfg.web.Limits.ConnectionsMax,
		Admit: f.admit, TLSRequired: cfg.tlsRequired,
	}
	tls := f.terminator(l, func() *gate.Gate { return g })
	if tls != nil {
		entry.TLS = tls.Accept
	}
	g = gate.New(entry)
	var ofPD *pdFront
	if i == 0 && cfg.pd != nil {
		ofPD, f.pdErr = f.openPD(b, l, entry)
	}
	opened := append(append([]loopFronts(nil), *f.loops.Load()...), loopFronts{l, g, http, multiplexed, redis, tls, ofPD})
	f.loops.Store(&opened)
	return loop.Service{
		Open: g.Open,
		Stop: func() {
			g.Stop()
			if tls != nil {
				tls.Stop()
			}
			http.Stop()
			multiplexed.Stop()
			redis.Stop()
			if ofPD != nil {
				ofPD.stop()
			}
		},
		Conns: func() int {
			sum := http.Conns() + multiplexed.Conns() + redis.Conns()
			if tls != nil {
				sum += tls.Conns()
			}
			if ofPD != nil {
				sum += ofPD.conns()
			}
			return sum
		},
	}
}

// terminator returns what takes TLS off the connections of a gate in l; nil without TLS.
func (f *fronts) terminator(l *loop.Loop, of func() *gate.Gate) *secure.Terminator {
	if f.cfg.web.TLS == nil {
		return nil
	}
	return secure.New(secure.Config{
		Loop: l, TLS: f.cfg.web.TLS,
		Begin:    func(c *loop.Conn) bool { return access.Of(c.Tag()).BeginHandshake() },
		Done:     func(c *loop.Conn) { access.Of(c.Tag()).HandshakeDone() },
		Verified: func(c *loop.Conn, chains [][]*x509.Certificate) { access.Of(c.Tag()).SetCertificate(chains) },
		Open:     func(c *loop.Conn, negotiated string) loop.Handler { return of().Inside(c, negotiated) },
	})
}

// admit begins the session of a new connection, unless its client has too many.
func (f *fronts) admit(c *loop.Conn) bool {
	if f.cfg.web.Access == nil {
		return true
	}
	s, err := f.cfg.web.Access.Open(c.Remote().Addr(), nil, access.ClientPool)
	if err != nil {
		return false
	}
	c.SetTag(&s)
	return true
}

// serve serves the client port until stop: TCP in ln, and HTTP/3 in quic, nil without TLS.
// The fronts own both.
func (f *fronts) serve(ln net.Listener, quic net.PacketConn) error {
	if quic != nil {
		f.altSvc = web.AltSvc(quic.LocalAddr())
	}
	err := f.cfg.server.Serve(ln, loop.Limits{}, f.open)
	if f.pdErr != nil {
		err = errors.Join(err, fmt.Errorf("PD_PORT: %w", f.pdErr))
	}
	if err != nil {
		if quic != nil {
			err = errors.Join(err, quic.Close())
		}
		return err
	}
	return f.web.Serve(quic)
}

// drain tells clients of HTTP/2 to go elsewhere, also those that ask nothing. Others learn it with their next answer.
func (f *fronts) drain() {
	for _, l := range *f.loops.Load() {
		l.loop.Post(l.http2.Drain)
		if l.pd != nil {
			l.loop.Post(l.pd.http2.Drain)
		}
	}
}

// stop accepts no more, lets requests under way finish, until ctx ends, and closes
// everything.
func (f *fronts) stop(ctx context.Context) error {
	f.web.EndWaits() // some may be streams of HTTP/2, for which the loops wait
	f.cfg.server.StopServing(ctx)
	err := f.web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what was still running has been cut, as announced
	}
	return err
}

// wait waits for what the fronts have begun outside of the loops. The loops have ended.
func (f *fronts) wait() {
	for _, l := range *f.loops.Load() {
		if l.secure != nil {
			l.secure.Wait()
		}
		l.http2.Wait()
		if l.pd != nil {
			l.pd.wait()
		}
	}
}

// loopsMax bounds LOOPS when it follows the number of cores.
const loopsMax = 8

// Loops is how many loops own client connections. One has more to give than one core's
// worth of clients can ask; further ones take the socket work off it where cores are
// plenty. It is asked before GOMAXPROCS is changed.
func Loops(s *config.Settings) int {
	if s.Loops > 0 {
		return s.Loops
	}
	return min(max(1, runtime.GOMAXPROCS(0)/4), loopsMax)
}
