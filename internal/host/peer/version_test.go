package peer

import (
	"net"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
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

func TestTransport_ReportsAnotherVersion(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	two := newHarness(t, 2, nil)
	two.SetPeers(map[uint64][]string{1: {ln.Addr().String()}, 2: {two.addr}})
	r := acceptRaw(t, ln)
	r.expect(wire.FrameHello)
	r.write(wire.AppendRefusal(nil, wire.Refusalf(wire.RefusedVersion, "the refused node speaks peer protocol version 3, the refusing node version 4")))
	r.conn.Close()
	if e := await.Receive(t, "a refusal", two.refused); e.peer != 1 || e.by != wire.Remote || e.refusal.Code != wire.RefusedVersion {
		t.Errorf("refused: %+v", e)
	}
}
