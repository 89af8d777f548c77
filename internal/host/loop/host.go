package loop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// Work is what a [Host] runs in its loop besides the handlers of connections. Its methods
// run on the loop's goroutine.
type Work interface {
	// Sleep returns how long the loop may wait for the next event.
	Sleep() time.Duration
	// Turn works on everything that has arrived. Its output is written afterwards.
	Turn()
	// Flushed is called when the output of the turn was written.
	Flushed()
	// Close answers what is still waiting. It is called once, at the end.
	Close()
}

// Service is the fronts in one loop. Its functions run on the loop's goroutine.
type Service struct {
	// Open returns the handler of a new connection; see [Loop.Listen].
	Open func(*Conn) Handler
	// Stop is called once no more connections are accepted. Requests under way are still
	// answered; after that the connections should close.
	Stop func()
	// Conns returns how many connections are left.
	Conns func() int
}

// HostConfig configures a [Host]. Work is required.
type HostConfig struct {
	Work Work
	// After, if not nil, delays the end of the host until it is closed: what the Work waits
	// for comes from there.
	After <-chan struct{}
	// Failed, if not nil, is called on the loop's goroutine when the loop fails.
	Failed func(error)
}

// Host owns the goroutine of a [Loop]: it runs turns, executes posted functions, serves
// connections and drains them. Make it with [NewHost]. All methods are safe for concurrent
// use.
type Host struct {
	loop    *Loop
	cfg     HostConfig
	stop    atomic.Bool
	done    chan struct{}
	err     error   // why the loop failed; valid once done is closed
	service Service // belongs to the loop's goroutine
}

// NewHost returns a host that owns l and does nothing until [Host.Start].
func NewHost(l *Loop, cfg HostConfig) *Host {
	return &Host{loop: l, cfg: cfg, done: make(chan struct{})}
}

// Start runs the loop until [Host.Stop] or a failure. It is called once.
func (h *Host) Start() { go h.run() }

// run is the loop's goroutine.
func (h *Host) run() {
	defer close(h.done)
	work := h.cfg.Work
	for !h.stop.Load() {
		if err := h.loop.Wait(work.Sleep()); err != nil {
			h.err = err
			if h.cfg.Failed != nil {
				h.cfg.Failed(err)
			}
			break
		}
		if h.stop.Load() {
			break
		}
		work.Turn()
		h.loop.Flush()
		work.Flushed()
	}
	if h.cfg.After != nil {
		<-h.cfg.After
	}
	h.loop.endPosts() // a caller may be waiting for one of them
	work.Close()
	h.loop.Flush()
	h.err = errors.Join(h.err, h.loop.Close())
}

// Stop makes the host end. It does not wait; see [Host.Done].
func (h *Host) Stop() {
	h.stop.Store(true)
	h.loop.Wake()
}

// Done is closed when the host has ended.
func (h *Host) Done() <-chan struct{} { return h.done }

// Err waits until the host has ended, and returns why the loop failed, or nil.
func (h *Host) Err() error {
	<-h.done
	return h.err
}

// Post has f run on the loop's goroutine before the next turn, and reports whether it will
// be. The caller bounds how often.
func (h *Host) Post(f func()) bool { return h.loop.Post(f) }

// Call runs f on the loop's goroutine and waits for it. It reports whether f has run.
func (h *Host) Call(f func()) bool {
	ran := make(chan struct{})
	if !h.Post(func() { f(); close(ran) }) {
		return false
	}
	<-ran // what was posted runs, also at the end
	return true
}

// Hosts are loops that share the connections of one listener.
type Hosts []*Host

// Serve accepts connections from ln, which the hosts own from now on, in all of their
// loops. open is called once for each loop, on its goroutine, before the first connection
// is accepted. Serve is called once. Its error matches [ErrClosed] if a host has ended.
func (hs Hosts) Serve(ln net.Listener, limits Limits, open func(i int, l *Loop) Service) error {
	listeners := []net.Listener{ln}
	for range hs[1:] {
		again, err := listenAgain(ln)
		if err != nil {
			return errors.Join(err, closeAll(listeners))
		}
		listeners = append(listeners, again)
	}
	for i, h := range hs {
		h.Call(func() { h.service = open(i, h.loop) })
	}
	for i, h := range hs {
		err := error(ErrClosed)
		h.Call(func() { err = h.loop.Listen(listeners[i], limits, h.service.Open) })
		if err != nil {
			return errors.Join(err, closeAll(listeners[i:]))
		}
	}
	return nil
}

func closeAll(listeners []net.Listener) error {
	var err error
	for _, ln := range listeners {
		err = errors.Join(err, ln.Close())
	}
	return err
}

// drainPoll is how often StopServing counts the connections that are left.
const drainPoll = 2 * time.Millisecond

// StopServing accepts no more connections, tells the fronts, and waits until they have no
// connections left, or for ctx.
func (hs Hosts) StopServing(ctx context.Context) {
	for _, h := range hs {
		h.Call(func() {
			if h.service.Stop != nil {
				h.loop.StopListening()
				h.service.Stop()
			}
		})
	}
	for hs.Conns() > 0 {
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return
		}
	}
}

// Conns returns how many connections the services have.
func (hs Hosts) Conns() (n int) {
	for _, h := range hs {
		h.Call(func() {
			if h.service.Conns != nil {
				n += h.service.Conns()
			}
		})
	}
	return n
}

// Stop makes all hosts end. It does not wait.
func (hs Hosts) Stop() {
	for _, h := range hs {
		h.Stop()
	}
}

// listenAgain returns another listener on the socket of ln.
func listenAgain(ln net.Listener) (net.Listener, error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("several loops cannot share a %T", ln)
	}
	file, err := tcp.File()
	if err != nil {
		return nil, err
	}
	again, err := net.FileListener(file)
	return again, errors.Join(err, file.Close())
}
