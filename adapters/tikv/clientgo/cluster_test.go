//go:build linux

package clientgo_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/cluster"
)

// startNodes builds the command of this repository, and returns a client of three nodes.
func startNodes(t *testing.T) (*chaos.Cluster, *client.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts nodes")
	}
	binary, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	nodes := chaos.StartCluster(t, chaos.Options{Binary: binary})
	c, err := client.New(testContext(t), nodes.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return nodes, c
}

// Transactions with timestamps of a real cluster go on when its leader is killed.
func TestTransaction_CommitsWithTimestampsOfACluster(t *testing.T) {
	nodes, c := startNodes(t)
	store := newStore(t, c)
	ctx := testContext(t)
	increment := func(get func(string) (int, error), set func(string, int) error) error {
		a, err := get("a")
		z, err2 := get("z")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if a != -z {
			return fmt.Errorf("a is %d, z is %d", a, z)
		}
		return errors.Join(set("a", a+1), set("z", z-1))
	}
	if _, err := transact(ctx, store, func(_ func(string) (int, error), set func(string, int) error) error {
		return errors.Join(set("a", 0), set("z", 0))
	}); err != nil {
		t.Fatal(err)
	}
	const callers, times = 4, 20
	halfway := make(chan struct{})
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			for n := range times {
				if i == 0 && n == times/2 {
					close(halfway)
				}
				if _, err := transact(ctx, store, increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	<-halfway
	nodes.WaitLeader().Kill()
	work.Wait()
	if _, err := transact(ctx, store, func(get func(string) (int, error), _ func(string, int) error) error {
		if a, err := get("a"); err != nil || a != callers*times {
			return fmt.Errorf("a is %d, %w; want %d", a, err, callers*times)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
