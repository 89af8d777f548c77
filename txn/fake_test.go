package txn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

// oracle issues timestamps of a time that tests move.
type oracle struct {
	mu   sync.Mutex
	last isotone.Timestamp64
	err  error
}

func newOracle() *oracle { return &oracle{last: isotone.NewTimestamp64(1000, 0)} }

func (o *oracle) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	o.last++
	return o.last, ctx.Err()
}

// pass lets that much of the oracle's time pass.
func (o *oracle) pass(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = isotone.NewTimestamp64(o.last.Milli()+uint64(d.Milliseconds()), 0)
}

var errLost = errors.New("lost")

// faulty is a store that a test interferes with.
type faulty struct {
	*memory.Store
	// onWrite is asked about each write, and says what happens instead, or nil.
	onWrite func(key string, c txn.Change) func() (bool, error)
	onRead  func(key string) error
	// between is called after a row was read and before the points are.
	between func()
}

func (s *faulty) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	if s.onWrite != nil {
		if instead := s.onWrite(string(key), c); instead != nil {
			return instead()
		}
	}
	return s.Store.Write(ctx, key, c)
}

func (s *faulty) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	if s.onRead != nil {
		if err := s.onRead(string(key)); err != nil {
			return txn.Row{}, txn.Points{}, err
		}
	}
	row, points, err := s.Store.Read(ctx, key, at, start)
	if s.between != nil && err == nil {
		s.between()
		points, err = s.Points(ctx)
	}
	return row, points, err
}

// drop and deny are answers for onWrite.
func drop() (bool, error) { return false, errLost }
func deny() (bool, error) { return false, nil }

// fixture is a DB over one store, called "s".
type fixture struct {
	*testing.T
	ctx    context.Context
	oracle *oracle
	store  *faulty
	db     *txn.DB
}

func newFixture(t *testing.T, change func(*txn.Options)) *fixture {
	f := &fixture{T: t, ctx: t.Context(), oracle: newOracle(), store: &faulty{Store: memory.New()}}
	f.db = f.open(change)
	return f
}

// open returns one more DB over the same store.
func (f *fixture) open(change func(*txn.Options)) *txn.DB {
	f.Helper()
	opts := txn.Options{
		Stores: map[string]txn.Store{"s": f.store}, BackgroundMax: -1, RunAttempts: 3,
		// Waiting takes no time, except of the goroutine that renews locks.
		Sleep: func(ctx context.Context, d time.Duration) error {
			if d == txn.LockTTLDefault/3 {
				<-ctx.Done()
			}
			return ctx.Err()
		},
	}
	if change != nil {
		change(&opts)
	}
	db, err := txn.New(f.oracle, opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(db.Close)
	return db
}

func (f *fixture) begin() *txn.Tx {
	f.Helper()
	tx, err := f.db.Begin(f.ctx)
	if err != nil {
		f.Fatal(err)
	}
	return tx
}

// set writes pairs of keys and values in one transaction; an empty value deletes the key.
func (f *fixture) set(pairs ...string) isotone.Timestamp64 {
	f.Helper()
	tx := f.begin()
	f.put(tx, pairs...)
	if err := tx.Commit(f.ctx); err != nil {
		f.Fatal(err)
	}
	return tx.CommitTimestamp()
}

func (f *fixture) put(tx *txn.Tx, pairs ...string) {
	f.Helper()
	for i := 0; i < len(pairs); i += 2 {
		err := tx.Set("s", []byte(pairs[i]), []byte(pairs[i+1]))
		if pairs[i+1] == "" {
			err = tx.Delete("s", []byte(pairs[i]))
		}
		if err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fixture) get(tx *txn.Tx, key string) string {
	f.Helper()
	v, ok, err := tx.Get(f.ctx, "s", []byte(key))
	if err != nil {
		f.Fatal(err)
	}
	if !ok {
		return "none"
	}
	return string(v)
}

// want reads keys in a new transaction: pairs of keys and values, "none" for no value.
func (f *fixture) want(pairs ...string) {
	f.Helper()
	tx := f.begin()
	defer tx.Rollback()
	for i := 0; i < len(pairs); i += 2 {
		if got := f.get(tx, pairs[i]); got != pairs[i+1] {
			f.Errorf("%s = %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

// wantError wants err to have a code, and returns its details.
func (f *fixture) wantError(err error, want *txn.Error) *txn.Error {
	f.Helper()
	var e *txn.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		f.Fatalf("error %v, want the code %s", err, want.Code)
	}
	return e
}

// locks returns the keys that have a lock.
func (f *fixture) locks() (keys []string) {
	f.Helper()
	page, err := f.store.Scan(f.ctx, txn.Range{Limit: 100}, 0)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range page.Entries {
		if len(e.Row.Lock) > 0 {
			keys = append(keys, string(e.Key))
		}
	}
	return keys
}
