package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// once makes a node answer its first TS commands, times of them, with text.
func once(n *node, times int32, text string) *atomic.Int32 {
	var left atomic.Int32
	left.Store(times)
	n.replies(func(args []string) ([]byte, bool) {
		if args[0] != "TS" || left.Add(-1) < 0 {
			return nil, false
		}
		return []byte(text), true
	})
	return &left
}

func wantTimestamp(t *testing.T, c *client.Client) {
	t.Helper()
	if ts, err := c.Timestamp(within(t, 10*time.Second)); err != nil || ts.Time != 1 { // as all of the fake oracle
		t.Fatalf("%v, %v", ts, err)
	}
}

func TestCall_IsRepeatedWhenThatMayHelp(t *testing.T) {
	for _, answer := range []string{
		"-CLUSTERDOWN no leader is known\r\n",
		"-TRYAGAIN too many requests are waiting\r\n",
		"-MOVED 0 127.0.0.1:1\r\n", // nothing listens there
		"-MOVED 0 nobody\r\n",
		"+OK\r\n",
		":1\r\n",
		"$15\r\n0123456789abcde\r\n",
		"$17\r\n0123456789abcdefg\r\n",
		"$16\r\n0123456789abcdefgh",
		"$-1\r\n",
		"*1\r\n$16\r\n0123456789abcdef\r\n",
		"HTTP/1.1 400 Bad Request\r\n\r\n",
		"\r\n",
		"\n",
		"-\n",
		strings.Repeat("x", 20000),
		"-ERR " + strings.Repeat("x", 20000) + "\r\n",
		string(stamp(isotone.Timestamp{Time: 9, Index: 1})) + string(stamp(isotone.Timestamp{Time: 9, Index: 2})),
		string(stamp(isotone.Timestamp{Time: 9, Index: 1})) + "x",
	} {
		t.Run(fmt.Sprintf("%.20q", answer), func(t *testing.T) {
			f := startCluster(t, 3)
			c := f.dial(client.Options{})
			left := once(f.nodes[0], 3, answer)
			wantTimestamp(t, c)
			wantTimestamp(t, c)
			if got := left.Load(); got >= 3 {
				t.Errorf("the node was never asked")
			}
		})
	}
}

func TestCall_GetsWhatIsOfNoUseToRepeat(t *testing.T) {
	for answer, want := range map[string]error{
		"-ERR count\r\n":                       isotone.ErrInvalidArgument,
		"-ERR internal: the disk is full\r\n":  isotone.ErrInternal,
		"-NOAUTH Authentication required.\r\n": isotone.ErrUnauthorized,
		"-WRONGPASS invalid\r\n":               isotone.ErrUnauthorized,
		"-WRONGCLUSTER behind a proxy\r\n":     isotone.ErrWrongCluster,
		"-REGRESSED it was set back\r\n":       isotone.ErrRegressed,
		"-STRANGE this is not from a node\r\n": isotone.ErrInternal,
	} {
		f := startCluster(t, 1)
		c := f.dial(client.Options{})
		once(f.nodes[0], 1, answer)
		if _, err := one(within(t, 10*time.Second), c); !errors.Is(err, want) {
			t.Errorf("%q: %v", answer, err)
		}
		wantTimestamp(t, c) // the connection is still usable
		if pings := f.nodes[0].count("PING"); pings > client.ConnsDefault+1 {
			t.Errorf("%q: %d connections", answer, pings)
		}
	}
}

// TestCall_ClosedAtEveryByte ends the connection within the answer.
func TestCall_ClosedAtEveryByte(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	whole := stamp(isotone.Timestamp{Time: 9, Index: 9})
	for i := range 2 * len(whole) {
		size, ask := i/2, c.Timestamp
		if i%2 == 1 { // on a connection that calls share
			ask = func(ctx context.Context) (isotone.Timestamp, error) { return one(ctx, c) }
		}
		var done atomic.Bool
		f.nodes[0].replies(func(args []string) ([]byte, bool) {
			if args[0] == "TS" && !done.Swap(true) {
				panic(hangUp{whole[:size]})
			}
			return nil, false
		})
		ts, err := ask(within(t, 10*time.Second))
		if err != nil || ts.Time != 1 || !done.Load() {
			t.Fatalf("closed after %d bytes: %v, %v", size, ts, err)
		}
	}
}

