package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
)

// checkClient refuses clients with which the store would be wrong, or would wait without a bound.
func checkClient(client redis.UniversalClient) error {
	var read, write time.Duration
	switch c := client.(type) {
	case *redis.Client:
		read, write = c.Options().ReadTimeout, c.Options().WriteTimeout
	case *redis.ClusterClient:
		read, write = c.Options().ReadTimeout, c.Options().WriteTimeout
	default:
		// A *redis.Ring moves keys to other servers when one does not answer.
		return isotone.Errorf(isotone.CodeInvalidArgument, "redisstore: the client is a %T: want a *redis.Client or a *redis.ClusterClient", client)
	}
	if read <= 0 || write <= 0 {
		return isotone.Errorf(isotone.CodeInvalidArgument, "redisstore: the client has no timeout for reads or for writes")
	}
	return nil
}

// checkServers refuses servers that evict keys.
func checkServers(ctx context.Context, client redis.UniversalClient) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, checkServer)
	}
	return checkServer(ctx, client.(*redis.Client))
}

func checkServer(ctx context.Context, client *redis.Client) error {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("redisstore: INFO memory: %w", err)
	}
	for line := range strings.Lines(info) {
		policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		if ok && strings.HasPrefix(policy, "allkeys") {
			return isotone.Errorf(isotone.CodeInvalidArgument, "redisstore: maxmemory-policy is %s, by which rows would be lost: want noeviction", policy)
		}
	}
	return nil
}
