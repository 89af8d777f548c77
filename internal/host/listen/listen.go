// Package listen has what the standard servers share: an accept loop that survives a shortage
// of file descriptors, and a listener for [net/http.Server] to which connections are handed.
package listen

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// The pause after a failed accept doubles from pauseMin to pauseMax.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = time.Second
)

// Accept passes every connection of l to admit, which must not block. It returns nil once
// stopping and l are closed, in this order. It logs a temporary error, such as a shortage of
// file descriptors, and tries again; it returns any other error.
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

// Handoff is a listener for connections that [Handoff.Put] hands to it. The caller of Put
// bounds their number. Make it with [NewHandoff]. All methods are safe for concurrent use,
// except that only one goroutine may call Accept.
type Handoff struct {
	mu      sync.Mutex
	waiting []net.Conn
	stopped bool
	some    chan struct{} // a token while waiting may not be empty, or when stopped
}

// NewHandoff returns a Handoff without connections.
func NewHandoff() *Handoff { return &Handoff{some: make(chan struct{}, 1)} }

// Put adds c without blocking. After Stop it closes c.
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

// closeBelow closes c without a TLS close_notify, which could block.
func closeBelow(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// Accept waits for the next connection. After Stop it returns [http.ErrServerClosed], which
// Serve of an [http.Server] then returns.
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

// Close does nothing; see Stop.
func (h *Handoff) Close() error { return nil }

// Addr returns a placeholder; there may be no listener.
func (h *Handoff) Addr() net.Addr { return &net.TCPAddr{} }
