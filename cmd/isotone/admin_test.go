package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/config"
)

// runMember runs a node of its own on loopback, with an admin port, until stop or the end of
// the test.
func runMember(t *testing.T, change func(*config.Settings)) (stop func(), client, admin string) {
	t.Helper()
	stop, so := runMemberSockets(t, change)
	return stop, "http://" + so.http.Addr().String(), "http://" + so.admin.Addr().String()
}

// runMemberSockets is runMember that returns what the node listens on.
func runMemberSockets(t *testing.T, change func(*config.Settings)) (stop func(), so sockets) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort, s.DataDir = "127.0.0.1", 0, "127.0.0.1:0", 0, t.TempDir()
	s.AdminAddr, s.Peers = "127.0.0.1:0", map[uint64]string{}
	if change != nil {
		change(&s)
	}
	so, err := listen(&s)
	if err != nil {
		t.Fatal(err)
	}
	s.Peers[1] = so.peer.Addr().String()
	m, err := startMember(&s, so, memberOptions{loops: 2}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop, so
}

func TestAdmin_ServesOperatorsAndNobodyElse(t *testing.T) {
	t.Parallel()
	_, client, admin := runMember(t, nil)
	within(t, "the node is ready", func() bool {
		status, body := fetch(t, admin+"/ready")
		all, _ := fetch(t, admin+"/readyz")
		return status == 200 && body == "ok" && all == 200
	})
	checkProfiles(t, admin)
	for path, want := range map[string]string{
		"/up": "ok", "/livez": "ok", "/readyz?verbose": "timestamps", "/ready/timestamps": "ok", "/admin/members": "", "/metrics": "isotone_ready 1",
	} {
		if status, body := fetch(t, admin+path); status != 200 || body == "" || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.80q", path, status, body)
		}
	}
	for _, path := range []string{"/timestamp", "/", "/state"} {
		if status, _ := fetch(t, admin+path); status != 404 {
			t.Errorf("%s on the admin port: %d", path, status)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap"} {
		if status, _ := fetch(t, client+path); status != 404 {
			t.Errorf("%s on the client port: %d", path, status)
		}
	}
}

// profiling is held while a test takes profiles: a process has one of the CPU, and one trace, at a time.
var profiling sync.Mutex

// checkProfiles checks the profiles that an admin port serves.
func checkProfiles(t *testing.T, admin string) {
	t.Helper()
	profiling.Lock()
	defer profiling.Unlock()
	for path, want := range map[string]string{
		"": "goroutine", "cmdline": "isotone", "goroutine?debug=1": "goroutine profile:", "heap": "", "symbol": "num_symbols",
		"profile?seconds=1": "", "trace?seconds=0.1": "go 1",
	} {
		if status, body := fetch(t, admin+"/debug/pprof/"+path); status != 200 || body == "" || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.80q", path, status, body)
		}
	}
	for _, path := range []string{"profile?seconds=61", "profile?seconds=x", "trace?seconds=61", "trace?seconds=NaN", "heap?seconds=61"} {
		if status, body := fetch(t, admin+"/debug/pprof/"+path); status != 400 || !strings.Contains(body, "60") {
			t.Errorf("%s: %d %.80q", path, status, body)
		}
	}
}

func TestAdmin_ReadyFailsAsOnTheClientPort(t *testing.T) {
	_, client, admin := runMember(t, func(s *config.Settings) {
		s.Peers[2] = "127.0.0.1:1" // where nobody is
	})
	within(t, "both ports say why", func() bool {
		status, body := fetch(t, admin+"/ready")
		again, same := fetch(t, client+"/ready")
		return status == 503 && again == 503 && body == same && strings.Contains(body, "node 2")
	})
}

// TestAdmin_BoundsItsConnections, and takes others when some have ended.
func TestAdmin_BoundsItsConnections(t *testing.T) {
	_, _, admin := runMember(t, nil)
	var conns []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		return c
	}
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, "GET /up HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		line := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, line); err != nil || string(line) != "HTTP/1.1 200" {
			return fmt.Errorf("%q: %w", line, err)
		}
		return nil
	}
	for i := range adminConnectionsMax {
		if err := ask(dial()); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if err := ask(dial()); err == nil {
		t.Errorf("more than %d connections are served", adminConnectionsMax)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	within(t, "another connection is served", func() bool { return ask(dial()) == nil })
}

func TestAdmin_SaysThatItsAddressIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := config.Default()
	s.HTTPHost, s.HTTPPort, s.RaftAddr, s.ThriftPort, s.AdminAddr = "127.0.0.1", 0, "127.0.0.1:0", 0, other.Addr().String()
	so, err := listen(&s)
	if err == nil {
		_ = so.close()
	}
	if err = taken(err); err == nil || !strings.Contains(err.Error(), "ADMIN_ADDR") || !strings.Contains(err.Error(), "is another process using it?") {
		t.Errorf("got %v", err)
	}
}

func TestAdmin_EndsWithItsNode(t *testing.T) {
	stop, _, admin := runMember(t, nil)
	stop()
	if c, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://")); err == nil {
		_ = c.Close()
		t.Error("the admin port is still there")
	}
	none := (*adminServer)(nil)
	if none.close(); none.addr() != "" {
		t.Error("a port that is not served has an address")
	}
}

// TestMember_CountsConnectionsByProtocol: one of each kind is open.
func TestMember_CountsConnectionsByProtocol(t *testing.T) {
	_, client, admin := runMember(t, nil)
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
	within(t, "the connections are counted", func() bool {
		_, body := fetch(t, admin+"/metrics")
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
