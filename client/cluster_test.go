package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

const otherID isotone.ClusterID = 0x07e4

// becomes makes all nodes belong to another cluster from now on, and ends their connections,
// as if each address had been given to another process.
func (c *cluster) becomes(id string) {
	c.mu.Lock()
	c.id = id
	c.mu.Unlock()
	for _, n := range c.nodes {
		n.hangUp(false)
	}
}

// everyWay returns all kinds of calls that get something from a cluster.
func everyWay(c *client.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"direct": func(ctx context.Context) error { _, err := c.Timestamp(ctx); return err },
		"batch":  func(ctx context.Context) error { _, err := c.Timestamps(ctx, 3); return err },
		"lease":  func(ctx context.Context) error { _, err := c.In(isotone.ReadLease).Timestamp(ctx); return err },
		"id":     func(ctx context.Context) error { _, err := c.Snowflake(ctx); return err },
		"worker": func(ctx context.Context) error {
			g, err := c.NewGenerator(ctx, client.GeneratorOptions{})
			if err == nil {
				_ = g.Close()
			}
			return err
		},
	}
}

func briefly(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	return call(ctx)
}

// asked returns how many such commands the nodes have received.
func (c *cluster) asked() (n int) {
	for _, node := range c.nodes {
		n += node.count("TS") + node.count("SNOWFLAKE") + node.count("WORKER")
	}
	return n
}

// TestCluster_AnotherOneAtTheSameAddressIsRefused for every kind of call (I10).
func TestCluster_AnotherOneAtTheSameAddressIsRefused(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	var rejected atomic.Int32
	c := f.dial(client.Options{Hooks: client.Hooks{Rejected: func(addr string, err error) {
		if errors.Is(err, isotone.ErrWrongCluster) && strings.Contains(err.Error(), addr) {
			rejected.Add(1)
		}
	}}})
	ways := everyWay(c)
	for way, call := range ways {
		if err := call(within(t, 10*time.Second)); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
	}
	if c.Cluster() != fakeID {
		t.Errorf("pinned to %v, want %v", c.Cluster(), fakeID)
	}
	f.becomes(otherID.String())
	before := f.asked()
	for way, call := range ways {
		await.Expired(t, call, func(err error) bool { return errors.Is(err, isotone.ErrWrongCluster) })
		err := briefly(t, call) // as a connection has been tried, each error says so
		if !errors.Is(err, isotone.ErrWrongCluster) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, isotone.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", way, err)
		}
		if err != nil && (!strings.Contains(err.Error(), fakeID.String()) || !strings.Contains(err.Error(), otherID.String())) {
			t.Errorf("%s: the error does not name both clusters: %v", way, err)
		}
	}
	if got := f.asked() - before; got != 0 {
		t.Errorf("the other cluster was asked %d times", got)
	}
	if rejected.Load() == 0 {
		t.Error("the hook was not called")
	}
	if c.Cluster() != fakeID {
		t.Errorf("now pinned to %v", c.Cluster())
	}
	f.becomes(fakeID.String())
	for way, call := range ways {
		if err := call(within(t, 10*time.Second)); err != nil {
			t.Errorf("back again, %s: %v", way, err)
		}
	}
}

// TestCluster_SilenceIsNoOtherCluster: if no node answers, the error is that of the deadline.
func TestCluster_SilenceIsNoOtherCluster(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	f.becomes(otherID.String())
	call := everyWay(c)["batch"]
	await.Expired(t, call, func(err error) bool { return errors.Is(err, isotone.ErrWrongCluster) })
	f.nodes[0].stop()
	await.Until(t, "the deadline is what fails calls", func() bool { return errors.Is(briefly(t, call), isotone.ErrDeadlineExceeded) })
}

func TestCluster_IsPinnedByTheOptions(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 2)
	if c := f.dial(client.Options{Cluster: fakeID}); c.Cluster() != fakeID {
		t.Errorf("pinned to %v", c.Cluster())
	} else {
		wantTimestamp(t, c)
	}
	for _, id := range []string{otherID.String(), "none"} {
		f.becomes(id)
		await.Expired(t, func(ctx context.Context) error {
			c, err := client.NewWith(ctx, client.Options{Addrs: f.addrs(), Cluster: fakeID})
			if c != nil {
				t.Errorf("nodes of %s: it is made", id)
			}
			return err
		}, func(err error) bool { return errors.Is(err, isotone.ErrWrongCluster) })
	}
	if got := f.asked(); got != 1 {
		t.Errorf("nodes were asked %d times, want once", got)
	}
}

