// Package listen has what servers with a listener of their own share: a loop that accepts
// connections and outlives a shortage of file descriptors, and a listener for
// [net/http.Server] that is fed by hand.
package listen

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A listener that cannot accept is tried again after a pause, which doubles up to a bound.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = time.Second
)

// Accept gives every connection of l to admit, which must not block, until stopping is
// closed, and returns nil then. Whoever closes that closes l as well. An error that
// passes, such as no more file descriptors, is logged and waited out; any other one is
// returned.
func Accept(l net.Listener, stopping <-chan struct{}, log *slog.Logger, admit func(net.Conn)) error {
	pause := pauseMin
	for {
		c, err := l.Accept()
		if err == nil {
			pause = pauseMin
			admit(c)
			continue
		}
		select {
		case <-stopping:
			return nil
		default:
		}
		var passing interface{ Temporary() bool }
		if !errors.As(err, &passing) || !passing.Temporary() {
			return err
		}
		log.Warn("cannot accept a connection; trying again", "addr", l.Addr().String(), "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-stopping:
			return nil
		}
		pause = min(2*pause, pauseMax)
	}
}

// Handoff is a listener whose connections are those that are [Handoff.Put] into it. Who
// puts bounds how many there are. Make it with [NewHandoff]. All methods are safe for
// concurrent use, but there is one caller of Accept at a time.
type Handoff struct {
	mu      sync.Mutex
	waiting []net.Conn
	stopped bool
	some    chan struct{} // a token while waiting may not be empty, or when stopped
}

// NewHandoff returns an empty one.
func NewHandoff() *Handoff { return &Handoff{some: make(chan struct{}, 1)} }

// Put does not block. After Stop it closes c.
func (h *Handoff) Put(c net.Conn) {
	h.mu.Lock()
	stopped := h.stopped
	if !stopped {
		h.waiting = append(h.waiting, c)
	}
	h.mu.Unlock()
	if stopped {
		closeBelow(c)
		return
	}
	h.signal()
}

func (h *Handoff) signal() {
	select {
	case h.some <- struct{}{}:
	default:
	}
}

// Stop ends Accept, and closes the connections that it has not returned.
func (h *Handoff) Stop() {
	h.mu.Lock()
	waiting := h.waiting
	h.stopped, h.waiting = true, nil
	h.mu.Unlock()
	for _, c := range waiting {
		closeBelow(c)
	}
	h.signal()
}

// closeBelow closes c without a word of TLS, which could block.
func closeBelow(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// Accept waits for the next connection. After Stop it returns [http.ErrServerClosed], as
// Serve of an [http.Server] then does.
func (h *Handoff) Accept() (net.Conn, error) {
	for {
		h.mu.Lock()
		switch {
		case h.stopped:
			h.mu.Unlock()
			h.signal() // for the next caller
			return nil, http.ErrServerClosed
		case len(h.waiting) > 0:
			c := h.waiting[0]
			h.waiting[0] = nil
			if h.waiting = h.waiting[1:]; len(h.waiting) == 0 {
				h.waiting = nil
			}
			h.mu.Unlock()
			return c, nil
		}
		h.mu.Unlock()
		<-h.some
	}
}

// Close does nothing: Stop ends it.
func (h *Handoff) Close() error { return nil }

// Addr returns an address that means nothing; there may be no listener.
func (h *Handoff) Addr() net.Addr { return &net.TCPAddr{} }
