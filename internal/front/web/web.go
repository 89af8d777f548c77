// Package web is the HTTP front on the standard servers: HTTP/1.1 with and without TLS, HTTP/3 on UDP. Its
// [Server.Handler] answers the requests of HTTP/2, too, which internal/front/http2 reads. The methods of gRPC are paths, which
// internal/front/grpc answers.
//
// It owns those servers and the limits in [Limits]; how queries, answers and
// faults are spelled is defined in internal/front/httpapi. It knows nothing of Raft or of
// how timestamps come to be: every request goes through [front.Backend]. There is one
// [Server] for each client port. It does not accept TCP connections itself: the event loop
// passes on those that the fast path does not serve, with [Server.Take].
//
// Sources: RFC 9110 (semantics), RFC 9112 (HTTP/1.1), RFC 9113 (HTTP/2),
// RFC 9114 (HTTP/3), RFC 7838 (Alt-Svc).
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/listen"
)

// Config configures a [Server]. Only Backend is required.
type Config struct {
	// Backend answers the requests. While its status says that the node drains, answers tell
	// clients to leave: "Connection: close" in HTTP/1, GOAWAY in HTTP/2, no Alt-Svc.
	Backend front.Backend
	// IDs serves /api/snowflake, /ready/ids and Ids of gRPC. Without the handlers below, up to Operator,
	// their paths do not exist.
	IDs front.IDs
	// Clock serves /interval; nil stands for front.NoClock.
	Clock front.Clock
	// Sessions serves /sessions/, /locks/, /frontier/, and Sessions, Locks and Frontiers of gRPC; nil: they are refused. It is safe for concurrent use.
	Sessions front.Sessions
	// Live serves everything below /live/, and /state, an alias of /live/state. It checks
	// the method itself. Requests for streams, whose paths end in /stream, are not
	// observed.
	Live http.Handler
	// Page serves GET and HEAD of /.
	Page http.Handler
	// Metrics serves /metrics.
	Metrics http.Handler
	// Operator serves /upgrade.
	Operator front.Operator
	// Carrier passes requests of operators on to the leader; nil: they are told which node leads.
	Carrier front.Carrier
	// Drain is called, perhaps more than once, for POST /admin/drain. It must not block. Without
	// it the path does not exist.
	Drain func()
	// Admin serves everything below /admin/ and returns the code for Observe. It checks the
	// method itself.
	Admin func(http.ResponseWriter, *http.Request) string
	// Access decides who may ask for what; nil: everybody for everything.
	Access *access.Control
	// Mode applies to requests that name none. isotone.ReadDefault leaves the
	// choice to the backend.
	Mode isotone.ReadMode
	// TLS turns on HTTP/3. Connections of TCP that are under TLS come with their handshake done.
	TLS *tls.Config
	// Limits bounds the server; the zero value means the defaults.
	Limits Limits
	// Observe, if not nil, is called once for every request that reached a
	// handler, after its answer was written to the connection. The protocol is
	// "http1", "h2c", "https1", "h2", "h3" or "grpc"; the code is "ok" or an
	// isotone.Code. It runs on the request's goroutine, concurrently with
	// others, and must not block.
	Observe func(protocol, code string, wall time.Duration)
	// Wrap, if not nil, is a middleware around the handler of all requests. If its
	// ResponseWriter has a method SetCode(string), that is called with the code for
	// Observe.
	Wrap func(http.Handler) http.Handler
	// Elsewhere returns the number of connections of this port outside of this server,
	// which count for Limits.ConnectionsMax too; nil means none. It must be safe for
	// concurrent use.
	Elsewhere func() int
	// Log takes panics at Error, and errors caused by clients at Debug. Nil discards all.
	Log *slog.Logger
}

