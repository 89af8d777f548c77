package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/storecheck"
	"github.com/isotone/isotone/txn/memory"
	"github.com/isotone/isotone/txn/pgstore"
	"github.com/isotone/isotone/txn/storetest"
)

// short is how long a call gets that is expected to wait for a replica in vain.
const short = 300 * time.Millisecond

func newFaults(t *testing.T) storetest.Faults {
	p := newPair(t)
	stopped := false
	return storetest.Faults{
		Store: p.create(),
		Hold:  func() { stopped = true; p.replica.Stop() },
		FailOver: func() txn.Store {
			p.failOver(stopped)
			return p.store(p.replica)
		},
	}
}

func TestStore_AnswersWithWhatTheReplicaHas(t *testing.T) { storetest.RunDurable(t, newFaults) }

// A synchronous replica is configured, and there is none.
func TestCommit_IsNotAcknowledgedWithoutTheReplica(t *testing.T) {
	p := newPair(t)
	store := p.create()
	p.replica.Stop()
	db, err := txn.New(&storecheck.Oracle{}, txn.Options{
		Stores: map[string]txn.Store{"pg": store}, BackgroundMax: -1, CallTimeout: short, FinishTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Set("pg", []byte("alice"), []byte("100")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := tx.Commit(ctx); err == nil {
		t.Error("a commit was acknowledged, and no replica has it")
	}
}

// A transfer loses the replica before the primary commits it, and then the primary.
func TestCommit_IsWholeAfterAFailover(t *testing.T) {
	p := newPair(t)
	other, oracle := memory.New(), &storecheck.Oracle{}
	open := func(store txn.Store, callTimeout time.Duration) *txn.DB {
		db, err := txn.New(oracle, txn.Options{
			Stores: map[string]txn.Store{"a": store, "b": other}, BackgroundMax: -1, CallTimeout: callTimeout,
			FinishTimeout: time.Second, LockTTL: short,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	set := func(db *txn.DB, alice, bob int) error {
		tx, err := db.Begin(t.Context())
		if err != nil {
			return err
		}
		// The row in Postgres is the primary of the transaction.
		if err := errors.Join(tx.Set("a", []byte("bob"), fmt.Append(nil, bob)), tx.Set("b", []byte("alice"), fmt.Append(nil, alice))); err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}
	store := p.create()
	if err := set(open(store, 0), 100, 0); err != nil {
		t.Fatal(err)
	}
	// The replica stops once the transfer has all its locks.
	losing := &losesReplica{Store: store, stop: sync.OnceFunc(p.replica.Stop)}
	if err := set(open(losing, short), 0, 100); err == nil {
		t.Error("the transfer was acknowledged, and no replica has all of it")
	}
	losing.stop() // unless the transfer has failed before that
	p.failOver(true)
	db := open(p.store(p.replica), 0)
	err := db.View(t.Context(), func(tx *txn.Tx) error {
		bob, _, err1 := tx.Get(t.Context(), "a", []byte("bob"))
		alice, _, err2 := tx.Get(t.Context(), "b", []byte("alice"))
		x, _ := strconv.Atoi(string(alice))
		y, _ := strconv.Atoi(string(bob))
		if x+y != 100 && errors.Join(err1, err2) == nil {
			t.Errorf("alice has %q and bob %q", alice, bob)
		}
		return errors.Join(err1, err2)
	})
	if err != nil {
		t.Error(err)
	}
}

// losesReplica stops the replica before a write commits a transaction.
type losesReplica struct {
	txn.Store
	stop func()
}

func (l *losesReplica) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	if c.Record.Commit != 0 {
		l.stop()
	}
	return l.Store.Write(ctx, key, c)
}

// waiting writes to a row and returns when that waits for the replica, with what the write returns in the end.
func (p *pair) waiting(store txn.Store) <-chan error {
	p.t.Helper()
	written := make(chan error, 1)
	go func() {
		done, err := store.Write(p.t.Context(), []byte("k"), txn.Change{Next: 1, Lock: []byte("l")})
		if err == nil {
			err = fmt.Errorf("answered with %v", done)
		}
		written <- err
	}()
	p.await(p.primary, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%INSERT%'")
	return written
}

// wantHidden wants a store not to show a write that the replica does not have.
func (p *pair) wantHidden(store txn.Store) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), short)
	defer cancel()
	if row, _, err := store.Read(ctx, []byte("k"), 1, 0); err == nil && row.Revision != 0 {
		p.t.Errorf("a read returned what the replica does not have: %+v", row)
	}
}

func TestWrite_FailsWhenItsWaitIsCanceled(t *testing.T) {
	p := newPair(t)
	store := p.create()
	p.replica.Stop()
	written := p.waiting(store)
	p.await(p.primary, "SELECT bool_and(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	if err := <-written; !errors.Is(err, pgstore.ErrWaitCanceled) {
		t.Errorf("the write: %v", err)
	}
	p.wantHidden(store)
	p.wantHidden(p.store(p.primary)) // which knows of nothing
	p.startReplica()
	if row, _, err := store.Read(t.Context(), []byte("k"), 1, 0); err != nil || row.Revision != 1 {
		t.Errorf("with the replica: %+v, %v", row, err)
	}
}

func TestRead_WaitsForTheReplicaAfterARestart(t *testing.T) {
	p := newPair(t)
	store := p.create()
	p.replica.Stop()
	written := p.waiting(store)
	p.crash(p.primary)
	if err := <-written; err == nil {
		t.Error("the write was answered by a server that has crashed")
	}
	p.startPrimary()
	p.wantHidden(p.store(p.primary))
	p.startReplica()
	p.awaitSync()
	if row, _, err := p.store(p.primary).Read(t.Context(), []byte("k"), 1, 0); err != nil || row.Revision != 1 {
		t.Errorf("with the replica: %+v, %v", row, err)
	}
}

// TestRead_WaitsForOthersOnly counts transactions: each wait is one.
func TestRead_WaitsForOthersOnly(t *testing.T) {
	p := newPair(t)
	store := p.create()
	plain := p.pool(p.primary)
	transactions := func() (n int) {
		if err := plain.QueryRow(t.Context(), "SELECT txid_snapshot_xmax(txid_current_snapshot())").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	read := func(store txn.Store) {
		t.Helper()
		if _, _, err := store.Read(t.Context(), []byte("k"), 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Raise(t.Context(), txn.Points{Safe: 1}); err != nil {
		t.Fatal(err)
	}
	begun := transactions()
	for range 5 {
		read(store)
	}
	if n := transactions() - begun; n != 0 {
		t.Errorf("reads after a write of the same process made %d transactions, want none", n)
	}
	other := p.store(p.primary)
	for range 5 {
		read(other)
	}
	if n := transactions() - begun; n != 1 {
		t.Errorf("reads of another process made %d transactions, want 1", n)
	}
}

// TestStore_FormerPrimaryCompletesNothing promotes the replica of a primary that goes on. That must not happen,
// since the primary answers reads of what it has. But it completes no write, and shows none.
func TestStore_FormerPrimaryCompletesNothing(t *testing.T) {
	p := newPair(t)
	former := p.create()
	p.await(p.replica, "SELECT pg_promote()")
	p.await(p.primary, "SELECT count(*) = 0 FROM pg_stat_replication")
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if done, err := former.Write(ctx, []byte("k"), txn.Change{Next: 1, Lock: []byte("l")}); done || err == nil {
		t.Errorf("a write to the former primary: %v, %v", done, err)
	}
	p.wantHidden(former)
}

func TestStore_RefusesSessionsWhoseCommitsAreLost(t *testing.T) {
	p := newPair(t)
	p.create()
	set := func(name, value string) func(*pgx.ConnConfig) {
		return func(c *pgx.ConnConfig) { c.RuntimeParams[name] = value }
	}
	for name, session := range map[string]struct {
		change func(*pgx.ConnConfig)
		want   error
	}{
		"synchronous_commit=off":    {set("synchronous_commit", "off"), pgstore.ErrNotDurable},
		"synchronous_commit=local":  {set("synchronous_commit", "local"), pgstore.ErrNotDurable},
		"client_min_messages=error": {set("client_min_messages", "error"), pgstore.ErrWarningsUnseen},
		"no OnNotice":               {func(c *pgx.ConnConfig) { c.OnNotice = nil }, pgstore.ErrWarningsUnseen},
	} {
		config := p.pool(p.primary).Config()
		session.change(config.ConnConfig)
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		store, err := pgstore.New(pool, pgstore.Options{Schema: "pair"})
		if err != nil {
			t.Fatal(err)
		}
		_, _, readErr := store.Read(t.Context(), []byte("k"), 1, 0)
		_, scanErr := store.Scan(t.Context(), txn.Range{Limit: 1}, 1)
		_, pointsErr := store.Points(t.Context())
		_, writeErr := store.Write(t.Context(), []byte("k"), txn.Change{Next: 1, Lock: []byte("l")})
		raiseErr := store.Raise(t.Context(), txn.Points{Safe: 1})
		for call, err := range map[string]error{"Read": readErr, "Scan": scanErr, "Points": pointsErr, "Write": writeErr, "Raise": raiseErr} {
			if !errors.Is(err, session.want) {
				t.Errorf("%s with %s: %v", call, name, err)
			}
		}
		if err := store.Create(t.Context()); err == nil {
			t.Errorf("Create with %s: no error", name)
		}
		pool.Close()
		row, points, err := p.store(p.primary).Read(t.Context(), []byte("k"), 1, 0)
		if err != nil || row.Revision != 0 || points.Safe != 0 {
			t.Errorf("with %s something was written: %+v, %+v, %v", name, row, points, err)
		}
	}
}

func TestStore_KeepsTransactionsThroughAFailover(t *testing.T) {
	p := newPair(t)
	p.create()
	storecheck.Transfers(t, p.store(p.primary, p.replica), func() { p.failOver(false) })
}
