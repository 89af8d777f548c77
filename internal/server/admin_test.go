package server_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/listen"
	"github.com/isotone/isotone/internal/server"
)

func TestAdmin_ServesOperatorsAndNobodyElse(t *testing.T) {
	t.Parallel()
	_, client, admin := testnode.Run(t, nil)
	await.Until(t, "the node is ready", func() bool {
		status, body := rig.Fetch(t, admin+"/ready")
		all, _ := rig.Fetch(t, admin+"/readyz")
		return status == 200 && body == "ok" && all == 200
	})
	rig.CheckProfiles(t, admin)
	for path, want := range map[string]string{
		"/up": "ok", "/livez": "ok", "/readyz?verbose": "timestamps", "/ready/timestamps": "ok", "/admin/members": "", "/metrics": "isotone_ready 1",
	} {
		if status, body := rig.Fetch(t, admin+path); status != 200 || body == "" || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.80q", path, status, body)
		}
	}
	for _, path := range []string{"/timestamp", "/", "/state"} {
		if status, _ := rig.Fetch(t, admin+path); status != 404 {
			t.Errorf("%s on the admin port: %d", path, status)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap"} {
		if status, _ := rig.Fetch(t, client+path); status != 404 {
			t.Errorf("%s on the client port: %d", path, status)
		}
	}
}

func TestAdmin_ReadyFailsAsOnTheClientPort(t *testing.T) {
	_, client, admin := testnode.Run(t, func(s *config.Settings) {
		s.Peers[2] = "127.0.0.1:1" // where nobody is
	})
	await.Until(t, "both ports say why", func() bool {
		status, body := rig.Fetch(t, admin+"/ready")
		again, same := rig.Fetch(t, client+"/ready")
		return status == 503 && again == 503 && body == same && strings.Contains(body, "node 2")
	})
}

// TestAdmin_BoundsItsConnections: whoever keeps as many as there may be locks nobody out, not even from the same address.
func TestAdmin_BoundsItsConnections(t *testing.T) {
	_, _, admin := testnode.Run(t, nil)
	var conns []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		return c
	}
	closeAll := func() {
		for _, c := range conns {
			_ = c.Close()
		}
		conns = nil
	}
	defer closeAll()
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "GET /up HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return err
		}
		line := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, line); err != nil || string(line) != "HTTP/1.1 200" {
			return fmt.Errorf("%q: %w", line, err)
		}
		return nil
	}
	for _, kept := range []string{
		"",
		"GET /up HTTP/1.1\r\nHost: loc",
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"GET /debug/pprof/heap?seconds=50 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000),
	} {
		for range server.AdminConnectionsMax {
			c := dial()
			_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			_, _ = io.WriteString(c, kept) // all of it, or as much as is read
		}
		if err := ask(dial()); err != nil {
			t.Errorf("after many connections with %.60q: %v", kept, err)
		}
		closeAll()
	}

	// These requests take longer than the test, so what ends before its answer has made room.
	var closed atomic.Int64
	var reading sync.WaitGroup
	for range server.AdminConnectionsMax {
		c := dial()
		if _, err := io.WriteString(c, "GET /debug/pprof/heap?seconds=50 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			closed.Add(1)
			continue
		}
		reading.Go(func() {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				closed.Add(1)
			}
		})
	}
	await.Until(t, "an address has no more connections than its share", func() bool { return closed.Load() >= server.AdminConnectionsMax-server.AdminShare })
	closeAll()
	reading.Wait()
}

func TestAdmin_SaysThatItsAddressIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort, s.AdminAddr = "127.0.0.1", 0, "127.0.0.1:0", 0, other.Addr().String()
	so, err := server.Listen(&s)
	if err == nil {
		_ = so.Close()
	}
	if err = listen.Explain(err); err == nil || !strings.Contains(err.Error(), "ADMIN_ADDR") || !strings.Contains(err.Error(), "is another process using it?") {
		t.Errorf("got %v", err)
	}
}

func TestAdmin_EndsWithItsNode(t *testing.T) {
	stop, _, admin := testnode.Run(t, nil)
	stop()
	if c, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://")); err == nil {
		_ = c.Close()
		t.Error("the admin port is still there")
	}
}

// TestMember_CountsConnectionsByProtocol: one of each kind is open.
func TestMember_CountsConnectionsByProtocol(t *testing.T) {
	_, client, admin := testnode.Run(t, nil)
	open := func(first string) {
		c, err := net.Dial("tcp", strings.TrimPrefix(client, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
	}
	open("")
	open("GET /timestamp HTTP/1.1\r\n")
	open("*1\r\n$4\r\nPING\r\n")
	open("*1\r\n$4\r\nPING\r\n")
	open("POST /up HTTP/1.1\r\nHost: x\r\n")
	open("\x16\x03\x01")
	await.Until(t, "the connections are counted", func() bool {
		_, body := rig.Fetch(t, admin+"/metrics")
		for _, want := range []string{"silent\"} 1", "http1\"} 1", "resp\"} 2", "web\"} 1", "handshake\"} 1", "h3\"} 0", "thrift\"} 0"} {
			if !strings.Contains(body, "isotone_client_connections{protocol=\""+want+"\n") {
				return false
			}
		}
		return strings.Contains(body, "isotone_client_connections_limit{port=\"client\"} 20000") &&
			strings.Contains(body, "isotone_client_connections_limit{port=\"thrift\"} 4096") &&
			strings.Contains(body, "isotone_client_connections_refused_total{protocol=\"silent\"} 0")
	})
}
