package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/host/loop"
)

// Server is a reverse proxy for HTTP backends. Make it with [New], call [Server.Serve]
// once and [Server.Shutdown] to end it. All methods are safe for concurrent use.
type Server struct {
	cfg         Config
	balancer    *balancer
	requestLog  *requestLog
	handler     *handler
	checker     *checker
	http        *http.Server
	tls         *tls.Config
	useFastPath bool

	host *loop.Host // nil before Serve
	fast *fastPath  // the loop's

	base     context.Context // of everything outside the loop
	cancel   context.CancelFunc
	open     context.Context // of connections that have sent nothing yet
	closing  context.CancelFunc
	workers  sync.WaitGroup // dialling, handshakes, refusals
	ready    *listen.Handoff
	refusals chan struct{} // one token for each connection being refused

	clients    *clients
	fastActive atomic.Int64 // requests in progress on the fast path, as of the latest turn

	mu       sync.Mutex
	listener net.Listener
	stopping chan struct{}
	stopped  bool
	served   chan struct{} // closed when Serve returns; nil before Serve
}

// New returns a server that does nothing until [Server.Serve]. Its errors match
// isotone.ErrInvalidArgument.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits, cfg.Health = cfg.Limits.withDefaults(), cfg.Health.withDefaults()
	s := &Server{cfg: cfg, useFastPath: true, stopping: make(chan struct{}), refusals: make(chan struct{}, refusalsMax), ready: listen.NewHandoff()}
	s.clients = newClients(s.cfg.Limits.ConnectionsMax)
	var err error
	if s.balancer, err = newBalancer(s.cfg.balancing()); err != nil {
		return nil, err
	}
	for _, t := range s.balancer.targets {
		s.useFastPath = s.useFastPath && t.scheme == "http"
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.open, s.closing = context.WithCancel(s.base)
	s.requestLog = &requestLog{log: cfg.Log, targets: s.balancer.targets, all: cfg.LogRequests}
	s.handler = &handler{cfg: &s.cfg, balancer: s.balancer, report: s.requestLog.report, backends: newTransport(&s.cfg)}
	s.checker = newHTTPChecker(&s.cfg, s.balancer)
	if cfg.TLS != nil {
		s.tls = cfg.TLS.Clone()
		s.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	s.http = s.newHTTPServer()
	return s, nil
}

func (s *Server) newHTTPServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:                      s.handler,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            s.cfg.Limits.HeadTimeout,
		IdleTimeout:                  s.cfg.Limits.IdleTimeout,
		MaxHeaderBytes:               headBytesMax,
		ErrorLog:                     slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		BaseContext:                  func(net.Listener) context.Context { return s.base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if vc, ok := c.(*validatingConn); ok {
				return context.WithValue(ctx, connKey{}, vc)
			}
			return ctx
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if vc, ok := c.(*validatingConn); ok && state == http.StateIdle {
				vc.idle()
			}
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 256, WriteByteTimeout: s.cfg.Limits.WriteTimeout},
	}
}

// post has f called on the loop's goroutine, and reports whether it will be. What waits is
// bounded by connections and dials.
func (s *Server) post(f func()) bool { return s.host.Post(f) }

// Serve serves l, which it owns. It returns nil after [Server.Shutdown], and an error if it ends
// for any other reason. It can be called once.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	switch {
	case s.stopped:
		s.mu.Unlock()
		return l.Close()
	case s.served != nil:
		s.mu.Unlock()
		return errors.Join(errors.New("proxy: Serve called twice"), l.Close())
	}
	events, err := loop.New(s.cfg.Log)
	if err != nil {
		s.mu.Unlock()
		return errors.Join(err, l.Close())
	}
	s.fast = newFastPath(&s.cfg, events, s.balancer)
	s.host = loop.NewHost(events, loop.HostConfig{Work: work{s}})
	s.listener, s.served = l, make(chan struct{})
	s.mu.Unlock()
	defer close(s.served)
	if s.cfg.KeepProcessor {
		events.KeepProcessor()
	}
	s.fast.report, s.fast.detached, s.fast.dial = s.requestLog.report, s.serveStandard, s.dial
	if s.cfg.Measured != nil {
		s.fast.meter = newMeter()
	}
	defer s.requestLog.stop()
	var parts sync.WaitGroup
	ends := make(chan error, 3)
	s.host.Start()
	parts.Go(func() { ends <- s.host.Err() })
	parts.Go(func() { ends <- s.http.Serve(s.ready) })
	parts.Go(func() { ends <- listen.Accept(l, s.stopping, s.cfg.Log, s.admit) })
	s.checker.start(s.base)
	for range 3 {
		if end := <-ends; end != nil && !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
			s.abort()
		}
	}
	parts.Wait()
	s.checker.wait()
	s.workers.Wait()
	s.handler.backends.(*http.Transport).CloseIdleConnections()
	return err
}

