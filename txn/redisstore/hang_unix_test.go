//go:build unix

package redisstore_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/txn/internal/storecheck"
	"github.com/isotone/isotone/txn/redisstore"
)

func TestStore_EndsCallsWhenTheServerHangs(t *testing.T) {
	s := server{}
	t.Cleanup(s.stop)
	s.start(t)
	// Close waits for requests that were cancelled, up to the timeout for reads.
	client := redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, ReadTimeout: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	store := open(t, client, redisstore.Options{Name: "n"})
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	storecheck.EndsCalls(t, store)
}
