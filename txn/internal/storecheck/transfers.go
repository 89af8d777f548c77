package storecheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

const (
	accounts = 6
	opening  = 100
	clients  = 4
	// steps is how many transfers are acknowledged before a store fails, and again after that.
	steps = 25
)

// Oracle issues timestamps of this machine's time. It is a txn.Oracle.
type Oracle struct{ last atomic.Uint64 }

// Timestamp64 implements txn.Oracle.
func (o *Oracle) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	now := uint64(isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), 0))
	for {
		last := o.last.Load()
		next := max(now, last+1)
		if o.last.CompareAndSwap(last, next) {
			return isotone.Timestamp64(next), ctx.Err()
		}
	}
}

// bank is accounts of which one half is in a store that fails, "a", and the other in memory, "b".
type bank struct {
	t  *testing.T
	db *txn.DB

	mu   sync.Mutex
	done []string // the keys that acknowledged transfers have written, in both stores
}

// Transfers has clients move money between accounts in a store and in another one, and audit all of them, while
// fail has the store fail in a way that it claims to survive. After that the store must serve again. No money
// may be lost, nor anything of a transfer that was acknowledged.
func Transfers(t *testing.T, store txn.Store, fail func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	db, err := txn.New(&Oracle{}, txn.Options{
		Stores:  map[string]txn.Store{"a": store, "b": memory.New()},
		LockTTL: 500 * time.Millisecond, FinishTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b := &bank{t: t, db: db}
	if err := db.Run(ctx, b.open); err != nil {
		t.Fatal(err)
	}
	b.load(ctx, fail)
	if err := b.audit(ctx); err != nil {
		t.Errorf("the last audit: %v", err)
	}
	t.Logf("%d transfers were acknowledged", len(b.done))
}

// load runs the clients until enough transfers were acknowledged, has the store fail, and waits for as many.
func (b *bank) load(ctx context.Context, fail func()) {
	ctx, cancel := context.WithCancel(ctx)
	acknowledged := make(chan struct{}, 2*steps)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(client)))
			for n := 0; ctx.Err() == nil; n++ {
				if b.transfer(ctx, fmt.Sprint("done-", client, "-", n), rng) == nil {
					select {
					case acknowledged <- struct{}{}:
					default:
					}
				}
				_ = b.audit(ctx) // while the store fails, it may too
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for _, then := range []func(){fail, func() {}} {
		for range steps {
			select {
			case <-acknowledged:
			case <-ctx.Done():
				b.t.Error("no transfer succeeds any more")
				return
			}
		}
		then()
		for len(acknowledged) > 0 {
			<-acknowledged
		}
	}
}

// account returns the store and the key of an account.
func account(i int) (space string, key []byte) {
	return []string{"a", "b"}[i%2], fmt.Append(nil, "account-", i)
}

func (b *bank) open(tx *txn.Tx) error {
	var errs []error
	for i := range accounts {
		space, key := account(i)
		errs = append(errs, tx.Set(space, key, strconv.AppendInt(nil, opening, 10)))
	}
	return errors.Join(errs...)
}

func (b *bank) transfer(ctx context.Context, done string, rng *rand.Rand) error {
	from, to := rng.IntN(accounts), rng.IntN(accounts-1)
	if to >= from {
		to++
	}
	err := b.db.Run(ctx, func(tx *txn.Tx) error {
		for i, sign := range map[int]int{from: -1, to: 1} {
			space, key := account(i)
			v, _, err := tx.Get(ctx, space, key)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(v))
			if err != nil {
				return err
			}
			if err := tx.Set(space, key, strconv.AppendInt(nil, int64(n+sign), 10)); err != nil {
				return err
			}
		}
		return errors.Join(tx.Set("a", []byte(done), nil), tx.Set("b", []byte(done), nil))
	})
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done = append(b.done, done)
	}
	return err
}

// audit compares a snapshot of both stores with what must be in it.
func (b *bank) audit(ctx context.Context) error {
	b.mu.Lock()
	want := slices.Clone(b.done)
	b.mu.Unlock()
	return b.db.View(ctx, func(tx *txn.Tx) error {
		total := 0
		found := map[string]map[string]bool{"a": {}, "b": {}}
		for space, keys := range found {
			for pair, err := range tx.All(ctx, space, nil, nil) {
				if err != nil {
					return err
				}
				if key := string(pair.Key); strings.HasPrefix(key, "done") {
					keys[key] = true
					continue
				}
				n, err := strconv.Atoi(string(pair.Value))
				if err != nil {
					return err
				}
				total += n
			}
		}
		if total != accounts*opening || !maps.Equal(found["a"], found["b"]) {
			b.t.Errorf("snapshot %v is torn: a total of %d, want %d; transfers %v and %v", tx.Start(), total, accounts*opening, found["a"], found["b"])
		}
		for _, key := range want {
			if !found["a"][key] || !found["b"][key] {
				b.t.Errorf("snapshot %v lacks %s, which was acknowledged before", tx.Start(), key)
			}
		}
		return nil
	})
}
