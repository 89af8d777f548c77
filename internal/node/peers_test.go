package node

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// attached is a connection that a transport has handed over.
type attached struct {
	nc     net.Conn
	stream *peer.Stream
}

// newPeerConns returns both sides of a connection between nodes 1 and 2, in the loops of their cores, which the caller turns.
func newPeerConns(t *testing.T) (one, two *peerConn) {
	t.Helper()
	addrs, conns := map[uint64][]string{}, map[uint64]chan attached{}
	transports := map[uint64]*peer.Transport{}
	for _, id := range []uint64{1, 2} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ch, taken := make(chan attached, 1), new(atomic.Bool)
		addrs[id], conns[id] = []string{ln.Addr().String()}, ch
		transports[id] = peer.New(peer.Config{
			NodeID: id, Listener: ln,
			Hello: func() wire.Hello { return wire.Hello{ClusterID: 7, Session: id, ClientAddr: "client.example:80"} },
			Attach: func(nc net.Conn, s *peer.Stream) (func(error), error) {
				if taken.Swap(true) { // the test is over, and they connect again
					return nil, errStopped
				}
				ch <- attached{nc, s}
				return func(error) {}, nil
			},
			Connected: func(wire.Hello) {}, Disconnected: func(uint64, error) {}, Refused: func(uint64, wire.Side, *wire.Refusal) {},
		})
	}
	for _, tr := range transports {
		tr.SetPeers(addrs)
	}
	ends := map[uint64]*peerConn{}
	for id := range transports {
		a := await.Receive(t, "a connection", conns[id])
		l, err := loop.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &core{loop: l, node: &Node{cfg: Config{Clock: SystemClock{}}}}
		c.peers.conns = map[uint64]*peerConn{}
		ends[id] = &peerConn{core: c, stream: a.stream}
		ends[id].open(a.nc)
	}
	t.Cleanup(func() {
		for id, p := range ends {
			if err := errors.Join(p.core.loop.Close(), transports[id].Close()); err != nil {
				t.Error(err)
			}
		}
	})
	return ends[1], ends[2]
}

// turn turns the loops of connections once.
func turn(t *testing.T, list ...*peerConn) {
	t.Helper()
	for _, p := range list {
		p.core.loop.Flush()
		if err := p.core.loop.Wait(time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// message returns one of node 1 for node 2 with size bytes of data.
func message(kind raftpb.MessageType, size int) *raftpb.Message {
	data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	m := &raftpb.Message{Type: kind.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(3))}
	switch kind {
	case raftpb.MsgSnap:
		m.Snapshot = &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(40)), Term: new(uint64(2))}}
	case raftpb.MsgApp:
		m.Index, m.Entries = new(uint64(8)), []*raftpb.Entry{{Index: new(uint64(9)), Term: new(uint64(2)), Data: data}}
	}
	return m
}

// arrive turns the loops until node 2 has n messages.
func arrive(t *testing.T, one, two *peerConn, n int) []*raftpb.Message {
	t.Helper()
	for began := time.Now(); len(two.core.next.Messages) < n; turn(t, one, two) {
		if time.Since(began) > await.Timeout {
			t.Fatalf("%d messages, want %d", len(two.core.next.Messages), n)
		}
	}
	return two.core.next.Messages
}

// A snapshot of the largest table of timelines does not fit a frame.
func TestPeerConn_SendsALargeSnapshotOnce(t *testing.T) {
	one, two := newPeerConns(t)
	snapshot, vote := message(raftpb.MsgSnap, 8<<20), message(raftpb.MsgVote, 0)
	one.send([]*raftpb.Message{snapshot, vote})
	one.send([]*raftpb.Message{snapshot, vote}) // as the replica does while that is not acknowledged
	got := arrive(t, one, two, 3)
	if len(got) != 3 || !proto.Equal(got[0], snapshot) || !proto.Equal(got[1], vote) || !proto.Equal(got[2], vote) {
		t.Fatalf("%d messages", len(got))
	}
	one.send([]*raftpb.Message{snapshot})
	if got = arrive(t, one, two, 4); !proto.Equal(got[3], snapshot) {
		t.Error("a snapshot after the first one")
	}
	if d := one.core.peers.dropped; d != (droppedCount{}) {
		t.Errorf("dropped: %+v", d)
	}
}

// The largest snapshot delays other messages, but none is dropped, and what the peer sends is heard meanwhile.
func TestPeerConn_SendsOtherMessagesBehindTheLargestSnapshot(t *testing.T) {
	one, two := newPeerConns(t)
	snapshot, vote := message(raftpb.MsgSnap, wire.MessageSizeMax-1<<10), message(raftpb.MsgVote, 0)
	one.send([]*raftpb.Message{snapshot, vote})
	if d := one.core.peers.dropped; d != (droppedCount{}) || one.conn.Choked() || one.full() {
		t.Errorf("dropped: %+v, choked: %v, full: %v", d, one.conn.Choked(), one.full())
	}
	if got := arrive(t, one, two, 2); !proto.Equal(got[0], snapshot) || !proto.Equal(got[1], vote) {
		t.Error("other messages have arrived")
	}
}

// sealing is the layer of a connection that leaves everything as it is.
type sealing struct{ conn *loop.Conn }

func (sealing) Open(dst, raw []byte) ([]byte, error) { return append(dst, raw...), nil }
func (s sealing) Seal(plain []byte) error            { s.conn.Send(plain); return nil }
func (sealing) Partial() bool                        { return false }
func (sealing) End()                                 {}
func (sealing) Detach(net.Conn, []byte) net.Conn     { return nil }

func TestPeerConn_CountsWhatIsEncryptedAndNotSent(t *testing.T) {
	one, _ := newPeerConns(t)
	one.conn.SetLayer(sealing{one.conn}, nil)
	for range 40 {
		one.send([]*raftpb.Message{message(raftpb.MsgApp, 1<<20)})
		one.core.loop.Flush() // node 2 does not read
	}
	if n := one.conn.Unwritten(); n < peerOutputMax || n > peerOutputMax+2<<20 || one.core.peers.dropped.outputFull == 0 {
		t.Errorf("%d bytes wait, dropped: %+v", n, one.core.peers.dropped)
	}
}

// A founder that gets another list of members stops, so a node must not say that it has none while it stops.
func TestHello_OfAStoppingNodeIsNotEmpty(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Start(Config{
		NodeID: 1, Peers: map[uint64]string{1: l.Addr().String(), 2: "127.0.0.1:1"}, PeerListener: l, ClientAddr: "client1:1", DataDir: t.TempDir(),
		EpochInterval: 100 * time.Millisecond, ReservationsMissedMax: 100, RequestsMax: 1000, Tick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Metrics: telemetry.NewMetrics("test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	hello := n.core.hello()
	before := hello()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if after := hello(); after.Founders != "1,2" || after.Incarnation != before.Incarnation || after.Session != before.Session || before.Founders != "1,2" {
		t.Errorf("before: %+v\nafter: %+v", before, after)
	}
}
