package peer

import (
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/wire"
)

// acceptRaw takes the next connection of a listener.
func acceptRaw(t *testing.T, ln net.Listener) *raw {
	t.Helper()
	if err := ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return newRaw(t, conn)
}

// expectHello reads a hello and expects its version.
func (r *raw) expectHello(want uint16) {
	r.t.Helper()
	h, version, err := wire.ParseHello(r.expect(wire.FrameHello).Payload)
	if err != nil || version != want || h.NodeID != 2 {
		r.t.Fatalf("a hello of version %d, %+v, %v; want version %d", version, h, err, want)
	}
}

// welcome answers a hello as node 1.
func (r *raw) welcome(version uint16) {
	r.t.Helper()
	b, err := wire.AppendHello(nil, wire.FrameWelcome, wire.Hello{NodeID: 1, Session: 99, Level: 3, Stage: 2, Founders: "1,2"}, version)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(b)
	r.expect(wire.FrameReady)
}

// refuseVersion answers a hello of version 2 as the first release does, and closes.
func (r *raw) refuseVersion() {
	r.t.Helper()
	r.write(wire.AppendRefusal(nil, wire.Refusalf(wire.RefusedVersion, "the refused node speaks peer protocol version 2, the refusing node version 1")))
	r.conn.Close()
}

// Node 2 dials a node of the first release, which refuses any other version. After each
// disconnection the other side may have another version.
func TestTransport_SpeaksTheVersionOfAnOlderPeer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	two := newHarness(t, 2, nil)
	two.SetPeers(map[uint64][]string{1: {ln.Addr().String()}, 2: {two.addr}})
	for _, version := range []uint16{1, 1, 2, 1} {
		r := acceptRaw(t, ln)
		r.expectHello(2)
		if version == 1 {
			r.refuseVersion()
			r = acceptRaw(t, ln)
			r.expectHello(1)
		}
		r.welcome(version)
		h := await(t, "a connection", two.connected)
		if want := (wire.Hello{NodeID: 1, Session: 99, Level: 3, Stage: 2, Founders: "1,2"}); version == 2 && h != want || version == 1 && h != (wire.Hello{NodeID: 1, Session: 99, Level: 1}) {
			t.Errorf("in version %d node 2 heard %+v", version, h)
		}
		r.write(encoded(t, heartbeat(1, 2)))
		if got := await(t, "a message", two.received); !proto.Equal(got, heartbeat(1, 2)) {
			t.Errorf("in version %d node 2 received %v", version, got)
		}
		two.send(1, heartbeatResp(2, 1))
		r.expect(wire.FrameHeartbeatResp)
		r.conn.Close()
		await(t, "its end", two.disconnected)
	}
	select {
	case e := <-two.refused:
		t.Errorf("refused: %+v", e)
	default:
	}
}

func TestTransport_ReportsThatNoVersionIsCommon(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	two := newHarness(t, 2, nil)
	two.SetPeers(map[uint64][]string{1: {ln.Addr().String()}, 2: {two.addr}})
	for _, version := range []uint16{2, 1} {
		r := acceptRaw(t, ln)
		r.expectHello(version)
		r.refuseVersion()
	}
	if e := await(t, "a refusal", two.refused); e.peer != 1 || e.by != wire.Remote || e.refusal.Code != wire.RefusedVersion {
		t.Errorf("refused: %+v", e)
	}
}

// An older version could lack the field that resolves the refusal.
func TestTransport_BeginsWithItsOwnVersionAfterAnyOtherRefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	two := newHarness(t, 2, nil)
	two.SetPeers(map[uint64][]string{1: {ln.Addr().String()}, 2: {two.addr}})
	for _, code := range []wire.RefusalCode{wire.RefusedFormed, wire.RefusedLevel, wire.RefusedHello} {
		r := acceptRaw(t, ln)
		r.expectHello(2)
		r.write(wire.AppendRefusal(nil, wire.Refusalf(code, "not now")))
		r.conn.Close()
		if e := await(t, "a refusal", two.refused); e.refusal.Code != code {
			t.Errorf("refused: %+v", e)
		}
	}
}
