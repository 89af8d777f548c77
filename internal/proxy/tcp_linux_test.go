package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/proxy"
)

// copied returns how many bytes this process has read by read(2) so far. What splice(2) moves does
// not count.
func copied(t *testing.T) (n int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("/proc/self/io: %v", err)
	}
	if _, err := fmt.Sscanf(string(bytes.SplitN(b, []byte("\n"), 2)[0]), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTCP_HasTheKernelMoveBytes: of a large answer, only the client of the test reads the bytes into
// this process, not the proxy. With its one pipe taken by another connection, the proxy does.
func TestTCP_HasTheKernelMoveBytes(t *testing.T) {
	const total = 64 << 20
	b := startTCPBackend(t, func(c *net.TCPConn) {
		block := make([]byte, 256<<10)
		for range total / len(block) {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	s := startTCPSite(t, proxy.TCPConfig{Limits: proxy.TCPLimits{SplicesMax: 1}}, b.addr)
	read := func() float64 {
		before, c := copied(t), s.dial(t)
		defer c.Close()
		if n, err := io.Copy(io.Discard, c); n != total || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		return float64(copied(t)-before) / total
	}
	if times := read(); times < 1 || times > 1.25 {
		t.Errorf("each byte was read %.2f times; want once, by the client", times)
	}
	s.ended(t, 1)
	stuck := s.dial(t) // reads nothing, so its pipe stays in use
	readN(t, stuck, 1<<20)
	if times := read(); times < 1.75 {
		t.Errorf("without a pipe, each byte was read %.2f times; want twice", times)
	}
}

// TestTCP_ASlowReaderIsNotIdle: with a large send buffer Linux lets the proxy write again only after much
// of it has been taken, which is later than the IdleTimeout here.
func TestTCP_ASlowReaderIsNotIdle(t *testing.T) {
	t.Parallel()
	b := startTCPBackend(t, func(c *net.TCPConn) {
		block := make([]byte, 64<<10)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	s := startTCPSite(t, proxy.TCPConfig{Limits: proxy.TCPLimits{IdleTimeout: time.Second}}, b.addr)
	c := s.dial(t)
	_ = c.SetReadBuffer(16 << 10)
	buf := make([]byte, 4<<10)
	for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(25 * time.Millisecond) {
		if _, err := c.Read(buf); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
	}
	// Then it takes nothing.
	if e := s.ended(t, 1)[0]; e.Outcome != proxy.TCPIdle {
		t.Errorf("%+v", e)
	}
}
