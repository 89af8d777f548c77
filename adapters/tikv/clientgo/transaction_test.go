package clientgo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/pingcap/log"
	tikverr "github.com/tikv/client-go/v2/error"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikv"
	"go.uber.org/zap/zapcore"

	"github.com/isotone/isotone/adapters/tikv/clientgo"
)

// newStore returns client-go's store over its mock of TiKV, with timestamps from s.
func newStore(t *testing.T, s clientgo.Source) *tikv.KVStore {
	t.Helper()
	log.SetLevel(zapcore.FatalLevel)
	client, cluster, pd, err := testutils.NewMockTiKV("", nil)
	if err != nil {
		t.Fatal(err)
	}
	testutils.BootstrapWithMultiRegions(cluster, []byte("m"))
	store, err := tikv.NewTestTiKVStore(client, pd, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	o, err := clientgo.NewOracle(testContext(t), s, clientgo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	previous := store.GetOracle()
	store.SetOracle(o)
	previous.Close()
	return store
}

// transact runs f in a transaction until it commits without a conflict.
func transact(ctx context.Context, store *tikv.KVStore, f func(get func(string) (int, error), set func(string, int) error) error) (start uint64, err error) {
	for ctx.Err() == nil {
		txn, err := store.Begin()
		if err != nil {
			return 0, err
		}
		get := func(key string) (int, error) {
			value, err := txn.Get(ctx, []byte(key))
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(string(value))
		}
		set := func(key string, n int) error { return txn.Set([]byte(key), []byte(strconv.Itoa(n))) }
		if err := f(get, set); err != nil {
			return 0, errors.Join(err, txn.Rollback())
		}
		var conflict *tikverr.ErrWriteConflict
		if err = txn.Commit(ctx); !errors.As(err, &conflict) {
			return txn.StartTS(), err
		}
	}
	return 0, ctx.Err()
}

func TestTransaction_CommitsAndIsRead(t *testing.T) {
	store := newStore(t, &source{})
	ctx := testContext(t)
	first, err := transact(ctx, store, func(_ func(string) (int, error), set func(string, int) error) error {
		return errors.Join(set("a", 1), set("z", 2)) // in two regions: a commit in two phases
	})
	if err != nil {
		t.Fatal(err)
	}
	second, err := transact(ctx, store, func(get func(string) (int, error), _ func(string, int) error) error {
		for key, want := range map[string]int{"a": 1, "z": 2} {
			if got, err := get(key); err != nil || got != want {
				return fmt.Errorf("%s is %d, %w; want %d", key, got, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if second <= first {
		t.Errorf("a transaction began at %d, and one after it at %d", first, second)
	}
	// A snapshot as of the first transaction's start has nothing of it.
	if _, err := store.GetSnapshot(first).Get(ctx, []byte("a")); !tikverr.IsErrNotFound(err) {
		t.Errorf("the snapshot before has %v", err)
	}
}

// Transfers between accounts in both regions keep the sum, whoever reads it when.
func TestTransaction_ConcurrentTransfersKeepTheSum(t *testing.T) {
	store := newStore(t, &source{})
	ctx := testContext(t)
	accounts := []string{"a", "b", "y", "z"}
	if _, err := transact(ctx, store, func(_ func(string) (int, error), set func(string, int) error) error {
		var all []error
		for _, account := range accounts {
			all = append(all, set(account, 100))
		}
		return errors.Join(all...)
	}); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := range 10 {
				from, to := accounts[(i+n)%4], accounts[(i+n+1+n%3)%4]
				if _, err := transact(ctx, store, func(get func(string) (int, error), set func(string, int) error) error {
					x, err := get(from)
					y, err2 := get(to)
					return errors.Join(err, err2, set(from, x-1), set(to, y+1))
				}); err != nil {
					t.Error(err)
				}
				if got, err := sum(ctx, store, accounts); err != nil || got != 400 {
					t.Errorf("the sum is %d, %v; want 400", got, err)
				}
			}
		})
	}
	work.Wait()
}

// sum reads all accounts in one snapshot.
func sum(ctx context.Context, store *tikv.KVStore, accounts []string) (int, error) {
	txn, err := store.Begin()
	if err != nil {
		return 0, err
	}
	defer func() { _ = txn.Rollback() }()
	total := 0
	for _, account := range accounts {
		value, err := txn.Get(ctx, []byte(account))
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
