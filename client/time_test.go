package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// These tests have a fake clock and an in-memory network.

// memory is an in-memory network. Nothing in it takes time.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*pipes
	dials     int
	to        map[string]int  // dials by address
	mute      map[string]bool // addresses that accept connections and say nothing
}

func newMemory() *memory {
	return &memory{listeners: map[string]*pipes{}, to: map[string]int{}, mute: map[string]bool{}}
}

type pipes struct {
	network *memory
	addr    string
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (m *memory) listen(addr string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr == "" {
		addr = net.JoinHostPort("node", string(rune('1'+len(m.listeners))))
	}
	l := &pipes{network: m, addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	m.listeners[addr] = l
	return l, nil
}

func (m *memory) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	m.mu.Lock()
	m.dials++
	m.to[addr]++
	l, isMute := m.listeners[addr], m.mute[addr]
	m.mu.Unlock()
	if l == nil {
		return nil, errors.New("no such node")
	}
	ours, theirs := net.Pipe()
	if isMute {
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		return ours, nil
	}
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memory) dialed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials
}

// dialedTo returns the dials of one node.
func (m *memory) dialedTo(n *node) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.to[n.addr]
}

// silence has a node accept connections from now on and say nothing.
func (m *memory) silence(n *node) {
	m.mu.Lock()
	m.mute[n.addr] = true
	m.mu.Unlock()
	n.hangUp(false)
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipes) Close() error    { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipes) Addr() net.Addr  { return l }
func (l *pipes) Network() string { return "memory" }
func (l *pipes) String() string  { return l.addr }

// inMemory runs a test with a cluster and its client.
func inMemory(t *testing.T, nodes int, run func(t *testing.T, f *cluster, c *client.Client, m *memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		f := startClusterOn(t, nodes, m.listen)
		run(t, f, f.dial(client.Options{Dial: m.dial}), m)
	})
}

func deadline(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// TestTime_ALoneCallWaitsForNothing, not even a microsecond.
func TestTime_ALoneCallWaitsForNothing(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, _ *memory) {
		begin := time.Now()
		for range 100 {
			if _, err := c.Timestamp(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("100 calls took %v on a network that takes no time", took)
		}
	})
}

// TestTime_DeadlinesAreExact whatever the cluster does.
func TestTime_DeadlinesAreExact(t *testing.T) {
	for name, break_ := range map[string]func(f *cluster){
		"frozen": func(f *cluster) {
			for _, n := range f.nodes {
				n.freeze()
			}
		},
		"down": func(f *cluster) {
			for _, n := range f.nodes {
				n.stop()
			}
		},
		"without a leader": func(f *cluster) { f.lead(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, _ *memory) {
				break_(f)
				for _, d := range []time.Duration{time.Nanosecond, time.Millisecond, 77 * time.Millisecond, 2 * time.Second} {
					ctx, cancel := deadline(d)
					begin := time.Now()
					_, err := c.Timestamp(ctx)
					cancel()
					if took := time.Since(begin); took != d || !errors.Is(err, isotone.ErrDeadlineExceeded) {
						t.Errorf("%v: took %v, %v", d, took, err)
					}
				}
			})
		})
	}
}

// TestTime_ASilentLeaderIsLeftSoon: tens of milliseconds after its successor is elected.
func TestTime_ASilentLeaderIsLeftSoon(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, _ *memory) {
		_, _ = c.Timestamp(context.Background())
		f.nodes[0].freeze()
		const election = 300 * time.Millisecond
		time.AfterFunc(election, func() { f.lead(1) })
		begin := time.Now()
		ctx, cancel := deadline(2 * time.Second)
		defer cancel()
		_, err := c.Timestamp(ctx)
		if took := time.Since(begin); err != nil || took < election || took > election+200*time.Millisecond {
			t.Errorf("took %v, %v", took, err)
		}
		begin = time.Now()
		if _, err := c.Timestamp(ctx); err != nil || time.Since(begin) != 0 {
			t.Errorf("the next call took %v, %v", time.Since(begin), err)
		}
	})
}

// TestTime_ALongOutageCostsLittleAndEndsByItself.
func TestTime_ALongOutageCostsLittleAndEndsByItself(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		for _, n := range f.nodes {
			n.stop()
		}
		before := m.dialed()
		time.Sleep(10 * time.Minute)
		// At least 50 ms between rounds, each of one dial to all members and two to the leader.
		if dials := m.dialed() - before; dials > 5*600*20 || dials < 600 {
			t.Errorf("%d dials in ten minutes", dials)
		}
		for _, n := range f.nodes {
			n.start()
		}
		ctx, cancel := deadline(500 * time.Millisecond)
		defer cancel()
		if _, err := c.Timestamp(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestTime_AnIdleClientDoesNothing: it makes no dials and asks no questions in a day.
func TestTime_AnIdleClientDoesNothing(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		_, _ = c.Timestamp(context.Background())
		_, _ = c.Snowflake(context.Background())
		synctest.Wait()
		before := m.dialed()
		time.Sleep(24 * time.Hour)
		if dials := m.dialed() - before; dials != 0 {
			t.Errorf("%d dials in a day", dials)
		}
	})
}

// TestTime_AClientInUseLearnsNewMembers.
func TestTime_AClientInUseLearnsNewMembers(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, _ *memory) {
		for i := range 4000 {
			if i == 10 {
				f.add()
			}
			if _, err := c.Snowflake(context.Background()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if f.nodes[3].count("SNOWFLAKE") == 0 {
			t.Error("after 40 s the new member was not asked")
		}
	})
}

// inUse calls the client for a while.
func inUse(t *testing.T, c *client.Client, d time.Duration) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := deadline(2 * time.Second)
		_, err := c.Timestamp(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTime_AClientFollowsAClusterThatMoves: all members but the leader are replaced, and then
// the leader, the last one that the client knew, dies.
func TestTime_AClientFollowsAClusterThatMoves(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		inUse(t, c, time.Second)
		f.add()
		f.add()
		f.remove(1, 2)
		inUse(t, c, 15*time.Second)
		f.lead(3)
		f.remove(0)
		inUse(t, c, time.Second)
		before := m.dialed()
		inUse(t, c, 100*time.Second)
		if dials := m.dialed() - before; dials > 15 {
			t.Errorf("%d dials in 100 s while all is well", dials)
		}
	})
}

// TestTime_AStaleMemberHidesNoOther: a node that was removed, or that has only just joined,
// knows an older list of members than the leader.
func TestTime_AStaleMemberHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		f := startClusterOn(t, 4, m.listen)
		stale := f.nodes[3]
		old := startClusterOn(t, 0, m.listen)
		old.nodes, old.gone = f.nodes, []int{1, 2}
		stale.replies(func(args []string) ([]byte, bool) {
			if args[0] != "CLUSTER" {
				return nil, false
			}
			time.Sleep(10 * time.Millisecond) // the last one to answer
			old.mu.Lock()
			defer old.mu.Unlock()
			return old.slots(), true
		})
		c := f.dial(client.Options{Dial: m.dial, Addrs: []string{stale.addr}})
		inUse(t, c, 15*time.Second)
		f.lead(-1) // no leader for a moment: the client asks everyone
		time.AfterFunc(200*time.Millisecond, func() { f.lead(0) })
		inUse(t, c, time.Second)
		f.lead(1)
		f.remove(0, 3)
		inUse(t, c, time.Second)
	})
}
