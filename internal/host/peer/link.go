package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// handshakeTimeout is absolute: a stranger that drips bytes gets no more.
	handshakeTimeout = 2 * time.Second
	// stallTimeoutDefault is some ten election timeouts: by then raft has given
	// the peer up, and TCP alone would go on hoping for a quarter of an hour.
	stallTimeoutDefault = 5 * time.Second
	// pingsPerStall: so many pings may be lost or late before a link counts as
	// silent.
	pingsPerStall = 4
)

// link is a connection whose handshake is complete, or is being done.
type link struct {
	conn  net.Conn
	dec   Decoder
	hello Hello // the other side's
	// version is what both sides speak.
	version uint16
	// onUpdate, if not nil, is given hellos that come after the first one.
	onUpdate func(Hello)
	// onClock, if not nil, is told what the other side's wall clock shows.
	onClock func(now int64)
}

// shake does the handshake over l.conn and closes the connection unless it
// succeeds. Errors are those of [Handshake.Step] and of the connection.
func (l *link) shake(ctx context.Context, h *Handshake) (err error) {
	defer func() {
		if err != nil {
			l.conn.Close()
		}
	}()
	defer closeOnDone(ctx, l.conn)()
	l.dec.SetHandshake(true)
	if err := l.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	buf := make([]byte, handshakeSizeMax)
	out, err := h.Start(nil)
	for {
		if len(out) > 0 {
			_, writeErr := l.conn.Write(out)
			err = errors.Join(err, writeErr)
		}
		if err != nil || h.Done() {
			break
		}
		var f Frame
		if f, err = l.readFrame(buf); err == nil {
			out, err = h.Step(f, out[:0])
		} else {
			out = nil
		}
	}
	if err != nil {
		return err
	}
	l.hello, l.version = h.Peer(), h.Version()
	l.dec.SetHandshake(false)
	return l.conn.SetDeadline(time.Time{})
}

// readFrame returns the next frame, reading into buf as needed.
func (l *link) readFrame(buf []byte) (Frame, error) {
	for {
		f, ok, err := l.dec.Next()
		if ok || err != nil {
			return f, err
		}
		n, err := l.conn.Read(buf)
		if n == 0 && err != nil {
			return Frame{}, fmt.Errorf("reading: %w", err)
		}
		l.dec.Feed(buf[:n])
	}
}

// decode appends the messages of all complete frames to msgs, every one checked.
// What was in msgs before, which may be others' messages, is there after an error, too.
func (l *link) decode(msgs []*raftpb.Message, self uint64) ([]*raftpb.Message, error) {
	for {
		f, ok, err := l.dec.Next()
		if !ok || err != nil {
			return msgs, err
		}
		if f.Type == FramePing || f.Type >= frameOptional {
			continue
		}
		if f.Type == FrameClock || f.Type == FrameUpdate {
			if err := l.note(f); err != nil {
				return msgs, err
			}
			continue
		}
		m, err := ParseMessage(f)
		if err != nil {
			return msgs, err
		}
		if err := CheckMessage(m, l.hello.NodeID, self); err != nil {
			return msgs, err
		}
		msgs = append(msgs, m)
	}
}

// note tells what a frame that is no message says.
func (l *link) note(f Frame) error {
	if f.Type == FrameClock {
		now, err := parseClock(f.Payload)
		if err == nil && l.onClock != nil {
			l.onClock(now)
		}
		return err
	}
	h, _, err := ParseHello(f.Payload)
	switch {
	case err != nil:
		return err
	case h.NodeID != l.hello.NodeID || h.Session != l.hello.Session:
		return fmt.Errorf("%w: an update of node %d on the connection of node %d", ErrProtocol, h.NodeID, l.hello.NodeID)
	case l.onUpdate != nil:
		l.onUpdate(h)
	}
	return nil
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

// tune sets the socket options, through TLS if need be. A connection that is not
// TCP is left alone; errors are ignored, as the options only make it better.
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
