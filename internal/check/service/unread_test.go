//go:build linux

package service_test

import (
	"net"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

const (
	// unreadClients pipeline the largest request and read nothing.
	unreadClients = 8
	// unreadQuiet is how long a write must hang to count as held back.
	unreadQuiet = time.Second
	// unreadWriteMax bounds what one client can write: the kernel's buffers on both sides, a
	// few MiB.
	unreadWriteMax = 16 << 20
	// unreadMemoryMax bounds what the node's memory grows by: Go's heap and stacks
	// for eight connections, with much room. Unbounded, it would be the answers to
	// all that was written: 1 MiB for each 40 bytes.
	unreadMemoryMax = 96 << 20
)

// TestUnread_ClientThatNeverReadsIsHeldBack: a node produces no more answers than a client
// reads, and other clients do not notice (I7).
func TestUnread_ClientThatNeverReadsIsHeldBack(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	leader := c.WaitLeader()
	load := chaos.StartLoad(t, chaos.LoadOptions{Addrs: c.Addrs(), Callers: 4, Pause: 2 * time.Millisecond})
	load.WaitAnswer(t)
	before := rss(t, leader)

	written := make(chan int, unreadClients)
	for range unreadClients {
		conn, err := net.Dial("tcp", leader.HTTPAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { written <- pipeline(conn) }()
	}
	peak := before
	for got := 0; got < unreadClients; {
		select {
		case n := <-written:
			got++
			if n > unreadWriteMax {
				t.Errorf("a client that reads nothing could write %d bytes", n)
			}
			t.Logf("held back after %d bytes written", n)
		case <-time.After(50 * time.Millisecond):
			peak = max(peak, rss(t, leader))
		}
	}
	peak = max(peak, rss(t, leader))
	t.Logf("memory of the leader: %d KiB before, %d KiB at most", before>>10, peak>>10)
	if peak-before > unreadMemoryMax {
		t.Errorf("the leader's memory grew by %d bytes", peak-before)
	}
	load.WaitAnswer(t)
	load.End(t, 200, 0)
}

// pipeline writes requests until the node takes no more, and returns how many bytes it wrote.
func pipeline(conn net.Conn) (written int) {
	request := []byte("GET /timestamp?n=65536 HTTP/1.1\r\nHost: a\r\n\r\n")
	var block []byte
	for range 100 {
		block = append(block, request...)
	}
	for written <= unreadWriteMax {
		_ = conn.SetWriteDeadline(time.Now().Add(unreadQuiet))
		n, err := conn.Write(block)
		written += n
		if err != nil {
			break
		}
	}
	return written
}

func rss(t *testing.T, n *chaos.Node) int64 {
	t.Helper()
	size, err := n.Process().RSS()
	if err != nil {
		t.Fatal(err)
	}
	return size
}
