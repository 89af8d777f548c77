package web_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front/web"
)

func TestShutdown_FinishesWhatRunsAndRefusesTheNew(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(c *web.Config) { c.Limits.RequestTimeout = time.Hour })
			c := s.client(t, p)
			c.get(t, "/up")
			s.backend.hold()
			running := make(chan error, 1)
			go func() {
				a, err := c.try("GET", "/timestamp", nil)
				if err == nil && (a.StatusCode != 200 || len(a.body) != 16) {
					err = errors.New(a.Status)
				}
				running <- err
			}()
			eventually(t, "the request is submitted", func() bool { return s.backend.submitted.Load() == 1 })

			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			down := make(chan error, 1)
			go func() { down <- s.Shutdown(ctx) }()
			eventually(t, "new connections are refused", func() bool {
				n, err := net.Dial("tcp", s.addr)
				if err == nil {
					_ = n.Close()
				}
				return err != nil
			})
			select {
			case err := <-down:
				t.Fatalf("Shutdown returned %v while a request runs", err)
			case <-time.After(20 * time.Millisecond):
			}
			s.backend.release()
			if err := <-running; err != nil {
				t.Errorf("the running request: %v", err)
			}
			if err := <-down; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if _, err := s.client(t, "h3").tryBriefly("/up"); err == nil {
				t.Error("HTTP/3 is still served")
			}
		})
	}
}

// tryBriefly does not wait long for a server that should be gone.
func (c *client) tryBriefly(target string) (answer, error) {
	c.Timeout = 300 * time.Millisecond
	return c.try("GET", target, nil)
}

func TestShutdown_CutsWhatDoesNotEnd(t *testing.T) {
	for _, p := range protocols {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(c *web.Config) { c.Limits.RequestTimeout = time.Hour })
			s.backend.hold() // and never released
			c := s.client(t, p)
			running := make(chan error, 1)
			go func() {
				_, err := c.try("GET", "/timestamp", nil)
				running <- err
			}()
			eventually(t, "the request is submitted", func() bool { return s.backend.submitted.Load() == 1 })
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			select {
			case <-running: // with an error or a 504, as the cut found it
			case <-time.After(patience):
				t.Error("the client still waits")
			}
		})
	}
}

func TestShutdown_ClosesIdleAndSilentConnectionsAtOnce(t *testing.T) {
	s := start(t)
	for _, p := range protocols {
		s.client(t, p).get(t, "/up")
	}
	silent := dial(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("took %v", took)
	}
	wantClosed(t, silent, "silent")
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
}

func TestServe_AfterShutdownAndTwice(t *testing.T) {
	s := start(t)
	c := s.client(t, "http1")
	c.get(t, "/up")
	l, udp := listen(t)
	if err := s.Serve(l, udp); err == nil {
		t.Error("a second Serve succeeded")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second listener is not closed: %v", err)
	}
	idle := web.New(web.Config{Backend: newBackend()})
	if err := idle.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	l, udp = listen(t)
	if err := idle.Serve(l, udp); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

// broken fails as a listener does when its descriptor is gone, or for a while.
type broken struct {
	net.Listener
	errs []error
}

func (b *broken) Accept() (net.Conn, error) {
	if len(b.errs) == 0 {
		return b.Listener.Accept()
	}
	err := b.errs[0]
	b.errs = b.errs[1:]
	return nil, err
}

type passing struct{}

func (passing) Error() string   { return "too many open files" }
func (passing) Temporary() bool { return true }

func TestServe_ReturnsTheListenersFailure(t *testing.T) {
	final := errors.New("broken for good")
	l, udp := listen(t)
	defer udp.Close()
	s := web.New(web.Config{Backend: newBackend()})
	if err := s.Serve(&broken{l, []error{passing{}, passing{}, final}}, nil); !errors.Is(err, final) {
		t.Errorf("Serve: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is not closed: %v", err)
	}
}
