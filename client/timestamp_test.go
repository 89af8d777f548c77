package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
)

// TestTimestamp64_HasOneOrderWithTheOthers, in every way to ask for it.
func TestTimestamp64_HasOneOrderWithTheOthers(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	ctx := context.Background()
	above := increasing(t)
	for range 20 {
		u, err := c.Timestamp64(ctx)
		above(u.Timestamp(), u.Timestamp(), err)
		ts, err := c.Timestamp(ctx)
		above(ts, ts, err)
		us, err := c.Timestamps64(ctx, 7)
		above(us.First.Timestamp(), us.Last().Timestamp(), err)
		future := c.Timestamp64Async(ctx)
		u, err = future.Wait()
		above(u.Timestamp(), u.Timestamp(), err)
		us, err = c.In(isotone.ReadLease).Above(u.Timestamp()).Timestamps64(ctx, 3)
		above(us.First.Timestamp(), us.Last().Timestamp(), err)
		u, err = c.In(isotone.ReadQuorum).Above(us.Last().Timestamp()).Timestamp64(ctx)
		above(u.Timestamp(), u.Timestamp(), err)
	}
	if n := f.nodes[0].count("TS64 7"); n != 20 {
		t.Errorf("%d requests for 7", n)
	}
	if n := f.nodes[0].count("TS64 3 LEASE FLOOR "); n != 20 {
		t.Errorf("%d requests with a floor", n)
	}
}

func TestTimestamps64_HasItsLimits(t *testing.T) {
	c := startCluster(t, 1).dial(client.Options{})
	ctx := context.Background()
	for _, count := range []uint64{0, isotone.Range64CountMax + 1} {
		if _, err := c.Timestamps64(ctx, count); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%d: %v", count, err)
		}
	}
	if _, err := c.In(9).Timestamp64(ctx); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("mode 9: %v", err)
	}
	if r, err := c.Timestamps64(ctx, isotone.Range64CountMax); err != nil || r.Count != isotone.Range64CountMax {
		t.Errorf("%v, %v", r, err)
	}
}

// TestTimestamp64_MalformedAnswersEndTheConnection, and the call asks again.
func TestTimestamp64_MalformedAnswersEndTheConnection(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	for _, bad := range []string{"$20\r\n18446744073709551000\r\n", ":5\r\n", "$-1\r\n", "$0\r\n\r\n", "$2\r\n5\r\n", "$2\r\n5x\r\n", "$20\r\n18446744073709551615\r\n", "$21\r\n000000000000000000001\r\n"} {
		var once sync.Once
		f.nodes[0].replies(func(args []string) (answer []byte, ok bool) {
			if args[0] == "TS64" {
				once.Do(func() { answer, ok = []byte(bad), true })
			}
			return answer, ok
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if u, err := c.Timestamp64(ctx); err != nil || u == 0 {
			t.Errorf("%q: %v, %v", bad, u, err)
		}
		cancel()
	}
}

// TestFuture_ManyAreUnderWayAtOnce, of one goroutine.
func TestFuture_ManyAreUnderWayAtOnce(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	ctx := context.Background()
	f.nodes[0].freeze()
	futures := make([]client.Future, 1000)
	for i := range futures {
		futures[i] = c.TimestampAsync(ctx)
	}
	f.nodes[0].thaw()
	seen := map[isotone.Timestamp]bool{}
	for i := range futures {
		ts, err := futures[i].Wait()
		if again, errAgain := futures[i].Wait(); err != nil || seen[ts] || again != ts || errAgain != nil {
			t.Fatalf("future %d: %v, %v, then %v, %v", i, ts, err, again, errAgain)
		}
		seen[ts] = true
	}
	if n := f.nodes[0].count("TS "); n > 20 {
		t.Errorf("%d requests for %d futures", n, len(futures))
	}
}

func TestFuture_EndsWithItsContext(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	f.nodes[0].freeze()
	ctx, cancel := context.WithCancel(context.Background())
	futures := []client.Future{c.TimestampAsync(ctx), c.TimestampAsync(ctx)}
	cancel()
	for i := range futures {
		for range 2 {
			if ts, err := futures[i].Wait(); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, %v", ts, err)
			}
		}
	}
	late := c.TimestampAsync(ctx)
	if _, err := late.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("begun later: %v", err)
	}
	f.nodes[0].thaw()
	var none client.Future
	if _, err := none.Wait(); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("the zero value: %v", err)
	}
}

func TestFuture_OfAClosedClientFails(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	f.nodes[0].freeze()
	future := c.TimestampAsync(context.Background())
	go func() { _ = c.Close() }()
	if _, err := future.Wait(); !errors.Is(err, client.ErrClosed) {
		t.Errorf("%v", err)
	}
	late := c.Timestamp64Async(context.Background())
	if _, err := late.Wait(); !errors.Is(err, client.ErrClosed) {
		t.Errorf("later: %v", err)
	}
	f.nodes[0].thaw()
}

// known returns the name of a command, or "" if the fake nodes are of a version that does not know it.
func (c *cluster) known(name string) string {
	if name == "TS64" && c.no64 {
		return ""
	}
	return name
}

// TestTimestamp64_OlderNodesRefuseItAlone: the call fails at once. Other calls carry the client's floor and
// their traces as before.
func TestTimestamp64_OlderNodesRefuseItAlone(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *client.Client) error{
		"direct": func(ctx context.Context, c *client.Client) error { _, err := c.Timestamp64(ctx); return err },
		"batch":  func(ctx context.Context, c *client.Client) error { _, err := c.Timestamps64(ctx, 3); return err },
		"above": func(ctx context.Context, c *client.Client) error {
			_, err := c.In(isotone.ReadLease).Above(isotone.Timestamp{Time: 1}).Timestamps64(ctx, 3)
			return err
		},
	} {
		f := startCluster(t, 1)
		f.no64 = true
		c := f.dial(client.Options{Conns: 1, TraceParent: func(context.Context) string { return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }})
		wantTimestamp(t, c)
		pings := f.nodes[0].count("PING")
		f.nodes[0].hangUp(false)
		await.Until(t, "a new connection", func() bool { return f.nodes[0].count("PING") > pings })
		for range 3 {
			if err := ask(within(t, 10*time.Second), c); !errors.Is(err, isotone.ErrInvalidArgument) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		before := len(f.nodes[0].commands("TS "))
		if _, err := one(within(t, 10*time.Second), c); err != nil {
			t.Fatal(err)
		}
		asked := f.nodes[0].commands("TS ")[before:]
		if len(asked) != 1 || !strings.Contains(asked[0], " FLOOR ") || !strings.Contains(asked[0], " TRACEPARENT ") {
			t.Errorf("%s: the next request is %q", name, asked)
		}
	}
}