// TestCall_AnswerInPieces arrives byte by byte.
func TestCall_AnswerInPieces(t *testing.T) {
	f := startCluster(t, 1)
	slow := slowly(t, f.nodes[0].addr)
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "CLUSTER" {
			host, port, _ := net.SplitHostPort(slow)
			return fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port), true
		}
		return nil, false
	})
	c := f.dial(client.Options{Addrs: []string{slow}})
	for range 3 {
		wantTimestamp(t, c)
	}
	if _, err := c.Snowflakes(within(t, 10*time.Second), 3); err != nil {
		t.Error(err)
	}
}

// slowly returns the address of a proxy that passes answers on byte by byte.
func slowly(t *testing.T, to string) string {
	t.Helper()
	n := &node{cluster: &cluster{t: t, listen: tcp}, thawed: make(chan struct{})}
	close(n.thawed)
	listener, err := tcp("")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-done })
	n.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", to)
			if err != nil {
				_ = conn.Close()
				continue
			}
			n.work.Go(func() { trickle(behind, conn, 4096) })
			n.work.Go(func() { trickle(conn, behind, 1) })
		}
	})
	go func() { n.work.Wait(); close(done) }()
	return listener.Addr().String()
}

func trickle(to, from net.Conn, size int) {
	defer to.Close()
	b := make([]byte, size)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func TestLeader_ChainsOfMovedAreFollowed(t *testing.T) {
	f := startCluster(t, 8)
	for i, n := range f.nodes[:7] {
		next := f.nodes[i+1].addr
		n.replies(func(args []string) ([]byte, bool) {
			return []byte("-MOVED 0 " + next + "\r\n"), args[0] == "TS"
		})
	}
	c := f.dial(client.Options{})
	f.lead(7)
	wantTimestamp(t, c)
	before := f.nodes[0].count("TS")
	for range 10 {
		wantTimestamp(t, c)
	}
	if got := f.nodes[0].count("TS"); got != before {
		t.Errorf("the old leader was asked %d times more", got-before)
	}
}

func TestLeader_LoopsOfMovedAreBounded(t *testing.T) {
	t.Parallel()
	for name, to := range map[string][2]int{"two nodes": {1, 0}, "itself": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			f := startCluster(t, 2)
			c := f.dial(client.Options{})
			for i, n := range f.nodes {
				next := f.nodes[to[i]].addr
				n.replies(func(args []string) ([]byte, bool) {
					return []byte("-MOVED 0 " + next + "\r\n"), args[0] == "TS"
				})
			}
			if _, err := c.Timestamp(within(t, 500*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("in a loop: %v", err)
			}
			// With pauses of 50 to 150 ms after the first few, it is far fewer.
			if asked := f.nodes[0].count("TS") + f.nodes[1].count("TS"); asked > 60 {
				t.Errorf("asked %d times in half a second", asked)
			}
			for _, n := range f.nodes {
				n.replies(nil)
			}
			wantTimestamp(t, c)
		})
	}
}

// TestLeader_SilentIsLeftForItsSuccessor: a paused leader delays one call by less than its
// deadline, and later calls not at all.
func TestLeader_SilentIsLeftForItsSuccessor(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{})
	for range 50 {
		wantTimestamp(t, c)
	}
	f.nodes[0].freeze()
	stuck := make(chan error, 1)
	go func() {
		_, err := c.Timestamp(within(t, 10*time.Second))
		stuck <- err
	}()
	await.Until(t, "the silent leader is suspected", func() bool { return f.nodes[1].count("CLUSTER") > 0 })
	f.lead(2)
	if err := receive(t, stuck); err != nil {
		t.Error(err)
	}
	begin := time.Now()
	for range 100 {
		wantTimestamp(t, c)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("100 calls beside a silent node took %v", took)
	}
	f.nodes[0].thaw()
	wantTimestamp(t, c)
}

