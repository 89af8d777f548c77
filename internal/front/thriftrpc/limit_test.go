package thriftrpc_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/thriftrpc"
)

// idCall is a call of get_id in framed binary, and idAnswer the length of its answer.
func idCall(t testing.TB, seq int32) []byte {
	t.Helper()
	return message(t, protocols["binary"], true, "get_id", thrift.CALL, seq, withAgent("me"))
}

const idAnswer = 34

// wantIDs reads the answers to n calls of get_id whose sequence numbers begin with seq.
func wantIDs(t testing.TB, c io.Reader, seq, n int32) {
	t.Helper()
	b := make([]byte, idAnswer)
	for i := range n {
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if got := int32(binary.BigEndian.Uint32(b[18:])); got != seq+i || b[22] != 10 {
			t.Fatalf("answer %d: %q", i, b)
		}
	}
}

func TestLimit_SlowMessagesAreCutAndHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *thriftrpc.Config) { c.Limits.ReadTimeout = time.Second })
	whole := string(idCall(t, 1))
	began := time.Now()
	for what, sent := range map[string]string{
		"a first byte":              "\x00",
		"a frame's length":          whole[:4],
		"part of a frame":           whole[:20],
		"part of a stream":          whole[4:20],
		"part of JSON":              `[1,"get_id",1,`,
		"part of a TLS hello":       "\x16\x03\x01",
		"a call and part of a call": whole + whole[:9],
	} {
		c := dial(t, s)
		send(t, c, []byte(sent))
		defer func() {
			if got := wantClosed(t, c, what); len(got) > idAnswer {
				t.Errorf("%s: answered %q", what, got)
			}
		}()
	}
	// One that sends a byte now and then is cut as well: the message counts, not the byte.
	drip := dial(t, s)
	ended := make(chan error, 1)
	go func() {
		for i := 0; ; i = min(i+1, len(whole)-2) {
			if _, err := drip.Write([]byte{whole[i]}); err != nil {
				ended <- err
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	c := dial(t, s)
	send(t, c, idCall(t, 1))
	wantIDs(t, c, 1, 1)
	if <-ended; time.Since(began) > patience/2 {
		t.Error("a message may drip for ever")
	}
	await.Until(t, "the slow ones are gone", func() bool { return s.server.Connections() == 1 })
}

func TestLimit_IdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *thriftrpc.Config) { c.Limits.IdleTimeout = time.Second })
	silent, once, secure := dial(t, s), dial(t, s), dialTLS(t, s)
	for _, c := range []net.Conn{once, secure} {
		send(t, c, idCall(t, 1))
		wantIDs(t, c, 1, 1)
	}
	for what, c := range map[string]net.Conn{"silent": silent, "after a call": once, "secure": secure} {
		if got := wantClosed(t, c, what); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
}

func TestLimit_ABusyConnectionOutlivesItsTimeouts(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	s := start(t, func(c *thriftrpc.Config) {
		c.Limits.IdleTimeout, c.Limits.ReadTimeout, c.Limits.WriteTimeout = timeout, timeout, timeout
	})
	plain, secure, call := dial(t, s), dialTLS(t, s), idCall(t, 1)
	for began := time.Now(); time.Since(began) < 5*timeout/2; {
		for _, c := range []net.Conn{plain, secure} {
			send(t, c, call[:9])
			time.Sleep(5 * time.Millisecond)
			send(t, c, call[9:])
			wantIDs(t, c, 1, 1)
		}
	}
}

func TestLimit_ConnectionsBeyondTheMostAreClosed(t *testing.T) {
	s := start(t, func(c *thriftrpc.Config) { c.Limits.ConnectionsMax = 2 })
	first, second := dial(t, s), dial(t, s)
	for _, c := range []net.Conn{first, second} {
		send(t, c, idCall(t, 1))
		wantIDs(t, c, 1, 1)
	}
	if got := wantClosed(t, dial(t, s), "the third"); len(got) > 0 {
		t.Errorf("the third was told %q", got)
	}
	_ = first.Close()
	await.Until(t, "the place is free again", func() bool {
		c := dial(t, s)
		defer c.Close()
		_, err := c.Write(idCall(t, 1))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, idAnswer))
		}
		return err == nil
	})
}

