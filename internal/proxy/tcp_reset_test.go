package proxy_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/proxy"
)

// TestTCP_AResetIsNoEndWhileTheProxyWrites: a client resets its connection while the proxy waits to write to it.
// Whichever direction the system tells that, the backend must not take what it got for all of it.
func TestTCP_AResetIsNoEndWhileTheProxyWrites(t *testing.T) {
	t.Parallel()
	const rounds = 10
	full, ended := make(chan bool, 1), make(chan error, 1)
	b := startTCPBackend(t, func(c *net.TCPConn) {
		block := make([]byte, 64<<10)
		for err := error(nil); err == nil; { // until the client, which reads nothing, stops the proxy, and that this
			_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, err = c.Write(block)
		}
		full <- true
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	s := startTCPSite(t, proxy.TCPConfig{}, b.addr)
	for i := range rounds {
		c := s.dial(t)
		_, _ = io.WriteString(c, "ping")
		<-full
		await.Until(t, "the bytes are there", func() bool { return s.Status().BytesUp == uint64(4*(i+1)) })
		_ = c.SetLinger(0)
		_ = c.Close()
		if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("round %d: the backend reads %v: want a reset", i, err)
		}
	}
}
