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
	cfg      Config
	director *director
	recorder *recorder
	handler  *handler
	checker  *checker
	http     *http.Server
	tls      *tls.Config
	useLane  bool

	host *loop.Host // nil before Serve
	lane *lane      // the loop's

	base     context.Context // of everything that runs beside the loop
	cancel   context.CancelFunc
	open     context.Context // of connections that have not said anything yet
	closing  context.CancelFunc
	workers  sync.WaitGroup // dialling, handshakes, refusals
	ready    *listen.Handoff
	refusals chan struct{} // one token for each connection being refused

	connections atomic.Int64
	inLane      atomic.Int64 // requests that the lane has in work, as of its latest turn

	mu       sync.Mutex
	listener net.Listener
	stopping chan struct{}
	stopped  bool
	served   chan struct{} // closed when Serve is over; nil before Serve
}

// New returns a server that does nothing until [Server.Serve]. Its errors match
// isotone.ErrInvalidArgument.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits, cfg.Health = cfg.Limits.withDefaults(), cfg.Health.withDefaults()
	s := &Server{cfg: cfg, useLane: true, stopping: make(chan struct{}), refusals: make(chan struct{}, refusalsMax), ready: listen.NewHandoff()}
	var err error
	if s.director, err = newDirector(&s.cfg); err != nil {
		return nil, err
	}
	for _, t := range s.director.targets {
		s.useLane = s.useLane && t.scheme == "http"
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.open, s.closing = context.WithCancel(s.base)
	s.recorder = &recorder{log: cfg.Log, targets: s.director.targets, all: cfg.LogRequests}
	s.handler = &handler{cfg: &s.cfg, director: s.director, report: s.recorder.report, backends: newTransport(&s.cfg)}
	s.checker = newChecker(&s.cfg, s.director)
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
			if sc, ok := c.(*screen); ok {
				return context.WithValue(ctx, screenKey{}, sc)
			}
			return ctx
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if sc, ok := c.(*screen); ok && state == http.StateIdle {
				sc.idle()
			}
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 256, WriteByteTimeout: s.cfg.Limits.WriteTimeout},
	}
}

// post has f called on the loop's goroutine, and reports whether it will be. What waits is
// bounded by connections and dials.
func (s *Server) post(f func()) bool { return s.host.Post(f) }

// Serve serves l, which it owns, until [Server.Shutdown], and then returns nil. Any other
// end is an error. It can be called once.
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
	s.lane = newLane(&s.cfg, events, s.director)
	s.host = loop.NewHost(events, loop.HostConfig{Work: work{s}})
	s.listener, s.served = l, make(chan struct{})
	s.mu.Unlock()
	defer close(s.served)
	if s.cfg.KeepProcessor {
		events.KeepProcessor()
	}
	s.lane.report, s.lane.handOver, s.lane.dial = s.recorder.report, s.take, s.dial
	s.lane.gone = func() { s.connections.Add(-1) }
	if s.cfg.Measured != nil {
		s.lane.meter = newMeter()
	}
	defer s.recorder.stop()
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
			s.cut()
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
	if m := w.lane.meter; m != nil && !m.started { // before the first turn
		m.started = true
		m.Start()
	}
	if l := w.lane; len(l.active) > 0 || l.loop.Conns() > len(l.clients) {
		return sweepEvery
	}
	return idleWait
}

func (w work) Turn() { w.lane.turn() }

func (w work) Flushed() {
	l := w.lane
	l.unstall()
	l.measure()
	w.inLane.Store(int64(len(l.active)))
	if l.stopped && len(l.clients) == 0 {
		w.host.Stop()
	}
}

// Close cuts the connections that are left, whose requests are then measured as well.
func (w work) Close() {
	_ = w.lane.loop.Close()
	if w.lane.measure(); w.lane.meter != nil && w.lane.meter.started {
		w.lane.meter.Stop()
	}
}

// dial connects to a backend, beside the loop.
func (s *Server) dial(backend int) {
	s.workers.Go(func() {
		dialer := net.Dialer{Timeout: s.cfg.Limits.ConnectTimeout}
		nc, err := dialer.DialContext(s.base, "tcp", s.director.targets[backend].addr)
		if !s.post(func() { s.lane.dialled(backend, nc, err) }) && err == nil {
			_ = nc.Close()
		}
	})
}

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Status is what a proxy says of itself.
type Status struct {
	Backends []BackendStatus `json:"backends"`
	// Connections are those of clients.
	Connections int `json:"connections"`
	// InLane and Beside are requests in work, in the lane and on the general path.
	InLane int `json:"inLane"`
	Beside int `json:"beside"`
	// RetriesRefused counts those that the budget did not allow.
	RetriesRefused uint64 `json:"retriesRefused"`
}

// Status returns what is so now.
func (s *Server) Status() Status {
	st := Status{Connections: s.Connections(), InLane: int(s.inLane.Load()), Beside: int(s.handler.active.Load())}
	st.Backends, st.RetriesRefused = s.director.status()
	return st
}

// Shutdown stops accepting, lets requests in work finish, closes idle connections, and
// returns when all are gone. When ctx ends first the rest is cut, and the error is ctx's. A
// log that hangs is waited for, five seconds at most.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	if s.host != nil {
		s.post(func() { s.lane.stop() })
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

// drainPoll is how often Shutdown looks.
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

// cut ends everything at once.
func (s *Server) cut() {
	s.stop()
	_ = s.http.Close()
	s.cancel()
	s.host.Stop()
}
