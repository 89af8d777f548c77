package peer

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/wire"
)

func TestTransport_ConnectsNodesInBothDirections(t *testing.T) {
	one, two, three := newHarness(t, 1, nil), newHarness(t, 2, nil), newHarness(t, 3, nil)
	join(t, one, two, three)
	for _, c := range []struct {
		from, to *harness
		m        *raftpb.Message
	}{
		{one, two, heartbeat(1, 2)}, {two, one, heartbeatResp(2, 1)},
		{three, one, appendOf(3, 1, 1<<20)}, {one, three, appendOf(1, 3, 3<<20)}, {two, three, appendOf(2, 3, 0)},
	} {
		c.from.send(c.to.id, c.m)
		if got := await.Receive(t, "a message", c.to.received); !proto.Equal(got, c.m) {
			t.Fatalf("got %v, want %v", got, c.m)
		}
	}
	for i, s := range two.Peers() {
		if want := []uint64{1, 3}[i]; s.ID != want || !s.Connected || s.Refusal != nil || s.Since.IsZero() {
			t.Errorf("status %+v, want peer %d connected", s, want)
		}
	}
}

// Several peers, each with its own writer, may get the same entry: encoding must not
// write to it.
func TestTransport_SharesEntriesBetweenPeers(t *testing.T) {
	one, two, three := newHarness(t, 1, nil), newHarness(t, 2, nil), newHarness(t, 3, nil)
	join(t, one, two, three)
	m2, m3 := appendOf(1, 2, 100), appendOf(1, 3, 100)
	m3.Entries = m2.Entries
	for range 100 {
		one.send(2, m2)
		one.send(3, m3)
	}
	for range 100 {
		await.Receive(t, "a message", two.received)
		await.Receive(t, "a message", three.received)
	}
}

func TestTransport_TellsBothSidesOfARefusal(t *testing.T) {
	refuse := func(cfg *Config) {
		cfg.Admit = func(h wire.Hello) *wire.Refusal { return wire.Refusalf(wire.RefusedStale, "index %d", h.LastIndex) }
	}
	for name, change := range map[string][2]func(*Config){
		"acceptor refuses": {refuse, nil}, "dialer refuses": {nil, refuse},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := newHarness(t, 1, change[0]), newHarness(t, 2, change[1])
			addrs := map[uint64][]string{1: {one.addr}, 2: {two.addr}}
			one.SetPeers(addrs)
			two.SetPeers(addrs)
			a, b := await.Receive(t, "a refusal", one.refused), await.Receive(t, "a refusal", two.refused)
			if a.peer != 2 || b.peer != 1 || a.by == b.by || a.refusal.Code != wire.RefusedStale || *a.refusal != *b.refusal {
				t.Fatalf("node 1: %+v, node 2: %+v", a, b)
			}
			await.Receive(t, "another attempt", two.refused)
			if s := two.Peers()[0]; s.Connected || s.Refusal.Code != wire.RefusedStale || s.RefusedBy != b.by {
				t.Fatalf("status %+v", s)
			}
		})
	}
}

func TestTransport_AdmitsOncePersuaded(t *testing.T) {
	var willing atomic.Bool
	one := newHarness(t, 1, func(cfg *Config) {
		cfg.Admit = func(wire.Hello) *wire.Refusal {
			if willing.Load() {
				return nil
			}
			return wire.Refusalf(wire.RefusedWrongCluster, "not yet")
		}
	})
	two := newHarness(t, 2, nil)
	addrs := map[uint64][]string{1: {one.addr}, 2: {two.addr}}
	one.SetPeers(addrs)
	two.SetPeers(addrs)
	await.Receive(t, "a refusal", two.refused)
	willing.Store(true)
	await.Receive(t, "the connection", one.connected)
	await.Receive(t, "the connection", two.connected)
	if s := two.Peers()[0]; !s.Connected || s.Refusal != nil {
		t.Fatalf("status %+v", s)
	}
}

