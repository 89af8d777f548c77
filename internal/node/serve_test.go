package node_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/node"
)

// line is a front that is as small as can be: one byte asks for one timestamp, in lease
// mode if it is an L, and 16 bytes answer, or 16 zeros for an error.
type line struct {
	backend front.Backend
	conn    *loop.Conn
	batch   front.Batch
}

func lines(b front.Backend) func(*loop.Conn) loop.Handler {
	return func(c *loop.Conn) loop.Handler {
		l := &line{backend: b, conn: c}
		l.batch.Done = l.done
		return l
	}
}

func (l *line) Data(c *loop.Conn, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	l.batch.Mode = isotone.ReadDefault
	if b[0] == 'L' {
		l.batch.Mode = isotone.ReadLease
	}
	n := len(b) - len(bytes.TrimLeft(b, string(b[:1])))
	l.batch.Counts = l.batch.Counts[:0]
	for range n {
		l.batch.Counts = append(l.batch.Counts, 1)
	}
	l.batch.Ranges = make([]isotone.Range, n)
	c.Pause()
	l.backend.Submit(&l.batch)
	return n, nil
}

func (l *line) done(*front.Batch) {
	for _, r := range l.batch.Ranges {
		if l.batch.Err != nil {
			r.First = isotone.Timestamp{}
		}
		var b [isotone.TimestampSize]byte
		first, _ := r.First.AppendBinary(b[:0])
		l.conn.Write(first)
	}
	l.conn.Resume()
}

func (l *line) Closed(*loop.Conn, error) {}

func TestNode_ServesOrderedTimestampsFromSeveralLoops(t *testing.T) {
	for _, loops := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(loops), func(t *testing.T) {
			c := newCluster(t, 1, func(cfg *node.Config) { cfg.Loops = loops })
			n := c.nodes[1]
			c.leader()
			addr, opened := listenLines(t, n)
			if *opened != loops {
				t.Fatalf("open was called %d times, want %d", *opened, loops)
			}
			check := lincheck.NewOnline(1 << 12)
			var wg sync.WaitGroup
			for client := range 8 {
				wg.Go(func() { askLines(t, addr, check, client, 300) })
			}
			wg.Wait()
			if s := check.Stats(); t.Failed() || s.Checked == 0 {
				t.Fatalf("checked: %+v", s)
			}
		})
	}
}

func listenLines(t *testing.T, n *node.Node) (addr string, opened *int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opened = new(int)
	var mu sync.Mutex
	err = n.Serve(ln, loop.Limits{}, func(_ int, b front.Backend, _ *loop.Loop) loop.Service {
		mu.Lock()
		defer mu.Unlock()
		*opened++
		return loop.Service{Open: lines(b)}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String(), opened
}

// askLines asks for timestamps one after the other and in pipelines, in both modes.
func askLines(t *testing.T, addr string, check *lincheck.Online, client, times int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	for i := range times {
		ask := strings.Repeat("Q", 1+(i+client)%5)
		if i%3 == 0 {
			ask += strings.Repeat("L", i%4)
		}
		floor := check.Begin()
		if _, err := io.WriteString(nc, ask); err != nil {
			t.Error(err)
			return
		}
		before := isotone.Timestamp{}
		for range ask {
			var b [isotone.TimestampSize]byte
			if _, err := io.ReadFull(in, b[:]); err != nil {
				t.Error(err)
				return
			}
			got := isotone.Timestamp{Time: binary.BigEndian.Uint64(b[:8]), Index: binary.BigEndian.Uint64(b[8:])}
			if !before.Before(got) {
				t.Errorf("%v was answered after %v on one connection", got, before)
				return
			}
			before = got
			if err := check.End(floor, isotone.Range{First: got, Count: 1}); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

func TestNode_ClosesUnderLoadFromSeveralLoops(t *testing.T) {
	c := newCluster(t, 1, func(cfg *node.Config) { cfg.Loops = 3 })
	n := c.nodes[1]
	c.leader()
	addr, _ := listenLines(t, n)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer nc.Close()
			var b [isotone.TimestampSize]byte
			for {
				if _, err := nc.Write([]byte("Q")); err != nil {
					return
				}
				if _, err := io.ReadFull(nc, b[:]); err != nil {
					return
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	if err := c.stop(1); err != nil {
		t.Fatal(err)
	}
	wg.Wait() // every connection was closed
}

func TestNode_StopServingWaitsForTheLastConnections(t *testing.T) {
	c := newCluster(t, 1, func(cfg *node.Config) { cfg.Loops = 2 })
	n := c.nodes[1]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var stopped, left int
	var mu sync.Mutex
	err = n.Serve(ln, loop.Limits{}, func(_ int, b front.Backend, _ *loop.Loop) loop.Service {
		return loop.Service{
			Open: lines(b),
			Stop: func() { mu.Lock(); stopped++; left = 3; mu.Unlock() },
			Conns: func() int {
				mu.Lock()
				defer mu.Unlock()
				left = max(0, left-1)
				return left
			},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	n.StopServing(context.Background())
	if stopped != 2 || left != 0 {
		t.Errorf("%d services were stopped, with %d connections left; want 2 and 0", stopped, left)
	}
	if nc, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		nc.Close()
		t.Error("it still accepts connections")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no patience"))
	n.StopServing(ctx) // returns although Stop says that there are connections again
}

// elsewhere answers what it is given in its next turn.
type elsewhere struct {
	wake    func()
	waiting []*front.Batch
	closed  bool
}

func (e *elsewhere) Submit(b *front.Batch) {
	e.waiting = append(e.waiting, b)
	e.wake()
}

func (e *elsewhere) Turn(time.Duration) {
	for _, b := range e.waiting {
		for i, n := range b.Counts {
			b.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: 1, Index: 1}, Count: n}
		}
		b.Done(b)
	}
	e.waiting = nil
}

func (e *elsewhere) Close() { e.closed = true }

func TestNode_ForwardsWhatItDoesNotLead(t *testing.T) {
	var mu sync.Mutex
	var made []*elsewhere
	c := newCluster(t, 3, func(cfg *node.Config) {
		cfg.Loops = 2
		cfg.Forward = func(wake func()) node.Forwarder {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, &elsewhere{wake: wake})
			return made[len(made)-1]
		}
	})
	leader := c.leader()
	for id, n := range c.nodes {
		r, err := get(n, 3)
		if err != nil || r.Count != 3 || (r.First.Time == 1) != (id != leader) {
			t.Errorf("node %d, leader %d: %v, %v", id, leader, r, err)
		}
		done := make(chan error, 1)
		n.Submit(&front.Batch{
			Local: true, Counts: []uint64{1}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) { done <- b.Err },
		})
		if err := <-done; errors.Is(err, isotone.ErrNotLeader) != (id != leader) {
			t.Errorf("node %d, leader %d: what must stay here got %v", id, leader, err)
		}
	}
	for id := range c.nodes {
		if err := c.stop(id); err != nil {
			t.Error(err)
		}
	}
	if len(made) != 6 {
		t.Errorf("%d forwarders, want one for each loop", len(made))
	}
	for _, e := range made {
		if !e.closed {
			t.Error("a forwarder is not closed")
		}
	}
}
