package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/isotone/isotone/internal/core/wire"
)

// handshakeTimeout is absolute: a slow trickle of bytes does not extend it.
const handshakeTimeout = 2 * time.Second

// newStream returns the stream over conn, which has yet to be opened.
func (t *Transport) newStream(conn net.Conn) *Stream {
	tune(conn)
	return &Stream{Codec: wire.NewCodec(t.cfg.NodeID, wire.Hello{}), conn: conn, ended: make(chan error, 1)}
}

// open does the handshake, and closes the connection if it fails. Before, secure protects the
// connection, or not. Errors are those of secure, of [wire.Handshake.Step] and of the connection.
func (s *Stream) open(ctx context.Context, h *wire.Handshake, secure func() error) error {
	conn := s.conn // closing it waits for nothing, where TLS would say goodbye
	stop := closeOnDone(ctx, conn)
	defer stop()
	s.Decoder.SetHandshake(true)
	err := s.conn.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		err = secure()
	}
	if err == nil {
		err = s.shakeHands(h)
	}
	if err == nil {
		s.Open(h.Peer())
		err = s.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
	}
	return err
}

// shakeHands exchanges frames until the handshake is done.
func (s *Stream) shakeHands(h *wire.Handshake) error {
	buf := make([]byte, wire.HandshakeSizeMax)
	out, err := h.Start(nil)
	for {
		if len(out) > 0 { // even after an error: it may be a refusal
			_, writeErr := s.conn.Write(out)
			err = errors.Join(err, writeErr)
		}
		if err != nil || h.Done() {
			return err
		}
		f, readErr := s.readFrame(buf)
		if readErr != nil {
			return readErr
		}
		out, err = h.Step(f, out[:0])
	}
}

// readFrame returns the next frame, reading into buf as needed.
func (s *Stream) readFrame(buf []byte) (wire.Frame, error) {
	for {
		f, ok, err := s.Decoder.Next()
		if ok || err != nil {
			return f, err
		}
		n, err := s.conn.Read(buf)
		if n == 0 && err != nil {
			return wire.Frame{}, fmt.Errorf("reading: %w", err)
		}
		s.Decoder.Feed(buf[:n])
	}
}

// closeOnDone closes conn when ctx is done. The returned function ends that, and
// waits for the closing if it has begun.
func closeOnDone(ctx context.Context, conn net.Conn) (stop func()) {
	closed := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		conn.Close()
		close(closed)
	})
	return func() {
		if !cancel() {
			<-closed
		}
	}
}

// tune sets TCP options, also below TLS. It leaves other connections alone and ignores
// errors: the options only improve the connection.
func tune(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetNoDelay(true)
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5,
	})
}
