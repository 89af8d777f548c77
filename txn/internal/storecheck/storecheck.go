// Package storecheck has what the tests of every back end check besides storetest. It is for tests
// only, and knows no back end.
package storecheck

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// timeout bounds a check, far above what it needs.
const timeout = time.Minute

// Counts has clients count in one row, writers of them for each of the stores, which must be handles of
// the same one. Each wants to succeed each times. Some of their calls are cancelled, so that nobody
// knows their outcome at once; each has a record, by which the check finds out in the end. All writes
// that succeeded must have counted, each once, and those without an answer at most once.
func Counts(t *testing.T, stores []txn.Store, writers, each int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var c counter
	var wg sync.WaitGroup
	for i, store := range stores {
		for j := range writers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				if err := c.count(ctx, store, each, rng); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	want := uint64(c.successes.Load())
	for _, start := range c.unknown {
		row, _, err := stores[0].Read(ctx, countKey, 1, start)
		if err != nil {
			t.Fatal(err)
		}
		if row.Record.Start == start {
			want++
		}
	}
	row, _, err := stores[0].Read(ctx, countKey, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := number(row); got != want {
		t.Errorf("counted to %d, want %d: %d writes succeeded, and %d had no answer", got, want, c.successes.Load(), len(c.unknown))
	}
	t.Logf("%d writes succeeded, %d were refused, %d had no answer", c.successes.Load(), c.refused.Load(), len(c.unknown))
}

var countKey = []byte("count")

type counter struct {
	starts             atomic.Uint64
	successes, refused atomic.Int64

	mu      sync.Mutex
	unknown []isotone.Timestamp64
}

func (c *counter) count(ctx context.Context, store txn.Store, each int, rng *rand.Rand) error {
	for done := 0; done < each; {
		row, _, err := store.Read(ctx, countKey, 1, 0)
		if err != nil {
			return err
		}
		start := isotone.Timestamp64(c.starts.Add(1))
		change := txn.Change{
			If: row.Revision, Next: rng.Uint64N(1<<63-1) + 1,
			Put:    txn.Version{Commit: 1, Value: binary.BigEndian.AppendUint64(nil, number(row)+1)},
			Record: txn.Record{Start: start},
		}
		limit := timeout
		if rng.IntN(8) == 0 {
			limit = time.Duration(rng.IntN(2000)) * time.Microsecond
		}
		limited, cancel := context.WithTimeout(ctx, limit)
		ok, err := store.Write(limited, countKey, change)
		cancel()
		switch {
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		case err != nil:
			c.mu.Lock()
			c.unknown = append(c.unknown, start)
			c.mu.Unlock()
		case ok:
			c.successes.Add(1)
			done++
		default:
			c.refused.Add(1)
		}
	}
	return nil
}

func number(row txn.Row) uint64 {
	if len(row.Version.Value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(row.Version.Value)
}

// EndsCalls wants every method to return an error soon after its context is done. The server must
// have been stopped, so that it does not answer.
func EndsCalls(t *testing.T, store txn.Fenced) {
	t.Helper()
	const (
		wait = 200 * time.Millisecond
		soon = 2 * time.Second
	)
	key := []byte("key")
	for name, call := range map[string]func(context.Context) error{
		"Read": func(ctx context.Context) error {
			_, _, err := store.Read(ctx, key, 1, 1)
			return err
		},
		"Scan": func(ctx context.Context) error {
			_, err := store.Scan(ctx, txn.Range{Limit: 10}, 1)
			return err
		},
		"Write": func(ctx context.Context) error {
			_, err := store.Write(ctx, key, txn.Change{Next: 1, Lock: []byte("lock")})
			return err
		},
		"Points": func(ctx context.Context) error {
			_, err := store.Points(ctx)
			return err
		},
		"Raise": func(ctx context.Context) error { return store.Raise(ctx, txn.Points{Safe: 1}) },
		"Seal":  func(ctx context.Context) error { return store.Seal(ctx, 1) },
		"Write of a commit": func(ctx context.Context) error {
			_, err := store.Write(ctx, key, txn.Change{Next: 1, Record: txn.Record{Start: 1, Commit: 2}})
			return err
		},
	} {
		for kind, ctx := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), wait) },
			"cancel": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(wait, cancel)
				return ctx, func() { timer.Stop() }
			},
		} {
			ctx, cancel := ctx()
			began := time.Now()
			err := call(ctx)
			took := time.Since(began)
			cancel()
			if err == nil || took > soon {
				t.Errorf("%s whose context ends by %s after %v: %v after %v", name, kind, wait, err, took)
			}
		}
	}
}