// Limits bounds what clients can make the server hold (I7). A field that is 0
// or less has its default.
type Limits struct {
	// ConnectionsMax bounds open QUIC connections, together with all others of the port.
	// The gate enforces it for TCP. Default 20000: about 1 GiB of goroutine stacks and
	// buffers, within a common file limit.
	ConnectionsMax int
	// RequestsMax bounds concurrent requests over all connections; beyond it they
	// are answered "overloaded". Default 32768: each may hold one 32 KiB buffer
	// while its client reads a large answer, so at most 1 GiB of them.
	RequestsMax int
	// StreamsMax bounds concurrent requests on one HTTP/2 or HTTP/3 connection.
	// Default 256, as in common proxies.
	StreamsMax int
	// HeaderBytesMax bounds the request line and the header together; net/http
	// allows 4 KiB more. Default 16 KiB: our requests have a few hundred bytes.
	HeaderBytesMax int
	// UnreadBytesMax sets the send buffer of a TCP connection, in bytes (Linux doubles
	// it). Default 256 KiB; the kernel's own limit is several MiB for each connection.
	UnreadBytesMax int
	// ReadHeaderTimeout bounds the TLS handshake, and each request header. Default 10 s.
	ReadHeaderTimeout time.Duration
	// IdleTimeout bounds the wait for the next request. Default 2 min.
	IdleTimeout time.Duration
	// WriteTimeout bounds one request from its header to the last byte of its
	// answer. Default 30 s: 7 MiB of JSON at 2 Mbit/s.
	WriteTimeout time.Duration
	// ClockWaitsMax bounds the requests that wait until the cluster clock has passed a
	// timestamp; further ones are answered "overloaded". Default 1024: each looks at the clock
	// a hundred times a second.
	ClockWaitsMax int
	// RequestTimeout bounds the wait for the backend; then the answer is
	// "deadline_exceeded". Default 5 s: several elections.
	RequestTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		ConnectionsMax:    orDefault(l.ConnectionsMax, 20000),
		RequestsMax:       orDefault(l.RequestsMax, 32768),
		StreamsMax:        orDefault(l.StreamsMax, 256),
		HeaderBytesMax:    orDefault(l.HeaderBytesMax, 16<<10),
		UnreadBytesMax:    orDefault(l.UnreadBytesMax, 256<<10),
		ReadHeaderTimeout: orDefault(l.ReadHeaderTimeout, 10*time.Second),
		IdleTimeout:       orDefault(l.IdleTimeout, 2*time.Minute),
		WriteTimeout:      orDefault(l.WriteTimeout, 30*time.Second),
		ClockWaitsMax:     orDefault(l.ClockWaitsMax, 1024),
		RequestTimeout:    orDefault(l.RequestTimeout, 5*time.Second),
	}
}

func orDefault[T cmp.Ordered](value, def T) T {
	var zero T
	if value <= zero {
		return def
	}
	return value
}

// handlersGrace bounds the wait of Shutdown for handlers whose connections it
// has just cut. They end at once, unless the metrics handler hangs.
const handlersGrace = time.Second

// Server serves one client port. Make it with [New], call [Server.Serve] once
// and [Server.Shutdown] to end it. All methods are safe for concurrent use.
type Server struct {
	handler *handler
	limits  Limits

	http *http.Server
	h3   *http3.Server

	connections atomic.Int64 // of this server
	overQUIC    atomic.Int64 // those of them over QUIC
	refusedQUIC atomic.Uint64
	elsewhere   func() int
	refusals    chan struct{} // one token for each connection being refused
	force       context.CancelFunc

	ready    *listen.Handoff
	mu       sync.Mutex
	stopped  bool
	served   chan struct{} // closed when Serve is over; nil before Serve
	udp      net.PacketConn
	quic     *quic.Transport
	quicIn   *quic.Listener
	fresh    map[net.Conn]struct{} // not yet handed to net/http
	freshEnd sync.WaitGroup        // the goroutines of fresh
}

