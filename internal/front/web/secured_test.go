package web_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/web"
)

// secured is a connection that has shaken hands before the server got it.
type secured struct {
	*tls.Conn
	beneath *beneath
	unread  string
}

// beneath carries the records, and can be replaced while nobody reads.
type beneath struct{ net.Conn }

func (s *secured) Read(p []byte) (int, error) {
	if s.unread != "" {
		n := copy(p, s.unread)
		s.unread = s.unread[n:]
		return n, nil
	}
	return s.Conn.Read(p)
}

func (s *secured) WrapNetConn(wrap func(net.Conn) net.Conn) net.Conn {
	s.beneath.Conn = wrap(s.beneath.Conn)
	if s.unread == "" {
		return s.Conn
	}
	return s
}

// giveSecured shakes hands, reads a little of HTTP/1, and gives the connection away.
func giveSecured(server *tls.Config) func(s *site, c net.Conn) {
	return func(s *site, c net.Conn) {
		below := &beneath{c}
		t := &secured{Conn: tls.Server(below, server), beneath: below}
		_ = c.SetDeadline(time.Now().Add(patience))
		if t.Handshake() != nil {
			_ = c.Close()
			return
		}
		b := make([]byte, 5)
		n, _ := t.Conn.Read(b)
		t.unread = string(b[:n])
		_ = c.SetDeadline(time.Time{})
		s.Take(t)
	}
}

func TestTake_ServesWhatHasShakenHands(t *testing.T) {
	var server *tls.Config
	s := startTaking(t, func(s *site, c net.Conn) { giveSecured(server)(s, c) }, func(c *web.Config) {
		server = c.TLS.Clone()
		server.NextProtos = []string{"http/1.1"}
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	client := &http.Client{Transport: transport, Timeout: patience}
	for range 3 {
		response, err := client.Get("https://" + s.addr + "/timestamp")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != 200 || len(body) != 16 || err != nil {
			t.Errorf("%d %q, %v", response.StatusCode, body, err)
		}
		if !strings.HasPrefix(response.Header.Get("Alt-Svc"), "h3=") {
			t.Errorf("Alt-Svc is %q; the handler does not know of TLS", response.Header.Get("Alt-Svc"))
		}
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	transport.CloseIdleConnections()
	await.Until(t, "it is not counted any more", func() bool { return s.Connections() == 0 })
}

// TestTake_CutsWhoDoesNotRead, with TLS as without.
func TestTake_CutsWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(*tls.Config) func(*site, net.Conn){
		"without TLS": func(*tls.Config) func(*site, net.Conn) { return giveSome },
		"with TLS":    giveSecured,
	} {
		var server *tls.Config
		s := startTaking(t, func(s *site, c net.Conn) { give(server)(s, c) }, func(c *web.Config) {
			server = c.TLS.Clone()
			server.NextProtos = []string{"http/1.1"}
			c.Limits.WriteTimeout = 500 * time.Millisecond
		})
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		if name == "with TLS" {
			c = tls.Client(c, &tls.Config{RootCAs: s.roots, ServerName: "localhost"})
		}
		if _, err := io.WriteString(c, "GET /timestamp?n=65536&format=json HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "it is there, "+name, func() bool { return s.Connections() == 1 })
		await.Until(t, "it is cut, "+name, func() bool { return s.Connections() == 0 })
	}
}
