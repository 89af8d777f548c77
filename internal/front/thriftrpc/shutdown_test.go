package thriftrpc_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/thriftrpc"
)

func TestShutdown_ClosesIdleConnections(t *testing.T) {
	s := start(t)
	plain, secure, fresh, half := dial(t, s), dialTLS(t, s), dial(t, s), dial(t, s)
	for _, c := range []net.Conn{plain, secure} {
		send(t, c, idCall(t, 1))
		wantIDs(t, c, 1, 1)
	}
	send(t, half, idCall(t, 1)[:7])
	await.Until(t, "all are accepted", func() bool { return s.server.Connections() == 4 })
	if err := s.server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	for what, c := range map[string]net.Conn{"plain": plain, "secure": secure, "fresh": fresh, "half": half} {
		if got := wantClosed(t, c, what); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	if _, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("it listens still")
	}
	if n := s.server.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

func TestShutdown_LetsCallsFinish(t *testing.T) {
	f := &ids{hold: make(chan struct{}), held: make(chan struct{}, 1)}
	s := start(t, func(c *thriftrpc.Config) { c.IDs = f })
	c := dial(t, s)
	send(t, c, append(idCall(t, 1), idCall(t, 2)...))
	<-f.held
	ended := make(chan error, 1)
	go func() { ended <- s.server.Shutdown(context.Background()) }()
	await.Until(t, "nobody is accepted", func() bool {
		fresh, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = fresh.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Errorf("Shutdown did not wait: %v", err)
	default:
	}
	close(f.hold)
	wantIDs(t, c, 1, 2)
	if got := wantClosed(t, c, "after the answers"); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// hangingListener has connections whose writes hang until they are closed.
type hangingListener struct {
	net.Listener
	hangs chan struct{} // has a token when a write does
}

type hangingConn struct {
	net.Conn
	l      *hangingListener
	closed chan struct{}
	once   sync.Once
}

func (l *hangingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &hangingConn{Conn: c, l: l, closed: make(chan struct{})}, err
}

func (c *hangingConn) Write([]byte) (int, error) {
	c.l.hangs <- struct{}{}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *hangingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestShutdown_CutsWhatTakesTooLong(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hanging := &hangingListener{Listener: l, hangs: make(chan struct{}, 1)}
	s := startOn(t, hanging)
	c := dial(t, s)
	send(t, c, idCall(t, 1))
	<-hanging.hangs
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if n := s.server.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if got := wantClosed(t, c, "the client"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestServe_AfterShutdownAndTwice(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	s := start(t)
	c := dial(t, s)
	send(t, c, idCall(t, 1))
	wantIDs(t, c, 1, 1)
	if err := s.server.Serve(listen()); err == nil {
		t.Error("Serve can be called twice")
	}
	never := thriftrpc.New(thriftrpc.Config{IDs: &ids{}})
	if err := never.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	l := listen()
	if err := never.Serve(l); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// brokenListener fails, first for a while, then for good.
type brokenListener struct {
	net.Listener
	fails []error
}

type passing struct{ error }

func (passing) Temporary() bool { return true }

func (l *brokenListener) Accept() (net.Conn, error) {
	err := l.fails[0]
	l.fails = l.fails[1:]
	return nil, err
}

func TestServe_SurvivesAFullFileTable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	final := errors.New("no more")
	s := thriftrpc.New(thriftrpc.Config{IDs: &ids{}})
	err = s.Serve(&brokenListener{l, []error{passing{errors.New("too many files")}, passing{errors.New("too many files")}, final}})
	if !errors.Is(err, final) {
		t.Errorf("got %v", err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
