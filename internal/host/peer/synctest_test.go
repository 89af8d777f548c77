package peer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone/internal/core/route"
	"github.com/isotone/isotone/internal/core/wire"
)

// pipes is a network of unbuffered pipes: a write returns when it has been read. In a
// synctest bubble, time passes only while all goroutines wait.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubble runs f with node 1 on a network of pipes.
func inBubble(t *testing.T, f func(t *testing.T, h *harness, network *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		h := newHarnessOn(t, network, 1, nil)
		h.SetPeers(map[uint64][]string{2: nil})
		f(t, h, network)
		h.Close()
	})
}

func (p *pipes) raw(t *testing.T) *raw {
	conn, err := p.dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, conn)
}

func TestTime_AHandshakeHasTwoSecondsInAll(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *harness, network *pipes) {
		r, began := network.raw(t), time.Now()
		var drip sync.WaitGroup
		drip.Go(func() {
			for _, c := range hello(t, wire.FrameHello, someHello) {
				if _, err := r.conn.Write([]byte{c}); err != nil {
					return
				}
				time.Sleep(70 * time.Millisecond)
			}
		})
		defer drip.Wait()
		r.expectClosed()
		if took := time.Since(began); took != handshakeTimeout {
			t.Errorf("closed after %v", took)
		}
	})
}

func TestTime_ASilentPeerIsDisconnected(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness, network *pipes) {
		r := network.raw(t)
		r.connect(2)
		began := time.Now()
		go r.read() // takes the pings
		e := <-h.disconnected
		if took := time.Since(began); took != stallTimeout || !errors.Is(e.err, os.ErrDeadlineExceeded) {
			t.Errorf("after %v: %v", took, e.err)
		}
		if !strings.HasPrefix(e.err.Error(), "reading") {
			t.Errorf("error %v", e.err)
		}
	})
}

func TestTime_PingsKeepAnIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		one := newHarnessOn(t, network, 1, nil)
		two := newHarnessOn(t, newPipes(), 2, func(cfg *Config) { cfg.Dial = network.dial })
		join(t, one, two)
		time.Sleep(time.Hour)
		if len(one.disconnected)+len(two.disconnected) > 0 {
			t.Error("an idle connection was closed")
		}
		one.Close()
		two.Close()
	})
}

func TestTime_ADialGivesUpAfterASecondAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		h := newHarnessOn(t, newPipes(), 2, func(cfg *Config) {
			cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				starts = append(starts, time.Now())
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		h.SetPeers(map[uint64][]string{1: {"nowhere"}})
		time.Sleep(time.Minute)
		h.Close()
		for i, start := range starts[1:] {
			step := min(route.PauseMin<<min(i, 10), route.PauseMax)
			if gap := start.Sub(starts[i]) - dialTimeout; gap < step/2 || gap > step {
				t.Errorf("attempt %d after %v, want %v to %v", i+1, gap, step/2, step)
			}
		}
		if len(starts) < 40 {
			t.Errorf("%d attempts in a minute", len(starts))
		}
	})
}

func TestTime_RetriesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		network := newPipes()
		network.Close()
		h := newHarnessOn(t, newPipes(), 2, func(cfg *Config) {
			cfg.Dial = network.dial
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		h.SetPeers(map[uint64][]string{1: {"nowhere"}})
		time.Sleep(time.Minute)
		if p := h.Peers()[0]; p.Failure == nil || p.FailedAt != "nowhere" {
			t.Errorf("the peer does not say why it is not reached: %+v", p)
		}
		h.Close()
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "unreachable") {
			t.Errorf("%d records:\n%s", n, log.String())
		}
	})
}

func TestTime_CloseInterruptsADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarnessOn(t, newPipes(), 2, func(cfg *Config) {
			cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		h.SetPeers(map[uint64][]string{1: {"nowhere"}})
		synctest.Wait()
		began := time.Now()
		h.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v", took)
		}
	})
}
