package peer

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/core/wire"
)

// patience is the longest wait for an event; only failing tests wait that long.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(parallel.Tests{M: m, N: 6}) }

// event is one call of Disconnected or Refused.
type event struct {
	peer    uint64
	by      wire.Side
	err     error
	refusal *wire.Refusal
}

// harness is a Transport with pumps and what it reported.
type harness struct {
	*Transport
	id           uint64
	addr         string
	connected    chan wire.Hello // once attached
	disconnected chan event
	refused      chan event
	received     chan *raftpb.Message

	mu     sync.Mutex
	hellos map[uint64]wire.Hello
	pumps  map[uint64]*pump
}

// newHarness starts a Transport on a loopback port. change may be nil.
func newHarness(t testing.TB, id uint64, change func(*Config)) *harness {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newHarnessOn(t, ln, id, change)
}

func newHarnessOn(t testing.TB, ln net.Listener, id uint64, change func(*Config)) *harness {
	t.Helper()
	h := &harness{
		id: id, addr: ln.Addr().String(),
		connected:    make(chan wire.Hello, 64),
		disconnected: make(chan event, 64),
		refused:      make(chan event, 64),
		received:     make(chan *raftpb.Message, 4096),
		hellos:       make(map[uint64]wire.Hello),
		pumps:        make(map[uint64]*pump),
	}
	cfg := Config{
		NodeID:   id,
		Listener: ln,
		Hello:    func() wire.Hello { return wire.Hello{ClusterID: 7, Session: id * 11, ClientAddr: "client.example:80"} },
		Attach:   h.attach,
		Connected: func(hello wire.Hello) {
			h.mu.Lock()
			h.hellos[hello.NodeID] = hello
			h.mu.Unlock()
		},
		Disconnected: func(peer uint64, err error) { put(h.disconnected, event{peer: peer, err: err}) },
		Refused: func(peer uint64, by wire.Side, r *wire.Refusal) {
			put(h.refused, event{peer: peer, by: by, refusal: r})
		},
	}
	if change != nil {
		change(&cfg)
	}
	h.Transport = New(cfg)
	t.Cleanup(func() { h.Close() })
	return h
}

// put drops v if ch is full: a refused dialer reports every attempt.
func put[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

// join makes nodes peers of each other and waits until all are connected.
func join(t testing.TB, nodes ...*harness) {
	t.Helper()
	addrs := make(map[uint64][]string)
	for _, h := range nodes {
		addrs[h.id] = []string{h.addr}
	}
	for _, h := range nodes {
		h.SetPeers(addrs)
	}
	for _, h := range nodes {
		for range len(nodes) - 1 {
			await.Receive(t, "a connection", h.connected)
		}
	}
}

// raw is a peer that a test plays frame by frame.
type raw struct {
	t    testing.TB
	conn net.Conn
	dec  wire.Decoder
	buf  []byte
}

func newRaw(t testing.TB, conn net.Conn) *raw {
	t.Cleanup(func() { conn.Close() })
	return &raw{t: t, conn: conn, buf: make([]byte, 4096)}
}

func dialRaw(t testing.TB, addr string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return newRaw(t, conn)
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// read returns the next frame other than a ping, or the error that ended the connection.
func (r *raw) read() (wire.Frame, error) {
	for {
		f, ok, err := r.dec.Next()
		switch {
		case err != nil:
			return f, err
		case ok && f.Type != wire.FramePing:
			return f, nil
		case ok:
			continue
		}
		n, err := r.conn.Read(r.buf)
		if n == 0 && err != nil {
			return wire.Frame{}, err
		}
		r.dec.Feed(r.buf[:n])
	}
}

func (r *raw) expect(want wire.FrameType) wire.Frame {
	r.t.Helper()
	f, err := r.read()
	if err != nil || f.Type != want {
		r.t.Fatalf("frame type %d, %v; want type %d", f.Type, err, want)
	}
	return f
}

// expectClosed fails unless the other side closes the connection without another frame.
func (r *raw) expectClosed() {
	r.t.Helper()
	if f, err := r.read(); err == nil {
		r.t.Fatalf("frame type %d; want the connection closed", f.Type)
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		r.t.Fatal("the connection stays open")
	}
}

// connect does the dialing side of a handshake as the given node.
func (r *raw) connect(id uint64) {
	r.t.Helper()
	r.write(hello(r.t, wire.FrameHello, wire.Hello{NodeID: id, Session: 99}))
	r.expect(wire.FrameWelcome)
	r.write(wire.AppendReady(nil))
}

func hello(t testing.TB, kind wire.FrameType, h wire.Hello) []byte {
	t.Helper()
	b, err := wire.AppendHello(nil, kind, h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encoded(t testing.TB, m *raftpb.Message) []byte {
	t.Helper()
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func heartbeat(from, to uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(from), To: new(to),
		Term: new(uint64(3)), Commit: new(uint64(41)), RejectHint: new(uint64(11)), Context: []byte("\x01\x00\x00\x00\x00\x00\x00\x00"),
	}
}

func heartbeatResp(from, to uint64) *raftpb.Message {
	m := heartbeat(from, to)
	m.Type, m.Commit = raftpb.MsgHeartbeatResp.Enum(), nil
	return m
}

// appendOf is a MsgApp with one entry of size bytes.
func appendOf(from, to uint64, size int) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(from), To: new(to), Term: new(uint64(3)),
		LogTerm: new(uint64(3)), Index: new(uint64(8)), Commit: new(uint64(8)),
		Entries: []*raftpb.Entry{{Term: new(uint64(3)), Index: new(uint64(9)), Data: make([]byte, size)}},
	}
}

var someHello = wire.Hello{ClusterID: 7, NodeID: 2, Incarnation: 11, Boot: 3, Session: 99, ClientAddr: "node2:8080", Level: 1}

// frameOf returns a sound frame of any content.
func frameOf(kind wire.FrameType, payload string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(payload)+4))
	b = append(append(b, byte(kind)), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[4:], crc32.MakeTable(crc32.Castagnoli)))
}
