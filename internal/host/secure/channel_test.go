package secure

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

// channelPair returns both sides of TLS over TCP, after their handshake.
func channelPair(t *testing.T) (client, server *Channel) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { _ = c.Close() })
	}
	client = Client(a, &tls.Config{InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	var first [1]byte
	if _, err := io.ReadFull(b, first[:]); err != nil || first[0] != 0x16 {
		t.Fatal(err, first)
	}
	server = Server(b, first[:], &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	if !client.Heard() {
		t.Error("the client has heard nothing")
	}
	return client, server
}

// taker is a handler that keeps what it is given.
type taker struct {
	mu   sync.Mutex
	got  []byte
	more chan struct{}
}

func (h *taker) Data(_ *loop.Conn, b []byte) (int, error) {
	h.mu.Lock()
	h.got = append(h.got, b...)
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (h *taker) Closed(*loop.Conn, error) {}

func (h *taker) bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.got)
}

// TestChannel_NothingIsLostOnTheWayIntoTheLoop: what was sent before the channel enters the loop is
// in records that nobody has read, in one that was read in part, or was read; and what is sent
// after it arrives, too, in both directions.
func TestChannel_NothingIsLostOnTheWayIntoTheLoop(t *testing.T) {
	for _, read := range []int{0, 1, 5, 7, 10, 20} {
		for _, serverEnters := range []bool{true, false} {
			far, near := channelPair(t)
			if !serverEnters {
				far, near = near, far
			}
			for _, record := range []string{"hello", "world", "again12345"} {
				if _, err := far.Write([]byte(record)); err != nil {
					t.Fatal(err)
				}
			}
			before := make([]byte, read)
			for n := 0; n < read; { // in pieces of records
				m, err := near.Read(before[n:min(n+3, read)])
				if err != nil {
					t.Fatal(err)
				}
				n += m
			}
			l, err := loop.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			h := &taker{more: make(chan struct{}, 1)}
			conn, err := l.Attach(near.NetConn(), nil, loop.Limits{}, h)
			if err != nil {
				t.Fatal(err)
			}
			near.Enter(conn)
			conn.Write([]byte("from the loop"))
			if _, err := far.Write(bytes.Repeat([]byte("x"), 40_000)); err != nil {
				t.Fatal(err)
			}
			want := "helloworldagain12345" + string(bytes.Repeat([]byte("x"), 40_000))
			for deadline := time.Now().Add(time.Minute); len(before)+len(h.bytes()) < len(want) && time.Now().Before(deadline); {
				l.Flush()
				if err := l.Wait(10 * time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(before) + string(h.bytes()); got != want {
				t.Fatalf("%d read before: got %d bytes, %.60q", read, len(got), got)
			}
			back := make([]byte, len("from the loop"))
			if _, err := io.ReadFull(far, back); err != nil || string(back) != "from the loop" {
				t.Errorf("%q, %v", back, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestChannel_NotHeardWhereNobodyAnswers(t *testing.T) {
	a, b := net.Pipe()
	c := Client(a, &tls.Config{InsecureSkipVerify: true})
	go func() {
		_, _ = b.Read(make([]byte, 1))
		_ = b.Close()
	}()
	if err := c.Handshake(); err == nil || c.Heard() {
		t.Errorf("%v, heard %v", err, c.Heard())
	}
	_ = a.Close()
}
