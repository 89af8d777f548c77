package loop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/host/loop"
)

// counter is a Work that counts what it is asked for.
type counter struct {
	turns, flushes, closed atomic.Int64
	onClose                func()
}

func (c *counter) Sleep() time.Duration { return time.Second }
func (c *counter) Turn()                { c.turns.Add(1) }
func (c *counter) Flushed()             { c.flushes.Add(1) }
func (c *counter) Close() {
	c.closed.Add(1)
	if c.onClose != nil {
		c.onClose()
	}
}

func startHost(t *testing.T, cfg loop.HostConfig) *loop.Host {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := loop.NewHost(l, cfg)
	h.Start()
	t.Cleanup(func() {
		h.Stop()
		if err := h.Err(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestHost_RunsWhatIsPostedUntilItEnds(t *testing.T) {
	w := &counter{}
	h := startHost(t, loop.HostConfig{Work: w})
	ran := 0
	for range 100 {
		if !h.Call(func() { ran++ }) {
			t.Fatal("a host that runs refuses a call")
		}
	}
	if !h.Post(func() { ran++ }) {
		t.Error("a host that runs refuses a post")
	}
	h.Stop()
	<-h.Done()
	if ran != 101 || w.closed.Load() != 1 || w.turns.Load() < 1 || w.flushes.Load() != w.turns.Load() {
		t.Errorf("%d calls ran, %d turns, %d flushes, closed %d times", ran, w.turns.Load(), w.flushes.Load(), w.closed.Load())
	}
	if h.Post(func() {}) || h.Call(func() {}) {
		t.Error("a host that has ended takes more")
	}
}

// TestHost_NoCallIsLostAtTheEnd: whoever is told that a call was accepted may wait for it.
func TestHost_NoCallIsLostAtTheEnd(t *testing.T) {
	for range 50 {
		h := startHost(t, loop.HostConfig{Work: &counter{}})
		var accepted, ran atomic.Int64
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for h.Post(func() { ran.Add(1) }) {
					accepted.Add(1)
					if !h.Call(func() { ran.Add(1) }) {
						return
					}
					accepted.Add(1)
				}
			})
		}
		time.Sleep(time.Millisecond)
		h.Stop()
		callers.Wait()
		<-h.Done()
		if accepted.Load() != ran.Load() {
			t.Fatalf("%d were accepted, %d ran", accepted.Load(), ran.Load())
		}
	}
}

func TestHost_EndsAfterTheOneItDependsOn(t *testing.T) {
	var order []string
	first := startHost(t, loop.HostConfig{Work: &counter{onClose: func() { order = append(order, "first") }}})
	second := startHost(t, loop.HostConfig{Work: &counter{onClose: func() { order = append(order, "second") }}, After: first.Done()})
	second.Stop()
	select {
	case <-second.Done():
		t.Fatal("it has not waited")
	case <-time.After(20 * time.Millisecond): // for a wrong one to show itself
	}
	ran := make(chan struct{})
	if !second.Post(func() { close(ran) }) {
		t.Error("it takes nothing while it waits")
	}
	first.Stop()
	<-second.Done()
	<-ran
	if len(order) != 2 || order[0] != "first" {
		t.Errorf("closed in the order %v", order)
	}
}

// echoes sends back what it gets.
type echoes struct{ conns *atomic.Int64 }

func (e echoes) Data(c *loop.Conn, b []byte) (int, error) {
	c.Write(b)
	return len(b), nil
}
func (e echoes) Closed(*loop.Conn, error) { e.conns.Add(-1) }

func TestHosts_ServeOneListenerAndDrain(t *testing.T) {
	hosts := loop.Hosts{startHost(t, loop.HostConfig{Work: &counter{}}), startHost(t, loop.HostConfig{Work: &counter{}})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns, stopped atomic.Int64
	var opened [2]bool
	err = hosts.Serve(ln, loop.Limits{}, func(i int, _ *loop.Loop) loop.Service {
		opened[i] = true
		return loop.Service{
			Open:  func(*loop.Conn) loop.Handler { conns.Add(1); return echoes{&conns} },
			Stop:  func() { stopped.Add(1) },
			Conns: func() int { return int(conns.Load()) },
		}
	})
	if err != nil || !opened[0] || !opened[1] {
		t.Fatal(err, opened)
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	hosts.StopServing(canceled) // returns although a connection is left
	if stopped.Load() != 2 || conns.Load() != 1 {
		t.Errorf("%d services were stopped, %d connections are left", stopped.Load(), conns.Load())
	}
	nc.Close()
	hosts.StopServing(context.Background())
	if conns.Load() != 0 {
		t.Errorf("%d connections are left", conns.Load())
	}
	hosts.Stop()
	for _, h := range hosts {
		<-h.Done()
	}
	again, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := hosts.Serve(again, loop.Limits{}, nil); !errors.Is(err, loop.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
