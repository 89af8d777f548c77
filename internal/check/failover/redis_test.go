//go:build linux

package failover_test

import (
	"context"
	bigendian "encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// TestRedis_AClusterClientFollowsTheLeaderThroughAKill loads three nodes with the cluster
// client of go-redis and kills the leader. Answers must come again, all of them in order.
func TestRedis_AClusterClientFollowsTheLeaderThroughAKill(t *testing.T) {
	t.Parallel()
	c := chaos.StartCluster(t, trial.Options())
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), MaxRedirects: 10, ClusterStateReloadInterval: 100 * time.Millisecond,
		DialTimeout: time.Second, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 100 * time.Millisecond,
	})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	check := lincheck.NewOnline(0)
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				floor := check.Begin()
				text, err := client.Do(ctx, "TS", 1).Text()
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				b := []byte(text)
				if len(b) != isotone.TimestampSize {
					t.Errorf("a timestamp of %d bytes", len(b))
					return
				}
				first := isotone.Timestamp{Time: bigendian.BigEndian.Uint64(b), Index: bigendian.BigEndian.Uint64(b[8:])}
				if err := check.End(floor, isotone.Range{First: first, Count: 1}); err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	trial.WantAnswers(t, &answered, 500)
	for range trial.Short(5, 2) {
		c.Settle()
		leader := c.WaitLeader()
		leader.Kill()
		trial.WantAnswers(t, &answered, 200)
		leader.Start()
	}
	cancel()
	wg.Wait()
}
