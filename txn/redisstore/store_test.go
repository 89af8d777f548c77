package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/storecheck"
	"github.com/isotone/isotone/txn/redisstore"
	"github.com/isotone/isotone/txn/storetest"
)

// stores makes the names of stores unique in the servers.
var stores atomic.Int64

func newName() string { return fmt.Sprint("store", stores.Add(1)) }

// client returns a client, which is closed at the end of the test.
func (s *server) client(t *testing.T) redis.UniversalClient {
	t.Helper()
	s.start(t)
	var client redis.UniversalClient
	if s.clustered {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.addr}, ContextTimeoutEnabled: true})
	} else {
		client = redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true})
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t *testing.T, client redis.UniversalClient, opts redisstore.Options) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), client, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// kinds are the ways in which a store can be spread.
var kinds = []struct {
	name   string
	server *server
	parts  int
}{
	{"OnePart", &plain, 1},
	{"Parts", &plain, 5},
	{"Cluster", &cluster, 1},
	{"ClusterParts", &cluster, 3},
}

func TestStore_KeepsContract(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			kind.server.start(t)
			storetest.Run(t, func(t *testing.T) txn.Store {
				return open(t, kind.server.client(t), redisstore.Options{Name: newName(), Parts: kind.parts})
			})
		})
	}
}

func TestWrite_CountsEachSuccessOnce(t *testing.T) {
	for _, kind := range kinds[1:3] {
		t.Run(kind.name, func(t *testing.T) {
			opts := redisstore.Options{Name: newName(), Parts: kind.parts}
			first := open(t, kind.server.client(t), opts)
			second := open(t, kind.server.client(t), opts)
			storecheck.Counts(t, []txn.Store{first, second}, 4, 40)
		})
	}
}

func TestOpen_RefusesBadOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	for _, opts := range []redisstore.Options{
		{},
		{Name: "{tag}"},
		{Name: "a/b"},
		{Name: strings.Repeat("n", 65)},
		{Name: "n", Parts: -1},
		{Name: "n", Parts: redisstore.PartsMax + 1},
	} {
		if _, err := redisstore.Open(t.Context(), client, opts); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

func TestOpen_RefusesBadClients(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	endless := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: -1})
	defer endless.Close()
	for _, client := range []redis.UniversalClient{nil, ring, endless} {
		if _, err := redisstore.Open(t.Context(), client, redisstore.Options{Name: "n"}); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%T: %v", client, err)
		}
	}
}

func TestOpen_RefusesOtherParts(t *testing.T) {
	client := plain.client(t)
	name := newName()
	open(t, client, redisstore.Options{Name: name, Parts: 3})
	open(t, client, redisstore.Options{Name: name, Parts: 3})
	if _, err := redisstore.Open(t.Context(), client, redisstore.Options{Name: name}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("a store of 3 parts was opened with one: %v", err)
	}
}

func TestOpen_RefusesEviction(t *testing.T) {
	s := server{}
	t.Cleanup(s.stop)
	client := s.client(t).(*redis.Client)
	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Options{Name: "n"}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("a server that evicts keys: %v", err)
	}
}

func TestStore_FailsOnAReplica(t *testing.T) {
	s := server{}
	t.Cleanup(s.stop)
	client := s.client(t).(*redis.Client)
	store := open(t, client, redisstore.Options{Name: "n"})
	// A replica of a master that does not answer still serves what it has.
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, _, readErr := store.Read(t.Context(), []byte("k"), 1, 1)
	_, scanErr := store.Scan(t.Context(), txn.Range{Limit: 1}, 1)
	_, writeErr := store.Write(t.Context(), []byte("k"), txn.Change{If: 5, Next: 6})
	_, pointsErr := store.Points(t.Context())
	for name, err := range map[string]error{"Read": readErr, "Scan": scanErr, "Write": writeErr, "Points": pointsErr} {
		if !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("%s at a replica: %v", name, err)
		}
	}
}

// TestWrite_IsNotRepeated breaks the connection after a write was sent.
func TestWrite_IsNotRepeated(t *testing.T) {
	client := plain.client(t).(*redis.Client)
	store := open(t, client, redisstore.Options{Name: newName()})
	opts := *client.Options()
	opts.MaxRetries = 3
	lossy := redis.NewClient(&opts)
	defer lossy.Close()
	loss := &lossyHook{}
	lossy.AddHook(loss)
	other, err := redisstore.Open(t.Context(), lossy, redisstore.Options{Name: fmt.Sprint("store", stores.Load())})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := store.Write(t.Context(), []byte("warm"), txn.Change{Next: 1, Lock: []byte("l")}); err != nil {
		t.Fatal(err) // the server knows the script now
	}
	loss.on.Store(true)
	done, err := other.Write(t.Context(), []byte("k"), txn.Change{Next: 1, Lock: []byte("lock")})
	if done || err == nil {
		t.Fatalf("a write whose answer was lost: %v, %v", done, err)
	}
	if n := loss.sent.Load(); n != 1 {
		t.Errorf("the write was sent %d times", n)
	}
	row, _, err := store.Read(t.Context(), []byte("k"), 1, 1)
	if err != nil || row.Revision != 1 {
		t.Errorf("the row is %+v, %v; want the write", row, err)
	}
	loss.sent.Store(0)
	if _, _, err := other.Read(t.Context(), []byte("k"), 1, 1); err == nil || loss.sent.Load() != 4 {
		t.Errorf("a read was sent %d times, want 4: %v", loss.sent.Load(), err)
	}
}

func TestStore_CloseEndsIt(t *testing.T) {
	client := plain.client(t)
	store, err := redisstore.Open(t.Context(), client, redisstore.Options{Name: newName()})
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	store.Close()
	if _, err := store.Points(t.Context()); !errors.Is(err, redisstore.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestStore_FullServerGoesOnToRemove(t *testing.T) {
	s := server{}
	t.Cleanup(s.stop)
	client := s.client(t).(*redis.Client)
	store := open(t, client, redisstore.Options{Name: "n"})
	write := func(c txn.Change) error {
		done, err := store.Write(t.Context(), []byte("k"), c)
		if err == nil && !done {
			t.Fatalf("the write %+v was refused", c)
		}
		return err
	}
	version := txn.Version{Commit: 5, Value: []byte("value")}
	if err := write(txn.Change{Next: 1, Lock: []byte("lock"), Put: version}); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := write(txn.Change{If: 1, Next: 2, Put: txn.Version{Commit: 6}}); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("a write to a full server: %v", err)
	}
	row, _, err := store.Read(t.Context(), []byte("k"), 9, 0)
	if err != nil || row.Revision != 1 || string(row.Lock) != "lock" || row.Newest != 5 {
		t.Errorf("the row is %+v, %v", row, err)
	}
	if err := write(txn.Change{If: 1, Next: 3}); err != nil {
		t.Errorf("to remove a lock: %v", err)
	}
	if err := write(txn.Change{If: 3, Next: 4, DropVersions: 6}); err != nil {
		t.Errorf("to remove a version: %v", err)
	}
	if row, _, err := store.Read(t.Context(), []byte("k"), 9, 0); err != nil || row.Revision != 0 {
		t.Errorf("the row is %+v, %v; want none", row, err)
	}
}

func TestStore_FailsWhenTheServerIsGone(t *testing.T) {
	s := server{}
	client := s.client(t).(*redis.Client)
	store := open(t, client, redisstore.Options{Name: "n"})
	s.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if done, err := store.Write(ctx, []byte("k"), txn.Change{Next: 1, Lock: []byte("l")}); done || err == nil {
		t.Errorf("a write without a server: %v, %v", done, err)
	}
}
