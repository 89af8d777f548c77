package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/host/supervisor"
)

// supervised is a process of isotone serve whose supervisor is the test.
type supervised struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  bytes.Buffer
	conn *net.UnixConn
	addr string
}

func startSupervised(t *testing.T, settings ...string) *supervised {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no sockets of this kind")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	port, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &supervised{t: t, conn: conn, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), cmd: exec.Command(self, "serve")}
	s.cmd.Env = append(os.Environ(), asCommand+"=1", supervisor.Variable+"="+socket, "HTTP_HOST=127.0.0.1", "HTTP_PORT="+strconv.Itoa(port),
		"RAFT_ADDR=127.0.0.1:0", "THRIFT_PORT=0", "SHUTDOWN_DELAY_MS=50", "DATA_DIR="+filepath.Join(t.TempDir(), "data"))
	s.cmd.Env = append(s.cmd.Env, settings...)
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

// told waits for what the process says next.
func (s *supervised) told(want string) {
	s.t.Helper()
	buf := make([]byte, 4096)
	_ = s.conn.SetReadDeadline(time.Now().Add(rig.Wait))
	n, err := s.conn.Read(buf)
	if err != nil || !strings.Contains(string(buf[:n]), want) {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.t.Fatalf("told %q, %v, want %q\n%s", buf[:n], err, want, &s.log)
	}
}

// up fails the test unless the process answers.
func (s *supervised) up() {
	s.t.Helper()
	resp, err := http.Get("http://" + s.addr + "/up")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Errorf("/up: %s", resp.Status)
	}
}

// end asks the process to end.
func (s *supervised) end() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
}

func TestServe_TellsItsSupervisorThatItServesAndStops(t *testing.T) {
	s := startSupervised(t)
	s.told("READY=1\nSTATUS=serving")
	s.up()
	s.end()
	s.told("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=15050000")
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &s.log)
	}
}

// A node that nobody has added to the cluster is not one that hangs.
func TestServe_TellsItsSupervisorThatItWaitsToJoin(t *testing.T) {
	s := startSupervised(t, "JOIN=127.0.0.1:1")
	s.told("READY=1\nSTATUS=waiting to join a cluster")
	s.up()
	s.end()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &s.log)
	}
}

func TestServe_ServesWithoutItsSupervisor(t *testing.T) {
	s := startSupervised(t, supervisor.Variable+"="+filepath.Join(t.TempDir(), "nobody"))
	for deadline := time.Now().Add(rig.Wait); ; time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get("http://" + s.addr + "/up"); err == nil {
			_ = resp.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("/up is not answered in time")
		}
	}
	s.end()
	if err := s.cmd.Wait(); err != nil || !strings.Contains(s.log.String(), supervisor.Variable) {
		t.Errorf("%v\n%s", err, &s.log)
	}
}