// TestLeader_SilentWithoutSuccessorIsWaitedFor: there is no other node to ask, and the answer
// arrives in the end.
func TestLeader_SilentWithoutSuccessorIsWaitedFor(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{})
	f.nodes[0].freeze()
	if _, err := c.Timestamp(within(t, 200*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "silent") {
		t.Errorf("a silent leader: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, f.nodes[0].thaw)
	wantTimestamp(t, c)
}

// TestLeader_BrokenConnectionIsReplaced: the leader works, but one connection has broken
// silently.
func TestLeader_BrokenConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 2)
	c := f.dial(client.Options{Conns: 1})
	wantTimestamp(t, c)
	gate := make(chan struct{})
	defer close(gate)
	var first atomic.Bool
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "TS" && !first.Swap(true) {
			<-gate
		}
		return nil, false
	})
	wantTimestamp(t, c)
}

func TestLeader_EndsAndAnotherIsElected(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{})
	for round := range 6 {
		old := round % 3
		f.nodes[old].stop()
		time.AfterFunc(50*time.Millisecond, func() { f.lead((old + 1) % 3) }) // until then all name the stopped one
		wantTimestamp(t, c)
		f.nodes[old].start()
	}
}

// TestLeader_HearsayDoesNotWinOverTheLeaderItself: some members still name a dead leader,
// and connections to it hang.
func TestLeader_HearsayDoesNotWinOverTheLeaderItself(t *testing.T) {
	f := startCluster(t, 4)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == f.nodes[3].addr {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	c := f.dial(client.Options{Dial: dial, Addrs: f.addrs()[:3]})
	host, port, _ := net.SplitHostPort(f.nodes[3].addr)
	stale := fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	f.nodes[1].replies(func(args []string) ([]byte, bool) { return stale, args[0] == "CLUSTER" })
	f.nodes[0].stop()
	f.lead(2)
	begin := time.Now()
	wantTimestamp(t, c)
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestCluster_AllDownThenUpRecoversAlone(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{})
	for _, n := range f.nodes {
		n.stop()
	}
	if _, err := c.Timestamp(within(t, 100*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while all are down: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Timestamp(within(t, 10*time.Second))
		waiting <- err
	}()
	f.lead(1)
	for _, n := range f.nodes {
		n.start()
	}
	if err := receive(t, waiting); err != nil {
		t.Error(err)
	}
}

func TestAddrs_TheBadDoNotHarmTheGood(t *testing.T) {
	f := startCluster(t, 2)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	begin := time.Now()
	c := f.dial(client.Options{Addrs: []string{
		"no-such-host.invalid:80", "127.0.0.1:1", mute.Addr().String(), f.nodes[1].addr,
	}})
	for range 20 {
		wantTimestamp(t, c)
	}
	if _, err := c.Snowflake(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestServer_ThatHangsUpAtOnceIsNotDialedWithoutEnd(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		if args[0] == "TS" {
			panic(hangUp{})
		}
		return nil, false
	})
	if _, err := c.Timestamp(within(t, 500*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if pings := f.nodes[0].count("PING"); pings > 100 {
		t.Errorf("%d connections in half a second", pings)
	}
	f.nodes[0].replies(nil)
	wantTimestamp(t, c)
}

// TestConnection_AnswersToNothingAreNotKept: an answer without a request is not used for the
// next request, because it is older.
func TestConnection_AnswersToNothingAreNotKept(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	wantTimestamp(t, c)
	n := f.nodes[0]
	await.Until(t, "all connections are open", func() bool { return n.count("PING") >= client.ConnsDefault })
	before := n.count("PING")
	n.mu.Lock()
	for conn := range n.conns {
		_, _ = conn.Write(stamp(isotone.Timestamp{Time: 9, Index: 9})) // some have ended
	}
	n.mu.Unlock()
	await.Until(t, "the connections are replaced", func() bool { return n.count("PING") >= before+client.ConnsDefault })
	for range 3 {
		if ts, err := one(within(t, 10*time.Second), c); err != nil || ts.Time != 1 {
			t.Errorf("%v, %v", ts, err)
		}
	}
}
