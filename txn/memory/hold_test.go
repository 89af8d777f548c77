package memory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

// held is an oracle whose time stands still, as after its floor was raised, or after a restore.
type held struct{ n atomic.Uint64 }

func (o *held) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	return isotone.NewTimestamp64(1_700_000_000_000, o.n.Add(1)), ctx.Err()
}

// mortal is a store as a client reaches it that dies before its first transaction commits.
type mortal struct {
	txn.Store
	dead atomic.Bool
}

var errDead = errors.New("the client is dead")

func (m *mortal) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	if m.dead.Load() || c.Record.Commit != 0 {
		m.dead.Store(true)
		return false, errDead
	}
	return m.Store.Write(ctx, key, c)
}

func (m *mortal) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	if m.dead.Load() {
		return txn.Row{}, txn.Points{}, errDead
	}
	return m.Store.Read(ctx, key, at, start)
}

// TestRecovery_LocksExpireByAnySteadyClock uses the clock of the machine.
func TestRecovery_LocksExpireByAnySteadyClock(t *testing.T) {
	s, o := memory.New(), &held{}
	const ttl = 50 * time.Millisecond
	dying, err := txn.New(o, txn.Options{Stores: map[string]txn.Store{"a": &mortal{Store: s}}, LockTTL: ttl, FinishTimeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := dying.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Set("a", []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, txn.ErrUnknown) {
		t.Fatalf("the client that died: %v", err)
	}
	living, err := txn.New(o, txn.Options{Stores: map[string]txn.Store{"a": s}, RunAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = living.View(t.Context(), func(tx *txn.Tx) error {
		_, found, err := tx.Get(t.Context(), "a", []byte("k"))
		if found {
			t.Error("the transaction of the client that died has committed")
		}
		return err
	})
	if err != nil {
		t.Errorf("while the oracle's time holds: %v", err)
	}
}
