package resp

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// rig is a few nodes on real sockets that hand out the timestamps of one counter.
type rig struct {
	t     testing.TB
	nodes []*rigNode

	mu   sync.Mutex
	term uint64
	next uint64
}

// rigNode is one of them: a loop on its own goroutine, and a backend for its front.
type rigNode struct {
	rig    *rig
	id     uint64
	addr   string
	status atomic.Pointer[front.Status]
	failed atomic.Pointer[isotone.Error] // answers this if not nil
	ended  atomic.Bool
	done   chan struct{}
	calls  chan func() // run on the loop's goroutine
	loop   *loop.Loop

	// These belong to the loop's goroutine.
	front   *Front
	pending []*front.Batch
	served  atomic.Uint64 // timestamps
}

// newRig starts n nodes, of which the first leads.
func newRig(t testing.TB, n int) *rig {
	t.Helper()
	r := &rig{t: t}
	for i := range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := loop.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		node := &rigNode{rig: r, id: uint64(i + 1), addr: ln.Addr().String(), done: make(chan struct{}), calls: make(chan func(), 1), loop: l}
		node.front = New(Config{Backend: node, Version: "test"})
		if err := l.Listen(ln, loop.Limits{}, node.front.Open); err != nil {
			t.Fatal(err)
		}
		r.nodes = append(r.nodes, node)
	}
	r.lead(1)
	for _, node := range r.nodes {
		go node.run()
		t.Cleanup(node.stop)
	}
	return r
}

// lead makes another node the leader; 0 is none.
func (r *rig) lead(leader uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term++
	r.next = 0
	var members []front.Member
	for _, n := range r.nodes {
		members = append(members, front.Member{NodeID: n.id, Addr: n.addr})
	}
	for _, n := range r.nodes {
		s := &front.Status{ClusterID: 0xabc, NodeID: n.id, Term: r.term, Role: "follower", Leader: leader, Members: members}
		if leader != 0 {
			s.LeaderAddr = r.nodes[leader-1].addr
		}
		if leader == n.id {
			s.Role = "leader"
		}
		n.status.Store(s)
	}
}

func (r *rig) node(id uint64) *rigNode { return r.nodes[id-1] }

func (n *rigNode) Status() *front.Status { return n.status.Load() }

func (n *rigNode) Submit(b *front.Batch) { n.pending = append(n.pending, b) }

// run answers in each turn what the turn before has brought.
func (n *rigNode) run() {
	defer close(n.done)
	var answering []*front.Batch
	for !n.ended.Load() {
		wait := time.Minute
		if len(n.pending) > 0 {
			wait = 0
		}
		answering, n.pending = n.pending, answering[:0]
		if err := n.loop.Wait(wait); err != nil {
			n.rig.t.Errorf("wait: %v", err)
			return
		}
		select {
		case call := <-n.calls:
			call()
		default:
		}
		for _, b := range answering {
			n.settle(b)
		}
		n.loop.Flush()
	}
}

func (n *rigNode) settle(b *front.Batch) {
	b.Err = nil
	switch s, failed := n.Status(), n.failed.Load(); {
	case failed != nil:
		b.Err = failed
	case s.Leader == 0:
		b.Err = isotone.ErrNoLeader
	case s.Leader != n.id:
		b.Err = &isotone.Error{Code: isotone.CodeNotLeader, Message: "not the leader", Leader: s.LeaderAddr}
	default:
		n.rig.mu.Lock()
		for i, count := range b.Counts {
			first := isotone.Timestamp{Time: epoch + n.rig.term, Index: n.rig.next}
			b.Ranges[i] = isotone.Range{First: first, Count: count}
			n.rig.next += count
			n.served.Add(count)
		}
		n.rig.mu.Unlock()
	}
	b.Done(b)
}

// stop ends the node as a crash would.
func (n *rigNode) stop() {
	if !n.ended.Swap(true) {
		n.loop.Wake()
		<-n.done
		if err := n.loop.Close(); err != nil {
			n.rig.t.Errorf("close: %v", err)
		}
		for _, b := range n.pending {
			b.Err = isotone.ErrNoLeader
			b.Done(b) // after Closed
		}
	}
}

func (n *rigNode) port() string {
	_, port, _ := net.SplitHostPort(n.addr)
	return port
}

func (r *rig) addrs() (addrs []string) {
	for _, n := range r.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// ascending reports each timestamp that is not larger than the one before.
type ascending struct{ last isotone.Timestamp }

func (a *ascending) next(t testing.TB, text string) {
	t.Helper()
	var ts isotone.Timestamp
	if err := ts.UnmarshalBinary([]byte(text)); err != nil {
		t.Error(err)
	}
	if !a.last.Before(ts) {
		t.Errorf("%v follows %v", ts, a.last)
	}
	a.last = ts
}

// TestRig_RawSocket sends a pipeline byte by byte, and one larger than all buffers.
func TestRig_RawSocket(t *testing.T) {
	r := newRig(t, 1)
	c, err := net.Dial("tcp", r.node(1).addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	for _, b := range []byte(plain + "PING\r\nTS 5\r\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(index uint64) string {
		b, _ := isotone.Timestamp{Time: epoch + 1, Index: index}.MarshalBinary()
		return "$16\r\n" + string(b) + "\r\n"
	}
	readString(t, c, at(0)+"+PONG\r\n"+at(1))

	const n = 100_000
	go func() {
		_, _ = c.Write([]byte(strings.Repeat(plain+"TS 3\r\nPING\r\n", n) + "QUIT\r\n"))
	}()
	for i := range uint64(n) {
		readString(t, c, at(6+4*i)+at(7+4*i)+"+PONG\r\n")
	}
	readString(t, c, "+OK\r\n")
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is not closed")
	}
}

func readString(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	for n := 0; n < len(b); {
		m, err := c.Read(b[n:])
		if err != nil {
			t.Fatalf("%v after %q of %q", err, b[:n], want)
		}
		n += m
	}
	if string(b) != want {
		t.Fatalf("got %q, want %q", b, want)
	}
}

func TestRig_ManyIdleConnections(t *testing.T) {
	const n = 200
	r := newRig(t, 1)
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", r.node(1).addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		conns[i] = c
	}
	for range 3 {
		for _, c := range conns {
			if _, err := c.Write([]byte("PING " + strconv.Itoa(n) + "\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range conns {
			readString(t, c, "$3\r\n200\r\n")
		}
	}
}

// TestRig_HalfClosed: who says that nothing more comes still gets the answers.
func TestRig_HalfClosed(t *testing.T) {
	r := newRig(t, 1)
	c, err := net.Dial("tcp", r.node(1).addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(plain + "PING\r\n" + plain)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || len(got) != 2*timestampReply+len("+PONG\r\n") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestRig_Stop: an idle connection is closed.
func TestRig_Stop(t *testing.T) {
	r := newRig(t, 1)
	c, err := net.Dial("tcp", r.node(1).addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	readString(t, c, "+PONG\r\n")
	r.node(1).calls <- r.node(1).front.Stop
	r.node(1).loop.Wake()
	if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
