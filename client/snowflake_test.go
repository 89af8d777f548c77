package client_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/snowflake"
)

func TestSnowflake_ComesFromAllMembersInTurns(t *testing.T) {
	f := startCluster(t, 3)
	c := f.dial(client.Options{Addrs: f.addrs()[:1]})
	ctx := within(t, 10*time.Second)
	var before [3]int
	await.Until(t, "a connection to each", func() bool {
		_, _ = c.Snowflake(ctx)
		for i, n := range f.nodes {
			before[i] = n.count("SNOWFLAKE")
		}
		return min(before[0], before[1], before[2]) > 0
	})
	seen := map[snowflake.ID]bool{}
	for range 30 {
		id, err := c.Snowflake(ctx)
		if err != nil || seen[id] {
			t.Fatalf("%v, %v; seen before: %v", id, err, seen[id])
		}
		seen[id] = true
	}
	for _, n := range f.nodes {
		if got := n.count("SNOWFLAKE") - before[n.index]; got != 10 {
			t.Errorf("node %d was asked %d times of 30", n.index, got)
		}
	}
}

func TestSnowflakes_AnyCountUpToTheLimit(t *testing.T) {
	f := startCluster(t, 2)
	c := f.dial(client.Options{})
	ctx := within(t, 20*time.Second)
	seen := map[snowflake.ID]bool{}
	for _, count := range []int{1, 2, 4096, 4097, client.IDsMax} {
		ids, err := c.Snowflakes(ctx, count)
		if err != nil || len(ids) != count {
			t.Fatalf("%d IDs: %d, %v", count, len(ids), err)
		}
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("%v twice", id)
			}
			seen[id] = true
		}
	}
	for _, count := range []int{-1, 0, client.IDsMax + 1} {
		if _, err := c.Snowflakes(ctx, count); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%d IDs: %v", count, err)
		}
	}
}

func TestSnowflake_CallsShareRequests(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	ctx := within(t, 10*time.Second)
	_, _ = c.Snowflake(ctx)
	f.nodes[0].freeze()
	var mu sync.Mutex
	seen := map[snowflake.ID]bool{}
	var wg sync.WaitGroup
	const calls = 5000 // more than fit in one request
	for range calls {
		wg.Go(func() {
			id, err := c.Snowflake(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[id] {
				t.Errorf("%v, %v; seen before: %v", id, err, seen[id])
			}
			seen[id] = true
		})
	}
	await.Until(t, "nearly all wait", func() bool { return client.Waiting(c) > calls-100 })
	f.nodes[0].thaw()
	wg.Wait()
	if got := f.nodes[0].count("SNOWFLAKE"); got > calls/10 {
		t.Errorf("%d requests for %d calls", got, calls)
	}
}

// TestSnowflake_FailsOver: whatever is wrong with a member, the client asks another.
func TestSnowflake_FailsOver(t *testing.T) {
	for name, ail := range map[string]func(*node){
		"gone":   (*node).stop,
		"frozen": (*node).freeze,
		"without a worker": func(n *node) {
			n.replies(func(args []string) ([]byte, bool) {
				return []byte("-TRYAGAIN no worker\r\n"), args[0] == "SNOWFLAKE"
			})
		},
		"elsewhere": func(n *node) {
			n.replies(func(args []string) ([]byte, bool) {
				return []byte("-MOVED 0 127.0.0.1:1\r\n"), args[0] == "SNOWFLAKE"
			})
		},
		"negative IDs": func(n *node) {
			n.replies(func(args []string) ([]byte, bool) {
				return []byte(":-5\r\n"), args[0] == "SNOWFLAKE"
			})
		},
		"too few IDs": func(n *node) {
			n.replies(func(args []string) ([]byte, bool) {
				return []byte("*0\r\n"), args[0] == "SNOWFLAKE"
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startCluster(t, 3)
			c := f.dial(client.Options{})
			ctx := within(t, 10*time.Second)
			_, _ = c.Snowflake(ctx)
			ail(f.nodes[0])
			ail(f.nodes[1])
			begin := time.Now()
			for range 50 {
				if _, err := c.Snowflakes(ctx, 3); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begin); took > 8*time.Second {
				t.Errorf("50 calls took %v", took)
			}
		})
	}
}

func TestSnowflake_OfANodeWithoutThemIsAnError(t *testing.T) {
	f := startCluster(t, 1)
	c := f.dial(client.Options{})
	f.nodes[0].replies(func(args []string) ([]byte, bool) {
		return []byte("-ERR unknown command 'SNOWFLAKE'\r\n"), args[0] == "SNOWFLAKE"
	})
	_, err := c.Snowflake(within(t, 10*time.Second))
	if !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "unknown command") {
		t.Error(err)
	}
}

// TestSnowflake_AllMembersAreReplaced at once, while nothing but IDs is asked for.
func TestSnowflake_AllMembersAreReplaced(t *testing.T) {
	inMemory(t, 2, func(t *testing.T, f *cluster, c *client.Client, _ *memory) {
		ids := func(d time.Duration) {
			t.Helper()
			for begin := time.Now(); time.Since(begin) < d; time.Sleep(10 * time.Millisecond) {
				ctx, cancel := deadline(2 * time.Second)
				_, err := c.Snowflake(ctx)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		ids(time.Second)
		f.add()
		f.add()
		f.lead(2)
		if _, err := c.Timestamp(t.Context()); err != nil { // MOVED
			t.Fatal(err)
		}
		f.remove(0, 1)
		ids(time.Second)
		f.add()
		f.remove(3)
		ids(time.Second)
		// The leader remains, and the client is connected with it.
		if f.nodes[2].count("SNOWFLAKE") == 0 {
			t.Error("the member that remains was not asked")
		}
	})
}
