package proxy

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// TCPServer forwards TCP connections of any protocol to backends, without looking at their
// bytes; TLS passes through. Make it with [NewTCP], call [TCPServer.Serve] once and
// [TCPServer.Shutdown] to end it. All methods are safe for concurrent use.
//
// A connection here is what a request is to [Server]: strategies, loads, retries and counts are of
// connections.
type TCPServer struct {
	cfg      TCPConfig
	balancer *balancer
	checker  *checker
	splices  chan struct{} // a token for each pipe in use
	lines    lineLimit

	base    context.Context // of all connections
	cancel  context.CancelFunc
	workers sync.WaitGroup // one for each connection

	clients  *clients
	up, down atomic.Uint64 // bytes

	mu       sync.Mutex
	listener net.Listener
	stopping chan struct{}
	stopped  bool
	served   chan struct{} // closed when Serve returns; nil before Serve
}

// NewTCP returns a server that does nothing until [TCPServer.Serve]. Its errors match
// isotone.ErrInvalidArgument.
func NewTCP(cfg TCPConfig) (*TCPServer, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Announce < 0 || cfg.Announce > AnnounceMax {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "version %d of the PROXY protocol: want 1 or %d, or 0 for none", cfg.Announce, AnnounceMax)
	}
	cfg.Limits, cfg.Health = cfg.Limits.withDefaults(), cfg.Health.withDefaults()
	s := &TCPServer{cfg: cfg, splices: make(chan struct{}, cfg.Limits.SplicesMax), clients: newClients(cfg.Limits.ConnectionsMax), stopping: make(chan struct{})}
	var err error
	if s.balancer, err = newBalancer(cfg.balancing()); err != nil {
		return nil, err
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.checker = newTCPChecker(cfg.Health, s.balancer)
	return s, nil
}

// Serve serves l, which it owns and whose connections must be of type *net.TCPConn. It returns nil
// after [TCPServer.Shutdown], and an error if it ends for any other reason. It can be called once.
func (s *TCPServer) Serve(l net.Listener) error {
	s.mu.Lock()
	switch {
	case s.stopped:
		s.mu.Unlock()
		return l.Close()
	case s.served != nil:
		s.mu.Unlock()
		return errors.Join(errors.New("proxy: Serve called twice"), l.Close())
	}
	s.listener, s.served = l, make(chan struct{})
	s.mu.Unlock()
	defer close(s.served)
	s.checker.start(s.base)
	err := listen.Accept(l, s.stopping, s.cfg.Log, s.admit)
	if err != nil {
		s.stop()
		s.cancel()
	}
	s.workers.Wait()
	s.cancel()
	s.checker.wait()
	_, over := s.lines.admit(math.MaxInt64)
	s.reportDropped(over)
	return err
}

// admit begins to forward a connection, or refuses it.
func (s *TCPServer) admit(nc net.Conn) {
	client := nc.(*net.TCPConn)
	leave, ok := s.clients.enter(nc)
	if !ok {
		reset(client)
		s.observe(TCPEnd{Outcome: TCPRefused, Backend: balance.None})
		return
	}
	s.workers.Go(func() {
		end := s.forward(client)
		leave()
		s.observe(end)
	})
}

func (s *TCPServer) observe(end TCPEnd) {
	if s.cfg.Observe != nil {
		s.cfg.Observe(end)
	}
}

// reset closes a connection so that its client sees an error, not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// forward carries one connection to its end.
func (s *TCPServer) forward(client *net.TCPConn) TCPEnd {
	began := time.Now()
	backend, at, err := s.connect(client)
	end := TCPEnd{Backend: at, Wait: time.Since(began)}
	if err != nil {
		reset(client)
		end.Wall, end.Outcome = end.Wait, TCPNoBackend
		if s.base.Err() != nil {
			end.Outcome = TCPCut
		}
		s.report(client, err)
		return end
	}
	defer func() { s.balancer.end(s.balancer.now(), at, abandoned) }() // the load is over
	var up, down atomic.Uint64
	r := &relay{client: client, backend: backend, idle: s.cfg.Limits.IdleTimeout, splices: s.splices}
	r.moved = func(upwards bool, n int) {
		if upwards {
			up.Add(uint64(n))
			s.up.Add(uint64(n))
			return
		}
		down.Add(uint64(n))
		s.down.Add(uint64(n))
	}
	defer context.AfterFunc(s.base, func() { r.abort(TCPCut) })()
	end.Outcome = r.run()
	end.Up, end.Down, end.Wall = up.Load(), down.Load(), time.Since(began)
	return end
}

