package peer

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
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
	h, version, err := ParseHello(r.expect(FrameHello).Payload)
	if err != nil || version != want || h.NodeID != 2 {
		r.t.Fatalf("a hello of version %d, %+v, %v; want version %d", version, h, err, want)
	}
}

// welcome answers a hello as node 1.
func (r *raw) welcome(version uint16) {
	r.t.Helper()
	b, err := AppendHello(nil, FrameWelcome, Hello{NodeID: 1, Session: 99, Level: 3, Stage: 2, Founders: "1,2"}, version)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(b)
	r.expect(FrameReady)
}

// refuseVersion answers a hello of version 2 as the first release does, and closes.
func (r *raw) refuseVersion() {
	r.t.Helper()
	r.write(AppendRefusal(nil, Refusalf(RefusedVersion, "the refused node speaks peer protocol version 2, the refusing node version 1")))
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
	two.SetPeers(map[uint64]string{1: ln.Addr().String(), 2: two.addr})
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
		if want := (Hello{NodeID: 1, Session: 99, Level: 3, Stage: 2, Founders: "1,2"}); version == 2 && h != want || version == 1 && h != inVersion1(want) {
			t.Errorf("in version %d node 2 heard %+v", version, h)
		}
		r.write(encoded(t, heartbeat(1, 2)))
		if got := await(t, "a message", two.received); !proto.Equal(got, heartbeat(1, 2)) {
			t.Errorf("in version %d node 2 received %v", version, got)
		}
		two.send(1, heartbeatResp(2, 1))
		r.expect(FrameHeartbeatResp)
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
	two.SetPeers(map[uint64]string{1: ln.Addr().String(), 2: two.addr})
	for _, version := range []uint16{2, 1} {
		r := acceptRaw(t, ln)
		r.expectHello(version)
		r.refuseVersion()
	}
	if e := await(t, "a refusal", two.refused); e.peer != 1 || e.by != Remote || e.refusal.Code != RefusedVersion {
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
	two.SetPeers(map[uint64]string{1: ln.Addr().String(), 2: two.addr})
	for _, code := range []RefusalCode{RefusedFormed, RefusedLevel, RefusedHello} {
		r := acceptRaw(t, ln)
		r.expectHello(2)
		r.write(AppendRefusal(nil, Refusalf(code, "not now")))
		r.conn.Close()
		if e := await(t, "a refusal", two.refused); e.refusal.Code != code {
			t.Errorf("refused: %+v", e)
		}
	}
}

func TestHandshake_AnswersInTheVersionOfTheDialer(t *testing.T) {
	for _, version := range []uint16{1, 2} {
		own := func() Hello { return Hello{NodeID: 1, Session: 11, Level: 3, Stage: 2} }
		dialer, acceptor := NewDialer(ownHello(2), 1, nil, version), NewAcceptor(own, nil)
		dialErr, acceptErr := talk(t, dialer, acceptor)
		if dialErr != nil || acceptErr != nil || dialer.Version() != version || acceptor.Version() != version {
			t.Fatalf("version %d: %v, %v; dialer %d, acceptor %d", version, dialErr, acceptErr, dialer.Version(), acceptor.Version())
		}
		if told := dialer.Peer().Stage == 2 && dialer.Peer().Level == 3; told != (version == 2) {
			t.Errorf("version %d: the dialer heard %+v", version, dialer.Peer())
		}
	}
}

func TestHandshake_RefusesAWelcomeInAnotherVersion(t *testing.T) {
	dialer := NewDialer(ownHello(2), 1, nil, 1)
	if _, err := dialer.Start(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := dialer.Step(frameIn(t, hello(t, FrameWelcome, Hello{NodeID: 1})), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("%v", err)
	}
}

// updates returns the stream of node 1 from node 2 in a version, and the updates it gets.
func updates(version uint16) (*Stream, *[]Hello) {
	s := &Stream{hello: Hello{NodeID: 2, Session: 5}, version: version, self: 1}
	told := &[]Hello{}
	s.OnUpdate(func(h Hello) { *told = append(*told, h) })
	return s, told
}

func TestStream_TellsUpdates(t *testing.T) {
	two := &Stream{hello: Hello{NodeID: 1}, version: Version, self: 2}
	list := []Hello{someHello, someHello}
	list[1].Stage, list[1].Founders, list[1].ClusterID = 3, "", 77
	var wire []byte
	for _, h := range list {
		h.NodeID = 0 // is filled in
		var err error
		if wire, err = AppendMessage(two.AppendUpdate(wire, h), heartbeat(2, 1), promiseLevel); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 100, len(wire)} {
		s, told := updates(Version)
		messages := 0
		for part := range slices.Chunk(wire, size) {
			got, err := s.Parse(nil, part)
			if err != nil {
				t.Fatal(err)
			}
			messages += len(got)
		}
		if !slices.Equal(*told, list) || messages != len(list) {
			t.Errorf("parts of %d: %d messages and %+v", size, messages, *told)
		}
	}
	s, _ := updates(Version)
	s.OnUpdate(nil)
	if got, err := s.Parse(nil, wire); err != nil || len(got) != len(list) {
		t.Errorf("without a callback: %d messages, %v", len(got), err)
	}
}

// To an older peer, the frame would violate the protocol.
func TestStream_TellsAnOlderPeerNoUpdates(t *testing.T) {
	s, _ := updates(versionFixed)
	if b := s.AppendUpdate([]byte("before"), someHello); string(b) != "before" {
		t.Errorf("%q", b)
	}
}

func TestStream_RefusesUpdatesOfAnybodyElse(t *testing.T) {
	of := func(change func(*Hello)) []byte {
		h := Hello{NodeID: 2, Session: 5}
		change(&h)
		return hello(t, FrameUpdate, h)
	}
	whole := of(func(*Hello) {})
	for name, wire := range map[string][]byte{
		"another node":    of(func(h *Hello) { h.NodeID = 3 }),
		"this node":       of(func(h *Hello) { h.NodeID = 1 }),
		"another process": of(func(h *Hello) { h.Session = 6 }),
		"nothing":         sealFrame(openFrame(nil, FrameUpdate), 0),
		"half a hello":    sealFrame(append(openFrame(nil, FrameUpdate), whole[lengthSize+typeSize:len(whole)/2]...), 0),
	} {
		s, told := updates(Version)
		if _, err := s.Parse(nil, wire); !errors.Is(err, ErrProtocol) || len(*told) > 0 {
			t.Errorf("%s: %v, told %+v", name, err, *told)
		}
	}
}

// A later version may send frames of types from 128 on to any peer.
func TestStream_SkipsOnlyOptionalFrames(t *testing.T) {
	for kind := range 256 {
		known := kind > 0 && kind <= int(FrameUpdate) || kind == int(FrameClockAsk) || kind == int(FrameClockTold)
		if known {
			continue
		}
		for _, payload := range []string{"", "of a later version"} {
			wire := sealFrame(append(openFrame(nil, FrameType(kind)), payload...), 0)
			got, err := newStream().Parse(nil, append(wire, encoded(t, heartbeat(2, 1))...))
			if skipped := err == nil && len(got) == 1; skipped != (kind >= 128) || !skipped && !errors.Is(err, ErrProtocol) {
				t.Errorf("frame type %d with %q: %d messages, %v", kind, payload, len(got), err)
			}
		}
	}
}