func TestLimit_LongMessages(t *testing.T) {
	s := start(t, func(c *thriftrpc.Config) { c.Limits.MessageBytesMax, c.Limits.StringBytesMax = 1000, 300 })
	padded := func(n int) arguments {
		return arguments{agent: &[]string{"me"}[0], extra: writeText(strings.Repeat("x", n))}
	}
	for name, protocol := range all() {
		for _, framed := range []bool{false, true} {
			for _, tt := range []struct {
				what  string
				bytes []byte
				want  string // in what is answered
			}{
				{"just short enough", message(t, protocol, framed, "get_id", thrift.CALL, 1, padded(300)), "get_id"},
				{"a long string", message(t, protocol, framed, "get_id", thrift.CALL, 1, padded(301)), "a string is too long"},
				{"a long name", message(t, protocol, framed, strings.Repeat("n", 301), thrift.CALL, 1, arguments{}), ""},
				{"a long message", message(t, protocol, framed, "get_id", thrift.CALL, 1, arguments{extra: writeText(strings.Repeat("x", 300), "y", strings.Repeat("x", 300), strings.Repeat("x", 300), strings.Repeat("x", 300))}), "the message is too long"},
			} {
				c := dial(t, s)
				send(t, c, tt.bytes)
				if err := c.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				got := wantClosed(t, c, tt.what)
				if framed && tt.what == "a long message" {
					tt.want = "" // nobody waits for such a frame
				}
				if !bytes.Contains(got, []byte(tt.want)) || len(got) > 0 != (tt.want != "") {
					t.Errorf("%s, %s, framed %v: answered %q, want %q", tt.what, name, framed, got, tt.want)
				}
			}
		}
	}
}

// TestLimit_WhoDoesNotReadIsNotRead sends calls and reads no answer.
func TestLimit_WhoDoesNotReadIsNotRead(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *thriftrpc.Config) {
		c.Limits.WriteTimeout, c.Limits.UnreadBytesMax, c.Limits.PipelineMax = 500*time.Millisecond, 4096, 16
	})
	c := dial(t, s)
	_ = c.(*net.TCPConn).SetReadBuffer(4096)
	var calls int64
	batch := bytes.Repeat(idCall(t, 1), 1000)
	for {
		n, err := c.Write(batch)
		calls += int64(n / len(idCall(t, 1)))
		if err != nil {
			break // cut by the server
		}
		if calls > 10_000_000 {
			t.Fatal("the server reads on and on")
		}
	}
	if made := s.ids.made.Load(); made == 0 || made >= calls {
		t.Errorf("%d ids for %d calls", made, calls)
	}
	await.Until(t, "it is gone", func() bool { return s.server.Connections() == 0 })
}

