package redisstore_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/redisstore"
)

func TestStore_SurvivesARestart(t *testing.T) {
	s := server{durable: true}
	t.Cleanup(s.stop)
	client := s.client(t)
	store := open(t, client, redisstore.Options{Name: "n", Parts: 2})
	change := txn.Change{
		Next: 7, Lock: []byte("lock"), Put: txn.Version{Commit: 3, Value: []byte("value")}, Record: txn.Record{Start: 2, Commit: 3},
	}
	if ok, err := store.Write(t.Context(), []byte("k"), change); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := store.Raise(t.Context(), txn.Points{Safe: 2, Resolved: 1}); err != nil {
		t.Fatal(err)
	}
	before, _, err := store.Read(t.Context(), []byte("k"), 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	// The server has forgotten the scripts as well.
	row, points, err := store.Read(t.Context(), []byte("k"), 3, 2)
	if err != nil || row.Revision != 7 || string(row.Lock) != "lock" || row.Record != before.Record || string(row.Version.Value) != "value" {
		t.Errorf("after a restart: %+v, %v; want %+v", row, err, before)
	}
	if points != (txn.Points{Safe: 2, Resolved: 1}) {
		t.Errorf("after a restart: %+v", points)
	}
}

// TestStore_FailsWhileItsSlotMoves has the slot leave for a master that is not there.
func TestStore_FailsWhileItsSlotMoves(t *testing.T) {
	s := server{clustered: true}
	t.Cleanup(s.stop)
	client := s.client(t).(*redis.ClusterClient)
	store := open(t, client, redisstore.Options{Name: "n"})
	change := txn.Change{Next: 1, Lock: []byte("lock"), Put: txn.Version{Commit: 3}}
	if ok, err := store.Write(t.Context(), []byte("k"), change); !ok || err != nil {
		t.Fatal(ok, err)
	}
	slot, err := client.ClusterKeySlot(t.Context(), "{n/0}keys").Result()
	if err != nil {
		t.Fatal(err)
	}
	node := redis.NewClient(&redis.Options{Addr: s.addr})
	defer node.Close()
	other := server{clustered: true, empty: true}
	t.Cleanup(other.stop)
	other.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := poll(ctx, func() error { return moveTo(ctx, node, slot, &other) }); err != nil {
		t.Fatal(err)
	}
	_, _, readErr := store.Read(t.Context(), []byte("k"), 9, 0)
	_, writeErr := store.Write(t.Context(), []byte("k"), txn.Change{If: 1, Next: 2, Lock: []byte("other")})
	_, scanErr := store.Scan(t.Context(), txn.Range{Limit: 1}, 1)
	for name, err := range map[string]error{"Read": readErr, "Write": writeErr, "Scan": scanErr} {
		if !redis.HasErrorPrefix(err, "TRYAGAIN") {
			t.Errorf("%s while the slot moves: %v", name, err)
		}
	}
	if err := node.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "STABLE").Err(); err != nil {
		t.Fatal(err)
	}
	if row, _, err := store.Read(t.Context(), []byte("k"), 9, 0); err != nil || row.Revision != 1 || string(row.Lock) != "lock" {
		t.Errorf("the row is %+v, %v", row, err)
	}
}

// moveTo has a node begin to move a slot to another one. It fails until they know each other.
func moveTo(ctx context.Context, node *redis.Client, slot int64, other *server) error {
	host, port, err := net.SplitHostPort(other.addr)
	if err != nil {
		return err
	}
	if err := node.Do(ctx, "CLUSTER", "MEET", host, port, other.bus).Err(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: other.addr})
	defer client.Close()
	id, err := client.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	return node.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", id).Err()
}
