// Package listen has what the standard servers share: accepting that survives a shortage
// of file descriptors, and a listener for [net/http.Server] to which connections are handed.
package listen

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	// The pause after a failed accept doubles from pauseMin to pauseMax.
	pauseMin = 5 * time.Millisecond
	pauseMax = time.Second
	// warnEvery is the least time between two warnings: a shortage lasts, and may end and begin again
	// with each connection.
	warnEvery = time.Minute
)

// Explain adds a hint to the error of a listener whose address another one has.
func Explain(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (is another process using it?)", err)
	}
	return err
}

// Accept passes every connection of l to admit, which must not block. It returns nil once
// stopping and l are closed, in this order. After a temporary error, such as a shortage of
// file descriptors, it waits and tries again, and warns once a minute; it returns any other error.
func Accept(l net.Listener, stopping <-chan struct{}, log *slog.Logger, admit func(net.Conn)) error {
	p := NewPatient(l, log)
	for {
		c, err := p.accept(stopping)
		if err == nil {
			admit(c)
			continue
		}
		select {
		case <-stopping:
			return nil
		default:
			return err
		}
	}
}

// Patient is a listener whose Accept does what the function [Accept] does about temporary errors.
// Make it with [NewPatient]. Only one goroutine may call Accept.
type Patient struct {
	net.Listener
	log      *slog.Logger
	pause    time.Duration // after the next failure
	warned   time.Time
	stopping chan struct{} // closed by Close
	stop     sync.Once
}

// NewPatient returns a patient listener that owns l.
func NewPatient(l net.Listener, log *slog.Logger) *Patient {
	return &Patient{Listener: l, log: log, pause: pauseMin, stopping: make(chan struct{})}
}

// Accept waits for the next connection. It fails after Close, or if trying again cannot help.
func (p *Patient) Accept() (net.Conn, error) { return p.accept(p.stopping) }

// Close closes the listener, and ends Accept.
func (p *Patient) Close() error {
	p.stop.Do(func() { close(p.stopping) })
	return p.Listener.Close()
}

// accept is Accept; it returns the latest error soon after stopping is closed.
func (p *Patient) accept(stopping <-chan struct{}) (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err == nil {
			p.pause = pauseMin
			return c, nil
		}
		var passing interface{ Temporary() bool }
		if !errors.As(err, &passing) || !passing.Temporary() {
			return nil, err
		}
		if now := time.Now(); p.warned.IsZero() || now.Sub(p.warned) >= warnEvery {
			p.warned = now
			p.log.Warn("connections cannot be accepted; trying again", "addr", p.Addr().String(), "err", err)
		}
		select {
		case <-time.After(p.pause):
		case <-stopping:
			return nil, err
		}
		p.pause = min(2*p.pause, pauseMax)
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
