package txn_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/txn"
)

// crash has a client stop in the commit of writes to a and b, where at says, and never come back. Its
// transaction has a for its primary.
func (f *fixture) crash(at func(key string, c txn.Change) bool) *txn.Tx {
	f.Helper()
	tx := f.begin()
	f.put(tx, "a", "new", "b", "new")
	var dead atomic.Bool
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if at(key, c) {
			dead.Store(true)
		}
		if dead.Load() {
			return drop
		}
		return nil
	}
	f.store.onRead = func(string) error {
		if dead.Load() {
			return errLost
		}
		return nil
	}
	_ = tx.Commit(f.ctx)
	if !dead.Load() {
		f.Fatal("the client did not come to where it was to crash")
	}
	f.store.onWrite, f.store.onRead = nil, nil
	return tx
}

func isCommit(c txn.Change) bool { return c.Put.Commit != 0 }

func TestRecovery_RollsBackAnExpiredTransaction(t *testing.T) {
	for name, at := range map[string]func(string, txn.Change) bool{
		"before the commit of the primary": func(key string, c txn.Change) bool { return isCommit(c) },
		"with only the primary locked":     func(key string, c txn.Change) bool { return key == "b" },
		"with only the secondary locked":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			var cleaned []txn.Cleaned
			f := newFixture(t, func(o *txn.Options) {
				if name == "with only the primary locked" {
					o.Parallel = 1
				}
				o.Hooks.Cleaned = func(c txn.Cleaned) { cleaned = append(cleaned, c) }
			})
			f.set("a", "old", "b", "old")
			if at == nil {
				f.lockSecondaryOnly()
			} else {
				f.crash(at)
			}
			locked := f.locks()[0]
			_, _, err := f.begin().Get(f.ctx, "s", []byte(locked))
			f.wantError(err, txn.ErrLocked)
			f.oracle.pass(time.Minute)
			f.want("a", "old", "b", "old")
			if len(f.locks()) != 0 || len(cleaned) == 0 || cleaned[0].Commit != 0 {
				t.Errorf("locks %q, cleaned %v", f.locks(), cleaned)
			}
		})
	}
}

// lockSecondaryOnly leaves a transaction with a lock of b, whose primary a was never locked.
func (f *fixture) lockSecondaryOnly() {
	f.Helper()
	tx := f.begin()
	f.put(tx, "a", "new", "b", "new")
	var lost txn.Change
	captured := make(chan struct{})
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "b" && lost.Next == 0 {
			lost = c
			close(captured)
		}
		<-captured
		return drop
	}
	_ = tx.Commit(f.ctx)
	f.store.onWrite = nil
	if done, err := f.store.Write(f.ctx, []byte("b"), lost); !done || err != nil {
		f.Fatal(done, err)
	}
}

func TestRecovery_RollsForwardACommittedTransaction(t *testing.T) {
	f := newFixture(t, nil)
	f.set("a", "old", "b", "old")
	early := f.begin()
	tx := f.crash(func(key string, c txn.Change) bool { return key == "b" && isCommit(c) })
	if got := f.locks(); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("locks %q", got)
	}
	late := f.begin()
	if got := f.get(early, "b"); got != "old" {
		t.Errorf("a snapshot from before has %q", got)
	}
	if got := f.get(late, "b"); got != "new" {
		t.Errorf("a snapshot from after has %q", got)
	}
	if len(f.locks()) != 0 || late.Start() <= tx.CommitTimestamp() {
		t.Errorf("locks %q", f.locks())
	}
}

func TestRecovery_ScansResolveLocks(t *testing.T) {
	f := newFixture(t, nil)
	f.crash(func(key string, c txn.Change) bool { return key == "b" && isCommit(c) })
	n := 0
	for p, err := range f.begin().All(f.ctx, "s", nil, nil) {
		if err != nil || string(p.Value) != "new" {
			t.Errorf("%q %v", p, err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d pairs, want 2", n)
	}
}

func TestRecovery_WritersResolveLocks(t *testing.T) {
	f := newFixture(t, nil)
	f.crash(func(key string, c txn.Change) bool { return isCommit(c) })
	tx := f.begin()
	f.put(tx, "b", "mine")
	e := f.wantError(tx.Commit(f.ctx), txn.ErrLocked)
	if string(e.Key) != "b" || e.Other == 0 || !txn.IsRetryable(e) {
		t.Errorf("%+v", e)
	}
	f.oracle.pass(time.Minute)
	f.set("b", "mine")
	f.want("a", "none", "b", "mine")
}

func TestRecovery_StopsALateCommit(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "new", "b", "new")
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "a" && isCommit(c) {
			f.store.onWrite = nil
			f.oracle.pass(time.Minute)
			f.want("b", "none") // rolls the transaction back
		}
		return nil
	}
	f.wantError(tx.Commit(f.ctx), txn.ErrAborted)
	f.want("a", "none", "b", "none")
}

