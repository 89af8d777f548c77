package web_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
)

// taken is a connection of which a part was read, and to which a part was written, before
// the server got it.
type taken struct {
	net.Conn
	mu             sync.Mutex
	unread, unsent string
}

func (c *taken) Read(p []byte) (int, error) {
	if c.unread != "" {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *taken) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent != "" {
		if _, err := io.WriteString(c.Conn, c.unsent); err != nil {
			return 0, err
		}
		c.unsent = ""
	}
	return c.Conn.Write(p)
}

func (c *taken) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }
func (c *taken) NetConn() net.Conn { return c.Conn }

// startTaking runs a server; give gets each connection.
func startTaking(t testing.TB, give func(s *site, c net.Conn), configure ...func(*web.Config)) *site {
	t.Helper()
	tcp, udp := listen(t)
	s := startOn(t, udp, configure...)
	s.addr = tcp.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			all.Go(func() { give(s, c) })
		}
	})
	t.Cleanup(func() {
		_ = tcp.Close()
		all.Wait()
	})
	return s
}

// giveSome reads a little of c, or does the handshake of TLS, and gives it away.
func giveSome(s *site, c net.Conn) {
	b := make([]byte, 3)
	n, err := c.Read(b)
	if err != nil {
		_ = c.Close()
		return
	}
	read := &taken{Conn: c, unread: string(b[:n])}
	if b[0] == '\x16' && s.secured != nil {
		giveSecured(s.secured)(s, read)
		return
	}
	s.Take(read)
}

func TestTake_ServesEveryProtocol(t *testing.T) {
	s := startTaking(t, giveSome)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		for range 3 {
			if a := c.get(t, "/timestamp"); a.StatusCode != 200 || len(a.body) != 16 {
				t.Errorf("%d %q", a.StatusCode, a.body)
			}
		}
		if n := s.Connections(); n < 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// What was answered before must arrive although nothing more is: the client may wait for
// it before it goes on.
func TestTake_WritesWhatWasLeft(t *testing.T) {
	s := startTaking(t, func(s *site, c net.Conn) { s.Take(&taken{Conn: c, unread: "GET /up", unsent: "left over\n"}) })
	c := dial(t, s)
	_ = c.SetDeadline(time.Now().Add(patience))
	b := make([]byte, len("left over\n"))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "left over\n" {
		t.Fatalf("%q, %v", b, err)
	}
	_, _ = io.WriteString(c, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), okLine) {
		t.Errorf("%q, %v", got, err)
	}
	await.Until(t, "it is not counted any more", func() bool { return s.Connections() == 0 })
}

func TestTake_CountsWithWhatIsElsewhere(t *testing.T) {
	var elsewhere atomic.Int64
	s := startTaking(t, func(s *site, c net.Conn) { s.Refuse(c) }, func(c *web.Config) {
		c.Limits.ConnectionsMax = 3
		c.Elsewhere = func() int { return int(elsewhere.Load()) }
	})
	wantFault(t, s.client(t, "http1").get(t, "/timestamp"), 503, isotone.CodeOverloaded)
	if a := s.client(t, "h3").get(t, "/timestamp"); a.StatusCode != 200 {
		t.Errorf("QUIC: %d", a.StatusCode)
	}
	elsewhere.Store(2)
	if _, err := s.client(t, "h3").try("GET", "/timestamp", nil); err == nil {
		t.Error("a QUIC connection beyond the most was served")
	}
}

func TestTake_ShutdownFinishesWhatRuns(t *testing.T) {
	s := startTaking(t, giveSome, func(c *web.Config) { c.Limits.RequestTimeout = time.Hour })
	c := s.client(t, "http1")
	c.get(t, "/up") // which leaves an idle connection
	s.backend.hold()
	running := make(chan error, 1)
	go func() {
		a, err := s.client(t, "http1").try("GET", "/timestamp", nil)
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
	await.Until(t, "the server stops", func() bool {
		_, err := c.try("GET", "/up", nil)
		return err != nil
	})
	s.backend.release()
	if err := <-running; err != nil {
		t.Errorf("the running request: %v", err)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections after Shutdown", n)
	}
}

func TestTake_BeforeServeWaitsAndAfterShutdownCloses(t *testing.T) {
	s := web.New(web.Config{Backend: newBackend()})
	pipe := func() (client net.Conn) {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		_ = client.SetDeadline(time.Now().Add(patience))
		go s.Take(&taken{Conn: server, unread: "GET /up HTTP/1.0\r\n\r\n"})
		return client
	}
	early := pipe()
	await.Until(t, "it is counted", func() bool { return s.Connections() == 1 })
	served := make(chan error, 1)
	go func() { served <- s.Serve(nil) }()
	if got, err := io.ReadAll(early); err != nil || !strings.HasPrefix(string(got), "HTTP/1.0 200 OK\r\n") {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(pipe()); err != nil || len(got) != 0 {
		t.Errorf("after Shutdown: %q, %v", got, err)
	}
	never := web.New(web.Config{Backend: newBackend()})
	client, server := net.Pipe()
	defer client.Close()
	never.Take(&taken{Conn: server, unread: "x"})
	if err := never.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(client); err != nil || len(got) != 0 {
		t.Errorf("never served: %q, %v", got, err)
	}
	if never.Connections() != 0 {
		t.Errorf("%d connections", never.Connections())
	}
}