// errNoTCPBackend means that no backend can be chosen.
var errNoTCPBackend = isotone.Errorf(isotone.CodeOverloaded, "no backend is up and not full")

// connect connects to a backend for a client. No byte of the client was read yet, so it tries
// others as long as the budget of retries permits. It returns which one it is, or balance.None and
// the latest error.
func (s *TCPServer) connect(client *net.TCPConn) (*net.TCPConn, int, error) {
	b := s.balancer
	from := addrPort(client.RemoteAddr())
	key := from.Addr().Unmap().As16()
	request := balance.Request{Key: balance.Hash(key[:]), Keyed: true}
	err := error(errNoTCPBackend)
	at := b.begin(b.now(), &request)
	for tries := 1; at != balance.None; tries++ {
		var backend *net.TCPConn
		if backend, err = s.dial(at, from, addrPort(client.LocalAddr())); err == nil {
			b.connected(b.now(), at)
			return backend, at, nil
		}
		if s.base.Err() != nil || ownShortage(err) {
			b.end(b.now(), at, abandoned)
			break
		}
		b.end(b.now(), at, failed)
		request.Tried.Add(at)
		at = b.retry(b.now(), &request, tries)
	}
	return nil, balance.None, err
}

// dial connects to one backend, and announces the client if it wants that.
func (s *TCPServer) dial(at int, client, local netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: s.cfg.Limits.DialTimeout}
	nc, err := dialer.DialContext(s.base, "tcp", s.balancer.targets[at].addr)
	if err != nil {
		return nil, err
	}
	backend := nc.(*net.TCPConn)
	if s.cfg.Announce > 0 {
		_ = backend.SetWriteDeadline(time.Now().Add(s.cfg.Limits.DialTimeout))
		if _, err := backend.Write(appendAnnouncement(nil, s.cfg.Announce, client, local)); err != nil {
			reset(backend)
			return nil, err
		}
	}
	return backend, nil
}

// ownShortage reports whether a connection failed for want of files or ports here, which says
// nothing about the backend.
func ownShortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// addrPort returns the address of one end of a TCP connection.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// report logs that a client got no backend, unless there are too many lines in this second.
func (s *TCPServer) report(client *net.TCPConn, err error) {
	if s.base.Err() != nil {
		return
	}
	ok, over := s.lines.admit(time.Now().Unix())
	s.reportDropped(over)
	if ok {
		s.cfg.Log.Warn("connection failed", "client", client.RemoteAddr().String(), "err", clip(err.Error(), causeLogMax))
	}
}

// reportDropped logs that n lines were dropped, if any.
func (s *TCPServer) reportDropped(n int) {
	if n > 0 {
		s.cfg.Log.Warn("connections that failed were not logged: too many in a second", "connections", n)
	}
}

// Connections returns the number of open client connections.
func (s *TCPServer) Connections() int { return s.clients.count() }

// ConnectionsMax returns the bound on open client connections, see [TCPLimits].
func (s *TCPServer) ConnectionsMax() int { return s.cfg.Limits.ConnectionsMax }

// TCPStatus is the state of a TCPServer.
type TCPStatus struct {
	// Backends describes them; their requests are connections.
	Backends []BackendStatus `json:"backends"`
	// Connections is the number of open client connections.
	Connections int `json:"connections"`
	// BytesUp and BytesDown were carried to backends and to clients.
	BytesUp   uint64 `json:"bytesUp"`
	BytesDown uint64 `json:"bytesDown"`
	// RetriesRefused counts the retries that the budget refused.
	RetriesRefused uint64 `json:"retriesRefused"`
	// Draining is true from the beginning of [TCPServer.Shutdown] on.
	Draining bool `json:"draining"`
}

// Status returns the current state.
func (s *TCPServer) Status() TCPStatus {
	st := TCPStatus{Connections: s.Connections(), BytesUp: s.up.Load(), BytesDown: s.down.Load()}
	st.Backends, st.RetriesRefused = s.balancer.status()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Draining = s.stopped
	return st
}

// Shutdown stops accepting, and returns when all connections have ended. When ctx ends first, it
// resets the rest and returns ctx's error.
func (s *TCPServer) Shutdown(ctx context.Context) error {
	s.stop()
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if served == nil {
		s.cancel()
		return nil
	}
	select {
	case <-served:
		return nil
	case <-ctx.Done():
		s.cancel()
		<-served
		return ctx.Err()
	}
}

// stop ends accepting.
func (s *TCPServer) stop() {
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
}
