package peer

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/wire"
)

func TestTransport_BoundsConnectionsWithoutAHandshake(t *testing.T) {
	inside, leave := make(chan struct{}, inboundMax), make(chan struct{})
	h := newHarness(t, 1, func(cfg *Config) {
		cfg.Admit = func(wire.Hello) *wire.Refusal {
			inside <- struct{}{}
			<-leave
			return nil
		}
	})
	h.SetPeers(map[uint64][]string{2: nil})
	defer close(leave)
	for range inboundMax {
		dialRaw(t, h.addr).write(hello(t, wire.FrameHello, wire.Hello{NodeID: 2}))
	}
	for range inboundMax {
		await.Receive(t, "a handshake", inside)
	}
	dialRaw(t, h.addr).expectClosed()
}

func TestNew_PanicsWithoutWhatItNeeds(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	New(Config{NodeID: 1})
}

// failingListener fails a few times, as if out of file descriptors.
type failingListener struct {
	net.Listener
	failures atomic.Int32
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, io.ErrNoProgress
	}
	return l.Listener.Accept()
}

func TestTransport_GoesOnAfterAcceptFailed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failing := &failingListener{Listener: ln}
	failing.failures.Store(3)
	one, two := newHarnessOn(t, failing, 1, nil), newHarness(t, 2, nil)
	join(t, one, two)
}
