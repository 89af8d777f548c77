package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/storecheck"
	"github.com/isotone/isotone/txn/redisstore"
	"github.com/isotone/isotone/txn/storetest"
)

// awaitTimeout bounds how long a test waits for servers, far above what they need.
const awaitTimeout = 30 * time.Second

// await waits until f returns nil.
func await(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	if err := poll(ctx, func() error { return f(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// awaitInfo waits until the INFO of replication has a line.
func (s *server) awaitInfo(t *testing.T, line string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	await(t, func(ctx context.Context) error {
		info, err := client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, line+"\r\n") {
			err = errors.New("INFO replication lacks " + line + ":\n" + info)
		}
		return err
	})
}

// restart kills the server, and starts it again.
func (s *server) restart(t *testing.T) {
	t.Helper()
	s.kill()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

func TestStore_KeepsWhatItHasAnsweredWhenKilled(t *testing.T) {
	storetest.RunDurable(t, func(t *testing.T) storetest.Faults {
		s := &server{durable: true}
		t.Cleanup(s.stop)
		store := open(t, s.client(t), redisstore.Options{Name: "n", Parts: 2})
		return storetest.Faults{Store: store, FailOver: func() txn.Store {
			s.restart(t)
			return store
		}}
	})
}

func TestStore_KeepsTransactionsWhenKilled(t *testing.T) {
	s := server{durable: true}
	t.Cleanup(s.stop)
	store := open(t, s.client(t), redisstore.Options{Name: "n"})
	storecheck.Transfers(t, store, func() { s.restart(t) })
}

// newReplica starts a master and a replica of it.
func newReplica(t *testing.T) (master, replica *server) {
	t.Helper()
	master = &server{durable: true}
	replica = &server{durable: true, master: master}
	for _, s := range []*server{master, replica} {
		t.Cleanup(s.stop)
		s.start(t)
	}
	replica.awaitInfo(t, "master_link_status:up")
	return master, replica
}

// TestStore_KeepsTransactionsThroughAPlannedFailover has the master hand over, which waits until the replica has
// everything. A failover without that may lose answered writes.
func TestStore_KeepsTransactionsThroughAPlannedFailover(t *testing.T) {
	master, replica := newReplica(t)
	var current atomic.Pointer[server]
	current.Store(master)
	client := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, current.Load().addr)
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	store := open(t, client, redisstore.Options{Name: "n"})
	storecheck.Transfers(t, store, func() {
		host, port, err := net.SplitHostPort(replica.addr)
		if err != nil {
			t.Error(err)
		}
		direct := redis.NewClient(&redis.Options{Addr: master.addr})
		defer direct.Close()
		if err := direct.Do(t.Context(), "FAILOVER", "TO", host, port).Err(); err != nil {
			t.Error(err)
		}
		replica.awaitInfo(t, "role:master")
		master.awaitInfo(t, "role:slave")
		current.Store(replica)
		master.kill()
	})
}

// TestStore_RefusesEverythingWithoutItsReplicas is for a master that may have been replaced.
func TestStore_RefusesEverythingWithoutItsReplicas(t *testing.T) {
	master, replica := newReplica(t)
	client := master.client(t).(*redis.Client)
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	store := open(t, client, redisstore.Options{Name: "n"})
	if err := store.Raise(t.Context(), txn.Points{Safe: 1}); err != nil {
		t.Fatal(err)
	}
	replica.kill()
	master.awaitInfo(t, "min_slaves_good_slaves:0")
	_, _, readErr := store.Read(t.Context(), []byte("k"), 1, 1)
	_, scanErr := store.Scan(t.Context(), txn.Range{Limit: 1}, 1)
	_, pointsErr := store.Points(t.Context())
	_, writeErr := store.Write(t.Context(), []byte("k"), txn.Change{Next: 1, Lock: []byte("l")})
	raiseErr := store.Raise(t.Context(), txn.Points{Safe: 2})
	for name, err := range map[string]error{"Read": readErr, "Scan": scanErr, "Points": pointsErr, "Write": writeErr, "Raise": raiseErr} {
		if !redis.HasErrorPrefix(err, "NOREPLICAS") {
			t.Errorf("%s without a replica: %v", name, err)
		}
	}
}
