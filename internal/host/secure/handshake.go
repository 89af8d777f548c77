package secure

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

// handshake is the handler of a connection during its handshake. Its goroutine runs the
// handshake over a socket in memory. While it computes, the connection is paused; when it
// waits for the client, it has the loop send its output and resume the connection.
type handshake struct {
	terminator *Terminator
	conn       *loop.Conn
	tls        *tls.Conn
	socket     socket
	timer      *time.Timer   // nil: not started
	token      chan struct{} // which channel has the goroutine's token, while it computes
	index      int           // in terminator.handshakes
	over       bool          // the result does not matter any more
}

// Data passes on the client's bytes.
func (h *handshake) Data(c *loop.Conn, b []byte) (int, error) {
	t := h.terminator
	if t.stopped {
		c.Close(ErrStopped)
		return len(b), nil
	}
	c.Pause()
	h.socket.addInput(b)
	if h.timer == nil {
		h.timer = time.AfterFunc(t.cfg.Limits.HandshakeTimeout, func() { t.cfg.Loop.Post(h.expire) })
		t.running.Go(h.run)
	}
	return len(b), nil
}

// run is the handshake's goroutine.
func (h *handshake) run() {
	t := h.terminator
	h.token = t.starting
	h.token <- struct{}{}
	err := h.tls.Handshake()
	<-h.token
	t.cfg.Loop.Post(func() { h.finish(err) })
}

// waiting is called by the goroutine with true before, and with false after, it waits for
// the client.
func (h *handshake) waiting(begins bool) {
	t := h.terminator
	if !begins {
		h.token = t.continuing
		h.token <- struct{}{}
		return
	}
	<-h.token
	t.cfg.Loop.Post(h.proceed)
}

// proceed sends the handshake's output and lets the client answer.
func (h *handshake) proceed() {
	if !h.over {
		h.conn.Write(h.socket.takeOutput())
		h.conn.Resume()
	}
}

// expire ends a handshake that takes too long.
func (h *handshake) expire() {
	if !h.over {
		h.conn.Abort(loop.ErrPartialTimeout)
	}
}

// finish gives the connection to its next owner.
func (h *handshake) finish(err error) {
	if h.over {
		return
	}
	t, c := h.terminator, h.conn
	c.Write(h.socket.takeOutput())
	if err == nil && t.stopped {
		err = ErrStopped
	}
	if err != nil {
		c.Close(err) // after the alert that says why
		return
	}
	h.leave()
	if t.cfg.Done != nil {
		t.cfg.Done(c)
	}
	s := &session{tls: h.tls, socket: &h.socket}
	unread := h.socket.enterLoop(c.Send)
	if chains := h.tls.ConnectionState().VerifiedChains; len(chains) > 0 && t.cfg.Verified != nil {
		t.cfg.Verified(c, chains)
	}
	next := t.cfg.Open(c, h.tls.ConnectionState().NegotiatedProtocol)
	if next == nil {
		c.SetHandler(discard{})
		c.Close(ErrStopped)
		return
	}
	c.SetHandler(next)
	c.SetLayer(s, unread)
	c.Resume()
}

// leave ends the handshake's part in the connection.
func (h *handshake) leave() {
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.terminator.remove(h)
}

// Closed ends the goroutine.
func (h *handshake) Closed(*loop.Conn, error) {
	if !h.over {
		h.leave()
		h.socket.fail(net.ErrClosed)
	}
}

// discard is the handler of a connection that nothing handles.
type discard struct{}

func (discard) Data(_ *loop.Conn, b []byte) (int, error) { return len(b), nil }
func (discard) Closed(*loop.Conn, error)                 {}