func TestTransport_RefusesItself(t *testing.T) {
	h := newHarness(t, 2, nil)
	h.SetPeers(map[uint64][]string{1: {h.addr}})
	seen := make(map[wire.Side]bool)
	for len(seen) < 2 {
		e := await.Receive(t, "a refusal", h.refused)
		if e.refusal.Code != wire.RefusedWrongNode {
			t.Fatalf("%+v", e)
		}
		seen[e.by] = true
	}
}

func TestTransport_RefusesNonMembersAndOtherVersions(t *testing.T) {
	h := newHarness(t, 1, nil)
	h.SetPeers(map[uint64][]string{2: nil})
	for code, b := range map[wire.RefusalCode][]byte{
		wire.RefusedNotMember: hello(t, wire.FrameHello, wire.Hello{NodeID: 3}),
		wire.RefusedVersion:   frameOf(wire.FrameHello, "isotone\x00\x00\x09"),
	} {
		r := dialRaw(t, h.addr)
		r.write(b)
		got, err := wire.ParseRefusal(r.expect(wire.FrameRefusal).Payload)
		if err != nil || got.Code != code {
			t.Errorf("got %v, %v; want %s", got, err, code)
		}
		r.expectClosed()
		if e := await.Receive(t, "Refused", h.refused); e.by != wire.Self || e.refusal.Code != code {
			t.Errorf("reported %+v", e)
		}
	}
}

func TestTransport_DisconnectsAPeerThatBreaksTheProtocol(t *testing.T) {
	h := newHarness(t, 1, nil)
	h.SetPeers(map[uint64][]string{2: nil})
	damaged := encoded(t, heartbeat(2, 1))
	damaged[20]++
	local := &raftpb.Message{Type: raftpb.MsgHup.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1))}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"forged sender", encoded(t, heartbeat(3, 1)), wire.ErrProtocol},
		{"other receiver", encoded(t, heartbeat(2, 3)), wire.ErrProtocol},
		{"local message", encoded(t, local), wire.ErrProtocol},
		{"second hello", hello(t, wire.FrameHello, wire.Hello{NodeID: 2}), wire.ErrProtocol},
		{"bad checksum", damaged, wire.ErrChecksum},
		{"garbage", []byte("GET / HTTP/1.1\r\n\r\n"), wire.ErrFrameSize},
		{"oversized", []byte{0x00, 0x40, 0x00, 0x01}, wire.ErrFrameSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := dialRaw(t, h.addr)
			r.connect(2)
			await.Receive(t, "the connection", h.connected)
			r.write(c.b)
			if e := await.Receive(t, "the disconnection", h.disconnected); e.peer != 2 || !errors.Is(e.err, c.want) {
				t.Fatalf("disconnected from %d: %v", e.peer, e.err)
			}
			r.expectClosed()
		})
	}
	if len(h.received) > 0 {
		t.Error("one of them was delivered")
	}
}

func TestTransport_ClosesOnGarbageBeforeTheHandshake(t *testing.T) {
	h := newHarness(t, 1, nil)
	h.SetPeers(map[uint64][]string{2: nil})
	for _, b := range [][]byte{
		[]byte("get / HTTP/1.1\r\n\r\n"), encoded(t, heartbeat(2, 1)), frameOf(wire.FrameHello, "nonsense"),
		append(make([]byte, 0), 0, 0, 0x20, 0), // allowed later, too large for a hello
	} {
		r := dialRaw(t, h.addr)
		r.write(b)
		r.expectClosed()
	}
	if len(h.connected) > 0 || len(h.received) > 0 {
		t.Error("one of them counts as connected")
	}
}