// The primary is locked last, after somebody who met the secondary has rolled the transaction back.
func TestRecovery_StopsALatePrewriteOfThePrimary(t *testing.T) {
	f := newFixture(t, func(o *txn.Options) { o.Parallel = 2 })
	tx := f.begin()
	f.put(tx, "a", "new", "b", "new")
	locked := make(chan struct{})
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key != "a" || len(c.Lock) == 0 {
			return nil
		}
		return func() (bool, error) {
			<-locked // the other goroutine has locked b
			f.store.onWrite = nil
			f.oracle.pass(time.Minute)
			f.want("b", "none")
			return f.store.Store.Write(f.ctx, []byte(key), c)
		}
	}
	watch := f.store.onWrite
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key != "b" {
			return watch(key, c)
		}
		return func() (bool, error) {
			done, err := f.store.Store.Write(f.ctx, []byte(key), c)
			close(locked)
			return done, err
		}
	}
	f.wantError(tx.Commit(f.ctx), txn.ErrAborted)
	f.want("a", "none", "b", "none")
}

func TestRecovery_KeepsALockThatIsRenewed(t *testing.T) {
	f := newFixture(t, nil)
	renewals := make(chan struct{})
	var renewed atomic.Int32
	f.db = f.open(func(o *txn.Options) {
		o.Sleep = func(ctx context.Context, d time.Duration) error {
			if d != txn.LockTTLDefault/3 {
				return ctx.Err()
			}
			select {
			case <-renewals:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	tx := f.begin()
	f.put(tx, "a", "new", "b", "new")
	held := false
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "a" && len(c.Lock) > 0 && renewed.Add(1) > 1 {
			return nil // a renewal
		}
		if key != "b" || held {
			return nil
		}
		held = true
		return func() (bool, error) {
			// The transaction is slow. Its lock of the primary would have expired twice.
			for range 4 {
				f.oracle.pass(txn.LockTTLDefault / 2)
				before := renewed.Load()
				renewals <- struct{}{}
				for renewed.Load() == before {
					time.Sleep(time.Millisecond)
				}
			}
			_, _, err := f.begin().Get(f.ctx, "s", []byte("a"))
			f.wantError(err, txn.ErrLocked)
			return f.store.Store.Write(f.ctx, []byte(key), c)
		}
	}
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.want("a", "new", "b", "new")
}

func TestCommit_FindsOutWhetherItHasCommitted(t *testing.T) {
	for name, instead := range map[string]func(f *fixture, c txn.Change) (bool, error){
		"the answer was lost": func(f *fixture, c txn.Change) (bool, error) {
			_, _ = f.store.Store.Write(f.ctx, []byte("a"), c)
			return drop()
		},
		"the write was lost": func(*fixture, txn.Change) (bool, error) { return drop() },
		"it arrives after the next": func(f *fixture, c txn.Change) (bool, error) {
			f.store.onWrite = func(key string, again txn.Change) func() (bool, error) {
				f.store.onWrite = nil
				return func() (bool, error) {
					done, err := f.store.Store.Write(f.ctx, []byte(key), again)
					if late, _ := f.store.Store.Write(f.ctx, []byte(key), c); late {
						f.Error("the late write was applied as well")
					}
					return done, err
				}
			}
			return drop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			tx := f.begin()
			f.put(tx, "a", "new", "b", "new")
			f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
				if !isCommit(c) {
					return nil
				}
				f.store.onWrite = nil
				return func() (bool, error) { return instead(f, c) }
			}
			if err := tx.Commit(f.ctx); err != nil {
				t.Fatal(err)
			}
			f.want("a", "new", "b", "new")
		})
	}
}

func TestCommit_SaysWhenTheOutcomeIsUnknown(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2")
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if !isCommit(c) {
			return nil
		}
		f.store.onRead = func(string) error { return errLost }
		return func() (bool, error) {
			_, _ = f.store.Store.Write(f.ctx, []byte(key), c)
			return drop()
		}
	}
	err := tx.Commit(f.ctx)
	e := f.wantError(err, txn.ErrUnknown)
	if txn.IsRetryable(err) || !errors.Is(err, errLost) || e.Other != tx.CommitTimestamp() {
		t.Errorf("%+v", e)
	}
	f.store.onWrite, f.store.onRead = nil, nil
	f.want("a", "1", "b", "2") // it had committed
}

func TestCommit_GivesUpWhenTheStoreIsDown(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2")
	f.store.onWrite = func(string, txn.Change) func() (bool, error) { return drop }
	err := tx.Commit(f.ctx)
	e := f.wantError(err, txn.ErrStore)
	if !errors.Is(err, errLost) || txn.IsRetryable(err) || e.Key == nil {
		t.Errorf("%+v", e)
	}
	f.store.onWrite = nil
	f.want("a", "none", "b", "none")
}

func TestCommit_StopsWithItsContextBeforeThePrimary(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2")
	ctx, cancel := context.WithCancel(f.ctx)
	f.store.onWrite = func(string, txn.Change) func() (bool, error) {
		cancel()
		return nil
	}
	if err := tx.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	f.store.onWrite = nil
	if len(f.locks()) != 0 {
		t.Errorf("locks left: %q", f.locks())
	}
	f.want("a", "none", "b", "none")
}

func TestCommit_FinishesSecondariesInTheBackground(t *testing.T) {
	f := newFixture(t, nil)
	f.db = f.open(func(o *txn.Options) { o.BackgroundMax = 1 })
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2")
	release := make(chan struct{})
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "b" && isCommit(c) {
			return func() (bool, error) {
				<-release
				return f.store.Store.Write(f.ctx, []byte(key), c)
			}
		}
		return nil
	}
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	if got := f.locks(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("locks %q", got)
	}
	close(release)
	f.db.Close()
	if got := f.locks(); len(got) != 0 {
		t.Errorf("locks %q after Close", got)
	}
}
