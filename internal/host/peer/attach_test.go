package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/wire"
)

// pump reads and writes one connection with two goroutines, in place of an event loop.
type pump struct {
	stream  *Stream
	conn    net.Conn
	out     chan []*raftpb.Message
	deliver func(*raftpb.Message)
}

// attach starts a pump for one of h's connections; it is an [Attacher].
func (h *harness) attach(conn net.Conn, s *Stream) (stop func(error), err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &pump{stream: s, conn: conn, out: make(chan []*raftpb.Message, 64), deliver: func(m *raftpb.Message) {
		select {
		case h.received <- m:
		case <-ctx.Done():
		}
	}}
	h.mu.Lock()
	h.pumps[s.Peer()] = p
	hello := h.hellos[s.Peer()]
	h.mu.Unlock()
	go func() {
		cause := p.run(ctx, cancel)
		h.mu.Lock()
		delete(h.pumps, s.Peer())
		h.mu.Unlock()
		s.Ended(cause)
	}()
	put(h.connected, hello)
	return cancel, nil
}

// send has the pump of a connected peer write messages.
func (h *harness) send(to uint64, msgs ...*raftpb.Message) {
	h.mu.Lock()
	p := h.pumps[to]
	h.mu.Unlock()
	p.out <- msgs
}

func (p *pump) run(ctx context.Context, cancel context.CancelCauseFunc) error {
	var wg sync.WaitGroup
	wg.Go(func() { cancel(p.read()) })
	wg.Go(func() { cancel(p.write(ctx)) })
	<-ctx.Done()
	p.conn.Close()
	wg.Wait()
	return context.Cause(ctx)
}

func (p *pump) read() error {
	buf := make([]byte, 64<<10)
	for n := 0; ; {
		msgs, err := p.stream.Parse(nil, buf[:n])
		if err != nil {
			return err
		}
		for _, m := range msgs {
			p.deliver(m)
		}
		if err = p.conn.SetReadDeadline(time.Now().Add(p.stream.StallTimeout())); err == nil {
			n, err = p.conn.Read(buf)
		}
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
	}
}

func (p *pump) write(ctx context.Context) error {
	for {
		var b []byte
		select {
		case <-ctx.Done():
			return nil
		case msgs := <-p.out:
			for _, m := range msgs {
				b = p.stream.Append(b, m)
			}
		case <-time.After(p.stream.PingInterval()):
			b = wire.AppendPing(nil)
		}
		for part := range slices.Chunk(b, 64<<10) { // the deadline is for each part
			err := p.conn.SetWriteDeadline(time.Now().Add(p.stream.StallTimeout()))
			if err == nil {
				_, err = p.conn.Write(part)
			}
			if err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
	}
}

func TestTransport_ClosesWhatCannotBeAttached(t *testing.T) {
	full := errors.New("no room in the loop")
	h := newHarness(t, 1, func(cfg *Config) {
		cfg.Attach = func(net.Conn, *Stream) (func(error), error) { return nil, full }
	})
	h.SetPeers(map[uint64][]string{2: nil})
	for range 2 {
		r := dialRaw(t, h.addr)
		r.connect(2)
		r.expectClosed()
		if e := await.Receive(t, "the disconnection", h.disconnected); e.peer != 2 || !errors.Is(e.err, full) {
			t.Fatalf("disconnected from %d: %v", e.peer, e.err)
		}
	}
}

// The loop may end a connection late; the transport waits for it.
func TestTransport_StopsAConnectionAndWaitsForItsEnd(t *testing.T) {
	stopped := make(chan error, 1)
	attached := make(chan *Stream, 1)
	h := newHarness(t, 1, func(cfg *Config) {
		cfg.Attach = func(conn net.Conn, s *Stream) (func(error), error) {
			attached <- s
			return func(cause error) { conn.Close(); stopped <- cause }, nil
		}
	})
	for _, c := range []struct {
		want error
		end  func(done chan<- error)
	}{
		{ErrRemoved, func(done chan<- error) { h.SetPeers(nil); done <- nil }},
		{ErrClosed, func(done chan<- error) { done <- h.Close() }},
	} {
		h.SetPeers(map[uint64][]string{2: nil})
		dialRaw(t, h.addr).connect(2)
		s := await.Receive(t, "Attach", attached)
		done := make(chan error, 1)
		go c.end(done)
		if err := await.Receive(t, "stop", stopped); !errors.Is(err, c.want) {
			t.Errorf("stopped for %v, want %v", err, c.want)
		}
		if len(h.disconnected) > 0 {
			t.Error("disconnected before the connection has ended")
		}
		s.Ended(net.ErrClosed)
		if e := await.Receive(t, "the disconnection", h.disconnected); !errors.Is(e.err, c.want) {
			t.Errorf("disconnected: %v, want %v", e.err, c.want)
		}
		if err := await.Receive(t, "the end", done); err != nil {
			t.Error(err)
		}
	}
}

func TestTransport_DropsWhatTheOtherSideWouldRefuse(t *testing.T) {
	one, two := newHarness(t, 1, nil), newHarness(t, 2, nil)
	join(t, one, two)
	proposal := appendOf(1, 2, 0)
	proposal.Type = raftpb.MsgProp.Enum()
	one.send(2, proposal, appendOf(1, 2, wire.MessageSizeMax), heartbeat(3, 2), heartbeat(1, 2))
	if got := await.Receive(t, "the good message", two.received); !proto.Equal(got, heartbeat(1, 2)) {
		t.Errorf("got %v", got)
	}
}