// TestCluster_GoesOnWithTheRightOne if the addresses are those of several clusters.
func TestCluster_GoesOnWithTheRightOne(t *testing.T) {
	right, wrong := startCluster(t, 2), startCluster(t, 2)
	wrong.becomes(otherID.String())
	c := right.dial(client.Options{Cluster: fakeID, Addrs: append(wrong.addrs(), right.addrs()...)})
	for range 5 {
		for way, call := range everyWay(c) {
			if err := call(within(t, 10*time.Second)); err != nil {
				t.Errorf("%s: %v", way, err)
			}
		}
	}
	right.nodes[0].stop()
	right.lead(1)
	wantTimestamp(t, c)
	if got := wrong.asked(); got != 0 {
		t.Errorf("the wrong cluster was asked %d times", got)
	}
	// While a node of the right cluster answers, even without a leader, the error is that of
	// the deadline.
	right.lead(-1)
	if err := briefly(t, everyWay(c)["batch"]); !errors.Is(err, isotone.ErrDeadlineExceeded) {
		t.Errorf("no leader: %v", err)
	}
}

// TestCluster_MovedToAnotherOneIsNotFollowed: a node of the right cluster names a leader of
// another.
func TestCluster_MovedToAnotherOneIsNotFollowed(t *testing.T) {
	ours, theirs := startCluster(t, 1), startCluster(t, 1)
	theirs.becomes(otherID.String())
	c := ours.dial(client.Options{})
	once(ours.nodes[0], 2, "-MOVED 0 "+theirs.nodes[0].addr+"\r\n")
	wantTimestamp(t, c)
	if got := theirs.asked(); got != 0 {
		t.Errorf("the other cluster was asked %d times", got)
	}
}

// TestCluster_OlderNodesAreUsedUnlessOneIsAskedFor: they report no cluster ID.
func TestCluster_OlderNodesAreUsedUnlessOneIsAskedFor(t *testing.T) {
	f := startCluster(t, 1)
	f.becomes("none")
	c := f.dial(client.Options{})
	wantTimestamp(t, c)
	if c.Cluster() != 0 {
		t.Errorf("pinned to %v", c.Cluster())
	}
	f.becomes(fakeID.String()) // they are replaced, one after the other
	wantTimestamp(t, c)
	if c.Cluster() != fakeID {
		t.Errorf("pinned to %v", c.Cluster())
	}
	f.becomes("none")
	wantTimestamp(t, c)
	f.becomes(otherID.String())
	await.Expired(t, everyWay(c)["batch"], func(err error) bool { return errors.Is(err, isotone.ErrWrongCluster) })
}

// TestCluster_OneWithoutAnIDIsWaitedFor: the ID of a cluster that is being formed is unknown.
func TestCluster_OneWithoutAnIDIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1)
	f.becomes("")
	c := f.dial(client.Options{Lazy: true})
	for _, call := range everyWay(c) {
		await.Expired(t, call, func(err error) bool {
			return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), "does not know its cluster yet")
		})
	}
	if got := f.asked(); got != 0 {
		t.Errorf("it was asked %d times", got)
	}
	f.becomes(fakeID.String())
	wantTimestamp(t, c)
	f.becomes("nonsense")
	await.Expired(t, everyWay(c)["batch"], func(err error) bool {
		return errors.Is(err, isotone.ErrDeadlineExceeded) && strings.Contains(err.Error(), "malformed")
	})
}

// TestCluster_CostsNoRoundTrip: the question for the cluster is sent together with the first
// command of a connection, and only once.
func TestCluster_CostsNoRoundTrip(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &introduction{Conn: conn, t: t}, err
	}})
	for range 10 {
		wantTimestamp(t, c)
		if _, err := c.Timestamps(within(t, 10*time.Second), 2); err != nil {
			t.Fatal(err)
		}
	}
	n := f.nodes[0]
	n.mu.Lock()
	dials := n.dials
	n.mu.Unlock()
	if got := n.count("INFO"); got > dials {
		t.Errorf("%d questions on %d connections", got, dials)
	}
}

// introduction is a connection whose first write has two commands.
type introduction struct {
	net.Conn
	t       *testing.T
	written bool
}

func (i *introduction) Write(b []byte) (int, error) {
	if !i.written && (strings.Count(string(b), "*") < 2 || !strings.HasPrefix(string(b), "*2\r\n$4\r\nINFO\r\n")) {
		i.t.Errorf("a connection begins with %q", b)
	}
	i.written = true
	return i.Conn.Write(b)
}
