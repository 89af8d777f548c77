package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/isotone/isotone/internal/auth/access"
)

// quicGrace is how long Shutdown waits, once no request is running, for HTTP/3
// clients to act on GOAWAY. They need not: RFC 9114 §5.2 lets them stay.
const quicGrace = 500 * time.Millisecond

var (
	errConnectionsMax = errors.New("too many connections")
	errHandshakes     = errors.New("too many handshakes of this address")
)

func newHTTP3Server(cfg Config, h http.Handler) *http3.Server {
	return &http3.Server{
		Handler:        h,
		MaxHeaderBytes: cfg.Limits.HeaderBytesMax,
		IdleTimeout:    cfg.Limits.IdleTimeout,
		Logger:         cfg.Log,
		ConnContext:    quicShaken,
		TLSConfig:      http3.ConfigureTLSConfig(cfg.TLS),
		QUICConfig: &quic.Config{
			HandshakeIdleTimeout:  cfg.Limits.ReadHeaderTimeout,
			MaxIdleTimeout:        cfg.Limits.IdleTimeout,
			MaxIncomingStreams:    int64(cfg.Limits.StreamsMax),
			MaxIncomingUniStreams: 8, // control, two of QPACK, and room for unknown ones (RFC 9114 §6.2)
			// Requests have no body, so the windows are small.
			InitialStreamReceiveWindow:     32 << 10,
			MaxStreamReceiveWindow:         64 << 10,
			InitialConnectionReceiveWindow: 64 << 10,
			MaxConnectionReceiveWindow:     256 << 10,
		},
	}
}

// listenQUIC starts QUIC on udp. The caller holds s.mu.
//
// It makes the transport itself, because connections must be counted before their
// handshake, and only a transport can do that.
func (s *Server) listenQUIC(udp net.PacketConn) error {
	transport := &quic.Transport{
		Conn:        udp,
		ConnContext: s.admitQUIC,
		// A client must prove its address first (RFC 9000 §8.1.2): forged packets cannot fill the table, and use up nobody's
		// share of connections and handshakes.
		VerifySourceAddress: func(net.Addr) bool { return true },
	}
	in, err := transport.Listen(s.h3.TLSConfig, s.h3.QUICConfig)
	if err != nil {
		return fmt.Errorf("listen for QUIC on %v: %w", udp.LocalAddr(), err)
	}
	s.udp, s.quic, s.quicIn = udp, transport, in
	if value := AltSvc(udp.LocalAddr()); value != "" {
		s.handler.altSvc.Store(&[]string{value})
	}
	return nil
}

// AltSvc returns the value of the field Alt-Svc in answers under TLS, when HTTP/3 is served
// on udp (RFC 7838 §3).
func AltSvc(udp net.Addr) string {
	if a, ok := udp.(*net.UDPAddr); ok {
		return fmt.Sprintf(`h3=":%d"; ma=86400`, a.Port)
	}
	return ""
}

// admitQUIC counts a connection until ctx ends, which quic-go promises for its
// close and for a failed handshake.
func (s *Server) admitQUIC(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	session, err := s.openQUIC(info)
	if err != nil {
		s.refusedQUIC.Add(1)
		return nil, err
	}
	s.overQUIC.Add(1)
	context.AfterFunc(ctx, func() {
		s.overQUIC.Add(-1)
		s.connections.Add(-1)
		session.Close()
	})
	return context.WithValue(ctx, quicSessionKey{}, session), nil
}

// quicSessionKey is the key of the session of a QUIC connection in its context. It counts the connection and its handshake
// for the address; each request has a session of its own.
type quicSessionKey struct{}

// openQUIC counts a connection, as those over TCP are counted, unless the limits forbid it.
func (s *Server) openQUIC(info *quic.ClientInfo) (*access.Session, error) {
	var from netip.Addr
	if a, ok := info.RemoteAddr.(*net.UDPAddr); ok {
		from = a.AddrPort().Addr()
	}
	if err := s.handler.access.Refusing(from); err != nil {
		return nil, err
	}
	if !s.enter() {
		return nil, errConnectionsMax
	}
	session, err := s.handler.access.Open(from, nil, access.ClientPool)
	if err == nil && !session.BeginHandshake() {
		session.Close()
		err = errHandshakes
	}
	if err != nil {
		s.connections.Add(-1)
		return nil, err
	}
	return &session, nil
}

// quicShaken notes that a connection has completed its handshake.
func quicShaken(ctx context.Context, _ *quic.Conn) context.Context {
	access.Of(ctx.Value(quicSessionKey{})).HandshakeDone()
	return ctx
}

// drainHTTP3 ends HTTP/3: it sends GOAWAY, waits for requests and clients, and closes the
// rest.
func (s *Server) drainHTTP3(ctx context.Context) error {
	graceful, giveUp := context.WithCancel(ctx)
	defer giveUp()
	done := make(chan error, 1)
	go func() { done <- s.h3.Shutdown(graceful) }()
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for quiet := time.Duration(0); ; {
		select {
		case err := <-done:
			if graceful.Err() != nil && ctx.Err() == nil {
				return nil // given up here
			}
			return err
		case <-ticker.C:
		}
		if quiet += tick; s.handler.active.Load() > 0 {
			quiet = 0
		}
		if quiet >= quicGrace {
			giveUp()
		}
	}
}

// closeQUIC closes the UDP socket and what still uses it.
func (s *Server) closeQUIC() {
	s.mu.Lock()
	transport, udp := s.quic, s.udp
	s.mu.Unlock()
	if transport != nil {
		_ = transport.Close()
		_ = udp.Close()
	}
}