// idleWait bounds how long the loop sleeps with nothing to do.
const idleWait = time.Second

// work is what the host of the loop runs for a server.
type work struct{ *Server }

func (w work) Sleep() time.Duration {
	if m := w.fast.meter; m != nil && !m.started { // before the first turn
		m.started = true
		m.Start()
	}
	if l := w.fast; len(l.active) > 0 || l.loop.Conns() > len(l.clients) {
		return sweepEvery
	}
	return idleWait
}

func (w work) Turn() { w.fast.turn() }

func (w work) Flushed() {
	l := w.fast
	l.resumeStalled()
	l.measure()
	w.fastActive.Store(int64(len(l.active)))
	if l.stopped && len(l.clients) == 0 {
		w.host.Stop()
	}
}

// Close cuts the connections that are left, whose requests are then measured as well.
func (w work) Close() {
	_ = w.fast.loop.Close()
	if w.fast.measure(); w.fast.meter != nil && w.fast.meter.started {
		w.fast.meter.Stop()
	}
}

// dial connects to a backend on another goroutine.
func (s *Server) dial(backend int) {
	s.workers.Go(func() {
		dialer := net.Dialer{Timeout: s.cfg.Limits.ConnectTimeout}
		nc, err := dialer.DialContext(s.base, "tcp", s.balancer.targets[backend].addr)
		if !s.post(func() { s.fast.dialled(backend, nc, err) }) && err == nil {
			_ = nc.Close()
		}
	})
}

// Connections returns the number of open client connections.
func (s *Server) Connections() int { return s.clients.count() }

// ConnectionsMax returns the bound on open client connections, see [Limits].
func (s *Server) ConnectionsMax() int { return s.cfg.Limits.ConnectionsMax }

// Status is the state of a proxy.
type Status struct {
	Backends []BackendStatus `json:"backends"`
	// Connections is the number of open client connections.
	Connections int `json:"connections"`
	// FastPath and StandardPath are the requests in progress on either path.
	FastPath     int `json:"fastPath"`
	StandardPath int `json:"standardPath"`
	// RetriesRefused counts the retries that the budget refused.
	RetriesRefused uint64 `json:"retriesRefused"`
}

// Status returns the current state.
func (s *Server) Status() Status {
	st := Status{Connections: s.Connections(), FastPath: int(s.fastActive.Load()), StandardPath: int(s.handler.active.Load())}
	st.Backends, st.RetriesRefused = s.balancer.status()
	return st
}

// Shutdown stops accepting, lets requests in progress finish, closes idle connections, and
// returns when all are gone. When ctx ends first, it cuts the rest and returns ctx's error. It
// waits at most five seconds for a log that hangs.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	if s.host != nil {
		s.post(func() { s.fast.stop() })
	}
	err := s.http.Shutdown(ctx)
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if served == nil {
		s.cancel()
		return err
	}
	// The loop ends by itself when its last client has gone. Checks go on until then.
	for s.Connections() > 0 && ctx.Err() == nil {
		select {
		case <-served:
		case <-ctx.Done():
		case <-time.After(drainPoll):
		}
	}
	if ctx.Err() != nil {
		_ = s.http.Close()
	}
	s.cancel()
	s.host.Stop()
	<-served
	return ctx.Err()
}

// drainPoll is the interval at which Shutdown checks for open connections.
const drainPoll = 2 * time.Millisecond

// stop ends accepting.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	close(s.stopping)
	s.closing()
	s.ready.Stop()
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

// abort ends everything at once.
func (s *Server) abort() {
	s.stop()
	_ = s.http.Close()
	s.cancel()
	s.host.Stop()
}