func TestLimit_UserAgentsThatObserveIsToldOf(t *testing.T) {
	s := start(t, func(c *thriftrpc.Config) { c.Limits.AgentsMax, c.Limits.AgentBytesMax = 2, 10 })
	c := dial(t, s)
	in := bytes.NewBuffer(nil)
	for _, agent := range []string{"a", "b", "c", "a", "d", "c", "abcdefghij", "abcdefghijk", "b", "b", "!", ""} {
		in.Write(message(t, protocols["binary"], true, "get_id", thrift.CALL, 1, withAgent(agent)))
	}
	in.Write(message(t, protocols["binary"], true, "get_worker_id", thrift.CALL, 1, arguments{}))
	in.Write(message(t, protocols["binary"], true, "get_worse", thrift.CALL, 1, arguments{}))
	in.Write(message(t, protocols["binary"], true, "get_id", thrift.ONEWAY, 1, arguments{}))
	in.WriteString("\x00\x00\x00\x13\x80\x01\x00\x01\x00\x00\x00\x06get_id\x00\x00\x00\x01\xff") // no message
	send(t, c, in.Bytes())
	_ = c.(*net.TCPConn).CloseWrite()
	wantClosed(t, c, "after all calls")
	want := map[[3]string]int{
		{"get_id", "a", "ok"}: 2, {"get_id", "b", "ok"}: 3, {"get_id", "other", "ok"}: 7,
		{"get_worker_id", "", "ok"}: 1,
		{"other", "", "not_found"}:  1, {"other", "", "invalid_argument"}: 2,
	}
	if got := fmt.Sprint(s.seen.counts); got != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestTLS_WithoutACertificateIsClosed(t *testing.T) {
	s := start(t, func(c *thriftrpc.Config) { c.TLS = nil })
	if err := dialTLS(t, s).(*tls.Conn).Handshake(); err == nil {
		t.Error("there was a handshake")
	}
}

func TestTLS_InsideOfTLSIsClosed(t *testing.T) {
	s := start(t)
	c := dialTLS(t, s)
	send(t, c, []byte{0x16, 3, 1})
	if got := wantClosed(t, c, "TLS in TLS"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestTLS_ClientsThatOfferOtherProtocolsAreServed(t *testing.T) {
	s := start(t)
	trusted := trust(t)
	trusted.NextProtos = []string{"thrift"}
	c := tls.Client(dial(t, s), trusted)
	// A byte at a time, so that a hello that comes in pieces is put together.
	send(t, c, idCall(t, 5))
	wantIDs(t, c, 5, 1)
}

// countingListener counts the reads and writes of all its connections.
type countingListener struct {
	net.Listener
	reads, writes atomic.Int64
}

type countingConn struct {
	net.Conn
	l *countingListener
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countingConn{c, l}, err
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.l.reads.Add(1)
	}
	return n, err
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.l.writes.Add(1)
	return c.Conn.Write(b)
}

func TestPipeline_HasOneWriteForEachRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := &countingListener{Listener: l}
	s := startOn(t, counted)
	c := dial(t, s)
	const rounds, depth = 50, 100
	var in []byte
	for i := range int32(depth) {
		in = append(in, idCall(t, i)...)
	}
	for range rounds {
		send(t, c, in)
		wantIDs(t, c, 0, depth)
	}
	reads, writes := counted.reads.Load(), counted.writes.Load()
	if writes > reads || writes > 3*rounds+10 {
		t.Errorf("%d writes and %d reads for %d calls in %d pieces", writes, reads, rounds*depth, rounds)
	}
}

// TestPipeline_OfManyThreads has goroutines that share a connection.
func TestPipeline_OfManyThreads(t *testing.T) {
	const threads, calls = 16, 200
	s := start(t)
	for what, c := range map[string]net.Conn{"plain": dial(t, s), "TLS": dialTLS(t, s)} {
		lock := make(chan []int32, 1)
		lock <- nil
		for n := range int32(threads) {
			go func() {
				for i := range int32(calls) {
					sent := <-lock
					seq := n*calls + i
					if _, err := c.Write(idCall(t, seq)); err != nil {
						t.Error(err)
					}
					lock <- append(sent, seq)
				}
			}()
		}
		var answered []int32
		var last uint64
		b := make([]byte, idAnswer)
		for range threads * calls {
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatalf("%s: %v after %d answers", what, err, len(answered))
			}
			answered = append(answered, int32(binary.BigEndian.Uint32(b[18:])))
			if id := binary.BigEndian.Uint64(b[25:]); id <= last {
				t.Errorf("%s: id %d after %d", what, id, last)
			} else {
				last = id
			}
		}
		await.Until(t, "all have noted what they sent", func() bool {
			sent := <-lock
			lock <- sent
			return len(sent) == len(answered)
		})
		if sent := <-lock; fmt.Sprint(sent) != fmt.Sprint(answered) {
			t.Errorf("%s: the answers are in another order than the calls", what)
		}
	}
}
