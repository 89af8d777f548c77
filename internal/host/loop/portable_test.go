//go:build !linux || portable

package loop_test

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/host/loop"
)

// failing is a listener that cannot accept the first few times, and then every other time.
type failing struct {
	net.Listener
	times int
	after bool // it has accepted since it failed
}

func (f *failing) Accept() (net.Conn, error) {
	if f.times > 0 || f.after {
		f.times, f.after = f.times-1, false
		return nil, errTest
	}
	f.after = true
	return f.Listener.Accept()
}

func TestLoop_TriesAgainWhenItCannotAccept(t *testing.T) {
	var logged strings.Builder
	l, err := loop.New(slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t, "tcp", "127.0.0.1:0")
	opened := 0
	err = l.Listen(&failing{Listener: ln, times: 3}, loop.Limits{}, func(c *loop.Conn) loop.Handler { opened++; return &funcs{} })
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	for end := time.Now().Add(patience); opened < 3 && time.Now().Before(end); {
		if err := l.Wait(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(logged.String(), "cannot be accepted"); opened != 3 || n != 1 {
		t.Errorf("%d connections, %d warnings", opened, n)
	}
}

func TestAttach_TakesAnyConn(t *testing.T) {
	h := newHost(t)
	ours, theirs := net.Pipe() // which has neither a descriptor nor CloseWrite
	c := newClient(t, theirs)
	ended := make(chan error, 1)
	var conn *loop.Conn
	h.do(func() {
		handler := &funcs{data: lines, closed: func(_ *loop.Conn, err error) { ended <- err }}
		var err error
		if conn, err = h.loop.Attach(ours, nil, loop.Limits{}, handler); err != nil {
			t.Error(err)
		}
	})
	c.say("abc\n")
	c.expect("ABC\n")
	h.do(func() { conn.Write([]byte("bye")); conn.Close(errTest) })
	c.expectEnd("bye")
	if err := await.Receive(t, "Closed", ended); err != errTest {
		t.Error(err)
	}
}

func TestConn_DetachInterruptsReaderAndWriter(t *testing.T) {
	h := newHost(t)
	ours, theirs := net.Pipe() // which holds nothing
	c := newClient(t, theirs)
	var conn *loop.Conn
	h.do(func() {
		var err error
		if conn, err = h.loop.Attach(ours, nil, loop.Limits{}, &funcs{data: lines}); err != nil {
			t.Error(err)
		}
	})
	c.say("abc\ndef") // the answer is not read
	h.settle()
	c.expect("A")
	var nc net.Conn
	h.do(func() {
		var err error
		if nc, err = conn.Detach(nil); err != nil {
			t.Error(err)
		}
	})
	d := own(t, nc)
	defer d.Close()
	go io.WriteString(c, "ghi")
	d.expect("defghi")
	go io.WriteString(d, "end")
	c.expect("BC\nend")
}

func TestLoop_CloseDoesNotWaitForOneThatDoesNotRead(t *testing.T) {
	h := serve(t, loop.Limits{}, func(c *loop.Conn, b []byte) (int, error) {
		c.Write(make([]byte, more))
		return len(b), nil
	})
	c := h.dial()
	c.say("x")
	h.settle()
	began := time.Now()
	h.stop()
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
}