// New returns a server that does nothing until [Server.Serve]. It panics
// without a Backend.
func New(cfg Config) *Server {
	if cfg.Backend == nil {
		panic("web: Config.Backend is nil")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = front.NoClock{}
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Elsewhere == nil {
		cfg.Elsewhere = func() int { return 0 }
	}
	base, force := context.WithCancel(context.Background())
	s := &Server{
		handler:   newHandler(cfg),
		limits:    cfg.Limits,
		elsewhere: cfg.Elsewhere,
		refusals:  make(chan struct{}, refusalsMax),
		force:     force,
		ready:     listen.NewHandoff(),
		fresh:     make(map[net.Conn]struct{}),
	}
	var root http.Handler = s.handler
	if cfg.Wrap != nil {
		root = cfg.Wrap(root)
	}
	if cfg.TLS != nil {
		s.h3 = newHTTP3Server(cfg, root)
	}
	s.http = newHTTPServer(cfg, root, base)
	return s
}

func newHTTPServer(cfg Config, h http.Handler, base context.Context) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      h,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is a 404 with a body, not a bare 200
		ReadHeaderTimeout:            cfg.Limits.ReadHeaderTimeout,
		IdleTimeout:                  cfg.Limits.IdleTimeout,
		WriteTimeout:                 cfg.Limits.WriteTimeout,
		MaxHeaderBytes:               cfg.Limits.HeaderBytesMax,
		ErrorLog:                     slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withWatch,
	}
}

// Serve serves the connections given to [Server.Take], and HTTP/3 on udp unless udp or
// Config.TLS is nil, until [Server.Shutdown], and then returns nil; requests may still be
// running, and Shutdown waits for them. Any other end is an error; all connections are
// cut then. Serve owns udp and closes it. It can be called once.
func (s *Server) Serve(udp net.PacketConn) error {
	run, err := s.begin(udp)
	if !run {
		if udp != nil {
			_ = udp.Close()
		}
		return err
	}
	defer close(s.served)

	ends := make(chan error, 2)
	parts := 0
	start := func(part func() error) {
		parts++
		go func() { ends <- part() }()
	}
	start(func() error { return s.http.Serve(s.ready) })
	if s.quicIn != nil {
		start(func() error { return s.h3.ServeListener(s.quicIn) })
	}
	for range parts {
		if end := <-ends; end != nil && !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
			s.cut()
		}
	}
	s.freshEnd.Wait()
	return err
}

// begin takes udp over. It reports whether there is anything to run.
func (s *Server) begin(udp net.PacketConn) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false, nil
	}
	if s.served != nil {
		return false, errors.New("web: Serve called twice")
	}
	if udp != nil && s.h3 != nil {
		if err := s.listenQUIC(udp); err != nil {
			return false, err
		}
	} else if udp != nil {
		_ = udp.Close()
	}
	s.served = make(chan struct{})
	return true, nil
}

// Shutdown stops taking connections, lets running requests finish (those that wait for the
// cluster clock at once, with isotone.ErrNoLeader), closes idle connections, and returns when all are closed. When ctx ends first it cuts the rest and
// returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	var h3Err error
	var drained sync.WaitGroup
	if s.h3 != nil {
		drained.Go(func() { h3Err = s.drainHTTP3(ctx) })
	}
	err := s.http.Shutdown(ctx)
	if ctx.Err() != nil {
		s.cut()
	}
	drained.Wait()
	s.closeQUIC()
	s.force()
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if served != nil {
		<-served
	}
	s.awaitHandlers()
	return cmp.Or(ctx.Err(), errors.Join(err, h3Err))
}

// EndWaits ends streams, and requests that wait for the cluster clock: another node can answer them. A front in a loop that closes
// connections once their requests are answered needs it first.
func (s *Server) EndWaits() { s.handler.endWaits() }

// stop ends taking connections, and closes those that net/http does not have yet.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	s.EndWaits()
	s.ready.Stop()
	if s.quicIn != nil {
		_ = s.quicIn.Close()
	}
	for c := range s.fresh {
		_ = c.Close()
	}
}

// cut ends everything at once.
func (s *Server) cut() {
	s.stop()
	s.force()
	_ = s.http.Close()
	if s.h3 != nil {
		_ = s.h3.Close()
	}
	s.closeQUIC()
}

func (s *Server) awaitHandlers() {
	deadline := time.Now().Add(handlersGrace)
	for s.handler.active.Load() > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
}
