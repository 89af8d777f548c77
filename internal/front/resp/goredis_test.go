package resp

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
)

// mute drops what go-redis logs of nodes that it cannot reach.
type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(mute{}) }

func TestGoRedis_Plain(t *testing.T) {
	for _, version := range []int{2, 3} {
		r := newRig(t, 1)
		ctx := context.Background()
		c := redis.NewClient(&redis.Options{Addr: r.node(1).addr, Protocol: version, ClientName: "test", DB: 0})
		defer c.Close()
		var order ascending
		for range 100 {
			ts, err := c.Do(ctx, "TS").Text()
			if err != nil {
				t.Fatal(err)
			}
			order.next(t, ts)
		}
		pipe := c.Pipeline()
		var cmds []*redis.Cmd
		for range 1000 {
			cmds = append(cmds, pipe.Do(ctx, "TS", 1000, "QUORUM"))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		for _, cmd := range cmds {
			order.next(t, cmd.Val().(string))
		}
		if err := c.Do(ctx, "TS", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "ERR count") {
			t.Errorf("TS 0: %v", err)
		}
		checkGoRedisCommands(t, ctx, c)
	}
}

func checkGoRedisCommands(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	if v, err := c.Ping(ctx).Result(); v != "PONG" || err != nil {
		t.Errorf("PING: %q, %v", v, err)
	}
	if v, err := c.Echo(ctx, "x").Result(); v != "x" || err != nil {
		t.Errorf("ECHO: %q, %v", v, err)
	}
	if v, err := c.ClientGetName(ctx).Result(); v != "test" || err != nil {
		t.Errorf("CLIENT GETNAME: %q, %v", v, err)
	}
	if v, err := c.Info(ctx, "server").Result(); !strings.Contains(v, "isotone_version:test\r\n") || err != nil {
		t.Errorf("INFO: %q, %v", v, err)
	}
	if v, err := c.Command(ctx).Result(); err != nil || v["ts"] == nil || v["ts"].FirstKeyPos != 1 {
		t.Errorf("COMMAND: %v, %v", v, err)
	}
	if v, err := c.ConfigGet(ctx, "save").Result(); len(v) != 1 || v["save"] != "" || err != nil {
		t.Errorf("CONFIG GET: %v, %v", v, err)
	}
	if v, err := c.ClusterShards(ctx).Result(); len(v) != 1 || err != nil || v[0].Slots[0].End != 16383 || v[0].Nodes[0].Role != "master" {
		t.Errorf("CLUSTER SHARDS: %v, %v", v, err)
	}
	if v, err := c.ClusterKeySlot(ctx, "123456789").Result(); v != 12739 || err != nil {
		t.Errorf("CLUSTER KEYSLOT: %v, %v", v, err)
	}
	if v, err := c.ClientInfo(ctx).Result(); err != nil || v.Name != "test" {
		t.Errorf("CLIENT INFO: %v, %v", v, err)
	}
	if err := c.Get(ctx, "x").Err(); err == nil || !strings.HasPrefix(err.Error(), "ERR unknown command 'get'") {
		t.Errorf("GET: %v", err)
	}
}

func TestGoRedis_PlainClientSeesWhoLeads(t *testing.T) {
	r := newRig(t, 2)
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: r.node(2).addr})
	defer c.Close()
	if err := c.Do(ctx, "TS").Err(); err == nil || err.Error() != "MOVED 0 "+r.node(1).addr {
		t.Errorf("got %v", err)
	}
}

func newGoRedisCluster(r *rig) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: r.addrs(), MaxRedirects: 10, ClusterStateReloadInterval: 100 * time.Millisecond,
		DialTimeout: time.Second, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 100 * time.Millisecond,
	})
}

// TestGoRedis_ClusterGoesToTheLeader: the first request already, although TS has no real key.
func TestGoRedis_ClusterGoesToTheLeader(t *testing.T) {
	r := newRig(t, 3)
	r.lead(2)
	c := newGoRedisCluster(r)
	defer c.Close()
	var order ascending
	for i := range 200 {
		cmd := [][]any{{"TS"}, {"TS", 1}, {"ts", "1", "lease"}}[i%3]
		ts, err := c.Do(context.Background(), cmd...).Text()
		if err != nil {
			t.Fatal(err)
		}
		order.next(t, ts)
	}
	if got := r.node(2).served.Load(); got != 200 {
		t.Errorf("the leader has served %d", got)
	}
}

// TestGoRedis_ClusterFollows: clients ask all the time, alone and in pipelines, while
// the leadership moves, is lost, and the leader is killed.
func TestGoRedis_ClusterFollows(t *testing.T) {
	r := newRig(t, 3)
	c := newGoRedisCluster(r)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() { goRedisLoad(t, ctx, c) })
	}
	progress := func(id uint64) {
		t.Helper()
		from := r.node(id).served.Load()
		for end := time.Now().Add(patience); r.node(id).served.Load() < from+500; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("node %d serves nothing", id)
			}
		}
	}
	progress(1)
	r.lead(2)
	progress(2)
	overloaded := isotone.Errorf(isotone.CodeOverloaded, "too much")
	r.node(2).failed.Store(overloaded)
	time.Sleep(20 * time.Millisecond)
	r.node(2).failed.Store(nil)
	progress(2)
	r.lead(0)
	time.Sleep(50 * time.Millisecond)
	r.lead(1)
	progress(1)
	r.lead(0)
	r.node(1).stop()
	time.Sleep(50 * time.Millisecond)
	r.lead(3)
	progress(3)
	cancel()
	clients.Wait()
}

// goRedisLoad asks until ctx ends. What it gets ascends; errors are such as one may try
// again after.
func goRedisLoad(t *testing.T, ctx context.Context, c *redis.ClusterClient) {
	var order ascending
	for ctx.Err() == nil {
		ts, err := c.Do(ctx, "TS").Text()
		if err == nil {
			order.next(t, ts)
		} else if isBad(ctx, err) {
			t.Errorf("TS: %v", err)
		}
		pipe := c.Pipeline()
		for range 10 {
			pipe.Do(ctx, "TS", 2)
		}
		cmds, _ := pipe.Exec(ctx)
		for _, cmd := range cmds {
			if err := cmd.Err(); err == nil {
				order.next(t, cmd.(*redis.Cmd).Val().(string))
			} else if isBad(ctx, err) {
				t.Errorf("pipeline: %v", err)
			}
		}
	}
}

func isBad(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	var redisErr redis.Error
	if !errors.As(err, &redisErr) {
		return false // a connection that has broken
	}
	return !strings.HasPrefix(err.Error(), "CLUSTERDOWN ") && !strings.HasPrefix(err.Error(), "TRYAGAIN ") && !strings.HasPrefix(err.Error(), "MOVED ")
}
