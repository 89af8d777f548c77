package web_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
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
			await.Until(t, "the request is submitted", func() bool { return s.backend.submitted.Load() == 1 })

			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			down := make(chan error, 1)
			go func() { down <- s.Shutdown(ctx) }()
			await.Until(t, "new connections are refused", func() bool {
				_, err := s.client(t, p).tryBriefly("/up")
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
			await.Until(t, "the request is submitted", func() bool { return s.backend.submitted.Load() == 1 })
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

func TestShutdown_ClosesIdleConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, p := range protocols {
		s.client(t, p).get(t, "/up")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("took %v", took)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
}

func TestServe_AfterShutdownAndTwice(t *testing.T) {
	s := start(t)
	c := s.client(t, "http1")
	c.get(t, "/up")
	l, udp := listen(t)
	defer l.Close()
	if err := s.Serve(udp); err == nil {
		t.Error("a second Serve succeeded")
	}
	if _, _, err := udp.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second socket is not closed: %v", err)
	}
	idle := web.New(web.Config{Backend: newBackend()})
	if err := idle.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	second, udp := listen(t)
	defer second.Close()
	if err := idle.Serve(udp); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}