// Somebody who takes it for a port for clients is told, also if peers need TLS, and learns nothing of this node.
func TestTransport_TellsClientsOfHTTPThatTheyAreWrong(t *testing.T) {
	for name, change := range map[string]func(*Config){"plaintext": nil, "TLS": secured(&fakeSecurity{id: 1}, false)} {
		h := newHarness(t, 1, change)
		response, err := http.Post("http://"+h.addr+"/admin/members", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(name, err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != 421 || response.Header.Get(HTTPField) != "peer" || string(body) != httpBody {
			t.Errorf("%s: %d %v %s, %v", name, response.StatusCode, response.Header, body, err)
		}
		await.Until(t, "the connection ends", func() bool { return len(h.inbound) == 0 })
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestTransport_AcceptsFramesByteByByte(t *testing.T) {
	h := newHarness(t, 1, nil)
	h.SetPeers(map[uint64][]string{2: nil})
	r := dialRaw(t, h.addr)
	drip := func(b []byte) {
		for i := range b {
			r.write(b[i : i+1])
		}
	}
	drip(hello(t, wire.FrameHello, someHello))
	r.expect(wire.FrameWelcome)
	drip(wire.AppendReady(nil))
	drip(encoded(t, appendOf(2, 1, 10)))
	if got := await.Receive(t, "the message", h.received); !proto.Equal(got, appendOf(2, 1, 10)) {
		t.Fatalf("got %v", got)
	}
	if got := await.Receive(t, "the hello", h.connected); got != someHello {
		t.Fatalf("hello %+v", got)
	}
}

func TestTransport_DeliversWhatCameWithTheReadyFrame(t *testing.T) {
	h := newHarness(t, 1, nil)
	h.SetPeers(map[uint64][]string{2: nil})
	r := dialRaw(t, h.addr)
	r.write(hello(t, wire.FrameHello, someHello))
	r.expect(wire.FrameWelcome)
	b := wire.AppendPing(wire.AppendReady(nil))
	for range 3 {
		b = append(b, encoded(t, heartbeat(2, 1))...)
	}
	r.write(b)
	for range 3 {
		await.Receive(t, "a message", h.received)
	}
}

func TestTransport_ReplacesTheConnectionOfTheSamePeer(t *testing.T) {
	h := newHarness(t, 1, nil)
	h.SetPeers(map[uint64][]string{2: nil})
	old := dialRaw(t, h.addr)
	old.connect(2)
	await.Receive(t, "the first connection", h.connected)

	unready := dialRaw(t, h.addr) // never confirms, so it replaces nothing
	unready.write(hello(t, wire.FrameHello, wire.Hello{NodeID: 2}))
	unready.expect(wire.FrameWelcome)
	old.write(encoded(t, heartbeat(2, 1)))
	await.Receive(t, "a message on the first connection", h.received)

	fresh := dialRaw(t, h.addr)
	fresh.connect(2)
	if e := await.Receive(t, "the disconnection", h.disconnected); !errors.Is(e.err, ErrReplaced) {
		t.Fatalf("disconnected: %v", e.err)
	}
	await.Receive(t, "the second connection", h.connected)
	old.expectClosed()
	h.send(2, heartbeat(1, 2))
	fresh.expect(wire.FrameHeartbeat)
}

func TestTransport_ReconnectsAfterARestart(t *testing.T) {
	one, two := newHarness(t, 1, nil), newHarness(t, 2, nil)
	join(t, one, two)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if e := await.Receive(t, "the disconnection", one.disconnected); !errors.Is(e.err, ErrClosed) {
		t.Errorf("node 1: %v", e.err)
	}
	await.Receive(t, "the disconnection", two.disconnected)
	ln, err := net.Listen("tcp", one.addr)
	if err != nil {
		t.Skipf("somebody else took the port: %v", err)
	}
	again := newHarnessOn(t, ln, 1, nil)
	again.SetPeers(map[uint64][]string{2: {two.addr}})
	await.Receive(t, "the connection", again.connected)
	await.Receive(t, "the connection", two.connected)
	two.send(1, heartbeat(2, 1))
	await.Receive(t, "a message", again.received)
}

func TestTransport_BothEndsClose(t *testing.T) {
	one, two := newHarness(t, 1, nil), newHarness(t, 2, nil)
	join(t, one, two)
	done := make(chan error, 4)
	for _, h := range []*harness{one, two, one, two} {
		go func() { done <- h.Close() }()
	}
	for range 4 {
		if err := await.Receive(t, "Close", done); err != nil {
			t.Error(err)
		}
	}
	one.SetPeers(map[uint64][]string{9: {"127.0.0.1:1"}})
	if len(one.Peers()) != 1 {
		t.Error("a closed transport still works")
	}
}

func TestTransport_DisconnectsARemovedPeerAndTakesItBack(t *testing.T) {
	one, two := newHarness(t, 1, nil), newHarness(t, 2, nil)
	join(t, one, two)
	one.SetPeers(nil)
	if e := await.Receive(t, "the disconnection", one.disconnected); !errors.Is(e.err, ErrRemoved) {
		t.Errorf("node 1: %v", e.err)
	}
	await.Receive(t, "the disconnection", two.disconnected)
	if e := await.Receive(t, "a refusal", two.refused); e.refusal.Code != wire.RefusedNotMember || e.by != wire.Remote {
		t.Errorf("node 2: %+v", e)
	}
	one.SetPeers(map[uint64][]string{2: {two.addr}})
	await.Receive(t, "the connection", one.connected)
}

func TestTransport_DialsAChangedAddress(t *testing.T) {
	one, two := newHarness(t, 1, nil), newHarness(t, 2, nil)
	one.SetPeers(map[uint64][]string{2: {two.addr}})
	two.SetPeers(map[uint64][]string{1: nil})
	two.SetPeers(map[uint64][]string{1: {one.addr}})
	await.Receive(t, "the connection", two.connected)
}

// TestTransport_ReachesAPeerWhereverItIs: at one known address nothing listens, and at the other one
// another node does, which comes to no harm.
func TestTransport_ReachesAPeerWhereverItIs(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	var log bytes.Buffer
	one, two := newHarness(t, 1, nil), newHarness(t, 2, nil)
	three := newHarness(t, 3, func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	one.SetPeers(map[uint64][]string{3: nil})
	two.SetPeers(map[uint64][]string{3: nil})
	three.SetPeers(map[uint64][]string{1: {gone.Addr().String(), two.addr}, 2: {two.addr}})
	await.Receive(t, "the connection with node 2", three.connected)
	for range 3 { // each address is tried again, and logged once
		if e := await.Receive(t, "a refusal", three.refused); e.peer != 1 || e.by != wire.Self || e.refusal.Code != wire.RefusedWrongNode {
			t.Errorf("%+v", e)
		}
	}
	three.SetPeers(map[uint64][]string{1: {gone.Addr().String(), two.addr, one.addr}, 2: {two.addr}})
	await.Receive(t, "the connection with node 1", three.connected)
	if p := three.Peers()[0]; p.Addr != one.addr || len(p.Addrs) != 3 || p.Failure != nil || !three.Peers()[1].Connected {
		t.Errorf("%+v", three.Peers())
	}
	three.Close()
	for _, line := range []string{"peer unreachable", "peer refused"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q was logged %d times:\n%s", line, n, log.String())
		}
	}
}

// TestTransport_AskLearnsWhyNobodyDials: the higher ID has dropped this peer, which therefore
// hears nothing.
func TestTransport_AskLearnsWhyNobodyDials(t *testing.T) {
	var removed atomic.Bool
	one := newHarness(t, 1, nil)
	two := newHarness(t, 2, func(cfg *Config) {
		cfg.Admit = func(wire.Hello) *wire.Refusal {
			if removed.Load() {
				return wire.Refusalf("removed", "node 1 was removed")
			}
			return nil
		}
	})
	one.SetPeers(map[uint64][]string{1: {one.addr}, 2: {two.addr}})
	one.Ask() // not refused: it learns nothing and makes no connection
	e := await.Receive(t, "a refusal", two.refused)
	if e.by != wire.Self || e.refusal.Code != wire.RefusedWrongNode {
		t.Errorf("%+v", e)
	}
	removed.Store(true)
	for ended := false; !ended; {
		one.Ask()
		select {
		case e = <-one.refused:
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	if e.peer != 2 || e.by != wire.Remote || e.refusal.Code != "removed" {
		t.Errorf("%+v", e)
	}
	if s := one.Peers()[0]; s.Connected || s.Refusal == nil || s.Refusal.Code != "removed" {
		t.Errorf("%+v", s)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	one.Ask()
}
