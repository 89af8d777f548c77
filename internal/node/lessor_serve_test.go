package node_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/node"
)

// counter is a minimal front. Each byte requests a worker ID, in a session of its own. The
// answer has two bytes: the worker, or 0xffff.
type counter struct {
	lessor   front.Lessor
	conn     *loop.Conn
	sessions *atomic.Uint64
	open     *atomic.Int64
}

func (c *counter) Data(conn *loop.Conn, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	conn.Pause()
	c.open.Add(1)
	c.lessor.LeaseWorker(&front.WorkerRequest{
		Session: c.sessions.Add(1), Fixed: -1, From: uint64(time.Now().UnixMilli()), Length: 60_000, Done: c.done,
	})
	return 1, nil
}

func (c *counter) done(r *front.WorkerRequest) {
	c.open.Add(-1)
	answer := uint16(0xffff)
	if r.Err == nil {
		answer = uint16(r.Worker)
	}
	c.conn.Write(binary.BigEndian.AppendUint16(nil, answer))
	c.conn.Resume()
}

func (c *counter) Closed(*loop.Conn, error) {}

// serveLessor serves counters. It returns the address and the number of unanswered requests.
func serveLessor(t *testing.T, n *node.Node) (addr string, open *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var sessions atomic.Uint64
	open = new(atomic.Int64)
	err = n.Serve(ln, loop.Limits{}, func(_ int, b front.Backend, _ *loop.Loop) loop.Service {
		return loop.Service{Open: func(c *loop.Conn) loop.Handler {
			return &counter{lessor: b.(front.Lessor), conn: c, sessions: &sessions, open: open}
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String(), open
}

func TestLessor_LeasesEachWorkerOnceFromAllLoops(t *testing.T) {
	c := newCluster(t, 1, func(cfg *node.Config) {
		makingIDs(time.Minute)(cfg)
		cfg.Loops = 3
	})
	n := c.nodes[1]
	c.leader()
	addr, _ := serveLessor(t, n)
	var mu sync.Mutex
	seen := map[uint16]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			in := bufio.NewReader(nc)
			if _, err := io.WriteString(nc, "wwwwwwww"); err != nil {
				t.Error(err)
				return
			}
			for range 8 {
				var b [2]byte
				if _, err := io.ReadFull(in, b[:]); err != nil {
					t.Error(err)
					return
				}
				worker := binary.BigEndian.Uint16(b[:])
				mu.Lock()
				if seen[worker] || worker == 0xffff {
					t.Errorf("I9: worker %#x was leased twice, or not at all", worker)
				}
				seen[worker] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestLessor_AnswersEverythingWhenTheNodeCloses(t *testing.T) {
	c := newCluster(t, 1, func(cfg *node.Config) {
		makingIDs(time.Minute)(cfg)
		cfg.Loops = 3
	})
	n := c.nodes[1]
	c.leader()
	addr, open := serveLessor(t, n)
	answered := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer nc.Close()
			var b [2]byte
			for {
				if _, err := nc.Write([]byte("w")); err != nil {
					return
				}
				if _, err := io.ReadFull(nc, b[:]); err != nil {
					return
				}
				select {
				case answered <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 20 {
		select {
		case <-answered:
		case <-time.After(liveness):
			t.Fatal("no answers")
		}
	}
	if err := c.stop(1); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if left := open.Load(); left != 0 {
		t.Errorf("%d requests were not answered", left)
	}
}
