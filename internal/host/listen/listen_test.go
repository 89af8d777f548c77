package listen_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/host/listen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a listener that returns what it is told to, one after the other.
type script struct {
	net.Listener
	steps chan any // net.Conn or error
}

func (s *script) Accept() (net.Conn, error) {
	switch step := (<-s.steps).(type) {
	case net.Conn:
		return step, nil
	case error:
		return nil, step
	}
	return nil, net.ErrClosed
}

func (s *script) Close() error { return nil }

func (s *script) Addr() net.Addr { return &net.TCPAddr{} }

// pipe is one end of a connection that says whether it was closed.
type pipe struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipe() *pipe { return &pipe{closed: make(chan struct{})} }

func (p *pipe) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipe) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

func TestAccept_WaitsOutWhatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &script{steps: make(chan any)}
		stopping := make(chan struct{})
		admitted := make(chan net.Conn, 10)
		ended := make(chan error, 1)
		go func() {
			ended <- listen.Accept(l, stopping, slog.New(slog.DiscardHandler), func(c net.Conn) { admitted <- c })
		}()
		full := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		begin := time.Now()
		for range 3 {
			l.steps <- full
		}
		first := newPipe()
		l.steps <- first
		if waited := time.Since(begin); <-admitted != net.Conn(first) || waited != (5+10+20)*time.Millisecond {
			t.Errorf("accepted after %v", waited)
		}
		begin = time.Now()
		for range 20 {
			l.steps <- full
		}
		l.steps <- first
		if waited := time.Since(begin); waited > 15*time.Second || waited < 10*time.Second {
			t.Errorf("twenty pauses took %v: want them to grow to a second each", waited)
		}
		l.steps <- full
		synctest.Wait()
		close(stopping) // in the middle of a pause
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestPatient_WarnsOnceAMinute although descriptors come and go, and ends with Close.
func TestPatient_WarnsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &script{steps: make(chan any)}
		var logged strings.Builder
		p := listen.NewPatient(script, slog.New(slog.NewTextHandler(&logged, nil)))
		ended := make(chan error, 1)
		accepted := 0
		go func() {
			for {
				if _, err := p.Accept(); err != nil {
					ended <- err
					return
				}
				accepted++
			}
		}()
		full := &net.OpError{Op: "accept", Err: syscall.ENFILE}
		for began := time.Now(); time.Since(began) < 150*time.Second; time.Sleep(20 * time.Millisecond) {
			script.steps <- full
			script.steps <- newPipe()
		}
		script.steps <- full
		synctest.Wait()
		if n := strings.Count(logged.String(), "connections cannot be accepted"); n != 3 || accepted < 1000 {
			t.Errorf("%d warnings in two and a half minutes, %d connections", n, accepted)
		}
		_ = p.Close() // in the middle of a pause
		if err := <-ended; !errors.Is(err, syscall.ENFILE) {
			t.Error(err)
		}
	})
}

func TestAccept_ReturnsWhatDoesNotPass(t *testing.T) {
	l := &script{steps: make(chan any, 1)}
	l.steps <- net.ErrClosed
	if err := listen.Accept(l, make(chan struct{}), slog.New(slog.DiscardHandler), nil); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestHandoff_GivesConnectionsInTheirOrder(t *testing.T) {
	h := listen.NewHandoff()
	var put []*pipe
	for range 5 {
		put = append(put, newPipe())
		h.Put(put[len(put)-1])
	}
	for i := range 3 {
		if c, err := h.Accept(); err != nil || c != net.Conn(put[i]) {
			t.Fatalf("%d: %v, %v", i, c, err)
		}
	}
	h.Stop()
	late := newPipe()
	h.Put(late)
	for range 2 {
		if c, err := h.Accept(); c != nil || !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("%v, %v", c, err)
		}
	}
	for i, p := range append(put, late) {
		if p.isClosed() != (i >= 3) {
			t.Errorf("%d is closed: %v", i, p.isClosed())
		}
	}
}

// TestHandoff_LosesNothing: whatever is put is accepted or closed, whenever it ends.
func TestHandoff_LosesNothing(t *testing.T) {
	for range 200 {
		h := listen.NewHandoff()
		put := make([]*pipe, 32)
		var putting, accepting sync.WaitGroup
		accepted := map[net.Conn]bool{}
		accepting.Go(func() {
			for {
				c, err := h.Accept()
				if err != nil {
					return
				}
				accepted[c] = true
			}
		})
		for i := range put {
			put[i] = newPipe()
			putting.Go(func() { h.Put(put[i]) })
		}
		h.Stop()
		putting.Wait()
		accepting.Wait()
		for i, p := range put {
			if p.isClosed() == accepted[p] {
				t.Fatalf("%d: closed %v, accepted %v", i, p.isClosed(), accepted[p])
			}
		}
	}
}
