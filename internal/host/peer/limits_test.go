package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

func TestTransport_CloseDoesNotWaitForABlockedReceive(t *testing.T) {
	entered := make(chan struct{}, 1)
	one := newHost(t, 1, func(cfg *Config) {
		cfg.Receive = func(ctx context.Context, _ uint64, _ []*raftpb.Message) {
			put(entered, struct{}{})
			<-ctx.Done()
		}
	})
	two := newHost(t, 2, nil)
	join(t, one, two)
	two.Send(1, []*raftpb.Message{heartbeat(2, 1)})
	await(t, "Receive", entered)
	done := make(chan error, 1)
	go func() { done <- one.Close() }()
	if err := await(t, "Close", done); err != nil {
		t.Error(err)
	}
}

func TestTransport_BoundsTheQueueOfAPeerThatNeverReads(t *testing.T) {
	h := newHost(t, 1, func(cfg *Config) { cfg.StallTimeout = time.Second })
	h.SetPeers(map[uint64]string{2: ""})
	r := dialRaw(t, h.addr)
	r.connect(2)
	await(t, "the connection", h.connected)
	out, batch := h.peer(2).out, []*raftpb.Message{appendOf(1, 2, 1<<20)}
	for len(h.disconnected) == 0 {
		if !h.Send(2, batch) {
			time.Sleep(time.Millisecond)
		}
		out.mu.Lock()
		frames, bytes := out.frames, out.bytes
		out.mu.Unlock()
		if bytes > queueBytesMax || frames > queueFramesMax {
			t.Fatalf("%d messages of %d bytes queued", frames, bytes)
		}
	}
	// The peer neither reads nor writes, so either deadline may end it; which one
	// ends a peer that does write is decided in synctest_test.go.
	if e := await(t, "the disconnection", h.disconnected); !errors.Is(e.err, os.ErrDeadlineExceeded) {
		t.Fatalf("disconnected: %v", e.err)
	}
	if h.Send(2, []*raftpb.Message{heartbeat(1, 2)}) {
		t.Error("queued for a peer that is gone")
	}
	if out.frames != 0 || out.bytes != 0 || len(out.queue) != 0 {
		t.Errorf("still holds %d messages of %d bytes", out.frames, out.bytes)
	}
}

func TestTransport_BoundsConnectionsWithoutAHandshake(t *testing.T) {
	inside, leave := make(chan struct{}, inboundMax), make(chan struct{})
	h := newHost(t, 1, func(cfg *Config) {
		cfg.Admit = func(Hello) *Refusal {
			inside <- struct{}{}
			<-leave
			return nil
		}
	})
	h.SetPeers(map[uint64]string{2: ""})
	defer close(leave)
	for range inboundMax {
		dialRaw(t, h.addr).write(hello(t, FrameHello, Hello{NodeID: 2}))
	}
	for range inboundMax {
		await(t, "a handshake", inside)
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

// failingListener fails a few times, as one does that is out of descriptors.
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
	one, two := newHostOn(t, failing, 1, nil), newHost(t, 2, nil)
	join(t, one, two)
}
