package thriftrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/host/listen"
)

// Server serves one port. Make it with [New], call [Server.Serve] once and
// [Server.Shutdown] to end it. All methods are safe for concurrent use.
type Server struct {
	cfg        Config // with defaults
	tls        *tls.Config
	labels     agentLabels
	inBytesMax int // of a connection's input buffer

	stopping chan struct{} // closed by stop
	mu       sync.Mutex
	stopped  bool
	listener net.Listener
	serving  bool
	conns    map[*conn]struct{}
	refused  uint64         // connections, because there were too many
	tasks    sync.WaitGroup // Serve, and the connections
}

// New returns a server that does nothing until [Server.Serve]. It panics without
// Config.IDs, and if Config.AssumeMethod is not a method of the interface.
func New(cfg Config) *Server {
	if cfg.IDs == nil {
		panic("thriftrpc: Config.IDs is nil")
	}
	switch cfg.AssumeMethod {
	case "":
		cfg.AssumeMethod = methodID
	case methodID, methodWorker, methodTimestamp, methodDatacenter:
	default:
		panic("thriftrpc: Config.AssumeMethod: unknown method " + cfg.AssumeMethod)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	s := &Server{
		cfg:        cfg,
		labels:     agentLabels{max: cfg.Limits.AgentsMax, bytesMax: cfg.Limits.AgentBytesMax, known: map[string]struct{}{}},
		inBytesMax: frameHeadBytes + cfg.Limits.MessageBytesMax,
		stopping:   make(chan struct{}),
		conns:      map[*conn]struct{}{},
	}
	if cfg.TLS != nil {
		s.tls = cfg.TLS.Clone()
		s.tls.NextProtos = nil
	}
	return s
}

// Serve serves l until [Server.Shutdown], and then returns nil; connections may still be
// busy, and Shutdown waits for them. Any other end is an error; open connections stay. Serve
// owns l and closes it. It can be called once.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.stopped || s.serving {
		defer s.mu.Unlock()
		if s.serving {
			return errors.New("thriftrpc: Serve called twice")
		}
		return nil
	}
	s.listener, s.serving = l, true
	s.tasks.Add(1)
	s.mu.Unlock()
	defer s.tasks.Done()
	return listen.Accept(l, s.stopping, s.cfg.Log, s.admit)
}

// admit starts the goroutine of a connection, or closes it.
func (s *Server) admit(raw net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if full := len(s.conns) >= s.cfg.Limits.ConnectionsMax; s.stopped || full {
		if full {
			s.refused++
		}
		_ = raw.Close()
		s.cfg.Log.Debug("Thrift connection refused", "client", raw.RemoteAddr(), "connections", len(s.conns))
		return
	}
	if b, ok := raw.(interface{ SetWriteBuffer(int) error }); ok {
		_ = b.SetWriteBuffer(s.cfg.Limits.UnreadBytesMax)
	}
	c := newConn(s, raw)
	s.conns[c] = struct{}{}
	s.tasks.Go(func() {
		err := c.serve()
		_ = c.stream.Close() // waits up to 5 s for the close_notify of TLS
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.cfg.Log.Debug("Thrift connection closed", "client", raw.RemoteAddr(), "reason", err)
	})
}

// Usage returns how many connections are open and how many may be, and how many were
// refused because there were too many.
func (s *Server) Usage() (open, limit int, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns), s.cfg.Limits.ConnectionsMax, s.refused
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// Shutdown stops accepting and reading, waits until the calls that were read are answered,
// and returns when all connections are closed. When ctx ends first it cuts them and returns
// the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	gone := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.raw.Close()
	}
	s.mu.Unlock()
	<-gone
	return ctx.Err()
}

// stop ends accepting, and wakes the connections that wait for input.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	close(s.stopping)
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for c := range s.conns {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0))
	}
}
