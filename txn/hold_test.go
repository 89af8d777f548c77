package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone/txn"
)

// steady is a steady clock that tests move. The fixture's oracle holds still meanwhile.
type steady struct{ passed atomic.Int64 }

func (s *steady) now() time.Time       { return time.Unix(0, s.passed.Load()) }
func (s *steady) pass(d time.Duration) { s.passed.Add(int64(d)) }
func (s *steady) use(o *txn.Options)   { o.Now = s.now }

// lockState returns what a read of a key says about its lock: "free" or "locked".
func lockState(f *fixture, db *txn.DB, key string) string {
	f.Helper()
	tx, err := db.Begin(f.ctx)
	if err != nil {
		f.Fatal(err)
	}
	switch _, _, err := tx.Get(f.ctx, "s", []byte(key)); {
	case err == nil:
		return "free"
	case errors.Is(err, txn.ErrLocked):
		return "locked"
	default:
		f.Fatal(err)
		return ""
	}
}

// deadWhileTimeHolds has a client die, and returns what another one finds right after that, and once the
// locks have not changed for their TTL.
func deadWhileTimeHolds(t *testing.T) string {
	var clock steady
	f := newFixture(t, clock.use)
	f.crash(func(key string, c txn.Change) bool { return isCommit(c) })
	clock.pass(time.Hour) // before it was seen, which does not count
	first := lockState(f, f.db, "b")
	clock.pass(txn.LockTTLDefault)
	second := lockState(f, f.db, "b")
	clock.pass(time.Millisecond)
	return first + " " + second + " " + lockState(f, f.db, "b")
}

func TestRecovery_LocksOfTheDeadExpireWhileTimeHolds(t *testing.T) {
	if got := deadWhileTimeHolds(t); got != "locked locked free" {
		t.Errorf("the lock is %s", got)
	}
}

// aliveWhileTimeHolds has a client that is slow, and alive, and returns what another one finds that watches
// it for two TTLs, with renewals in between.
func aliveWhileTimeHolds(t *testing.T) (state string, committed error) {
	var clock steady
	f := newFixture(t, clock.use)
	renewals, renewed := make(chan struct{}), make(chan struct{}, 1)
	slow := f.open(func(o *txn.Options) {
		o.Parallel = 1 // a is locked first
		o.Sleep = func(ctx context.Context, d time.Duration) error {
			select {
			case <-renewals:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	tx, err := slow.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.put(tx, "a", "new", "b", "new")
	watch := func() {
		for range 4 {
			found := lockState(f, f.db, "a")
			state += found + " "
			if found == "free" {
				return
			}
			clock.pass(txn.LockTTLDefault * 2 / 3)
			renewals <- struct{}{}
			<-renewed
		}
	}
	var watched atomic.Bool
	var locks atomic.Int32
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "a" && len(c.Lock) > 0 {
			return func() (bool, error) {
				done, err := f.store.Store.Write(f.ctx, []byte(key), c)
				if locks.Add(1) > 1 {
					renewed <- struct{}{}
				}
				return done, err
			}
		}
		return func() (bool, error) {
			if !watched.Swap(true) {
				watch()
			}
			return f.store.Store.Write(f.ctx, []byte(key), c)
		}
	}
	committed = tx.Commit(f.ctx)
	return state, committed
}

func TestRecovery_KeepsALockThatIsRenewedWhileTimeHolds(t *testing.T) {
	if state, err := aliveWhileTimeHolds(t); state != "locked locked locked locked " || err != nil {
		t.Errorf("the lock is %s, and the commit gives %v", state, err)
	}
}

// Without that, a scan would wait the TTL for each of them.
func TestRecovery_ScanWaitsForAllTheDeadAtOnce(t *testing.T) {
	var clock steady
	f := newFixture(t, clock.use)
	for i := range 20 {
		f.lockAlone(fmt.Sprint("k", i))
	}
	scan := func() error {
		for _, err := range f.begin().All(f.ctx, "s", nil, nil) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	f.wantError(scan(), txn.ErrLocked)
	clock.pass(txn.LockTTLDefault + time.Millisecond)
	if err := scan(); err != nil {
		t.Error(err)
	}
}

// lockAlone leaves a transaction that has locked one key.
func (f *fixture) lockAlone(key string) {
	f.Helper()
	tx := f.begin()
	f.put(tx, key, "new")
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if len(c.Lock) == 0 {
			return drop
		}
		return nil
	}
	_ = tx.Commit(f.ctx)
	f.store.onWrite = nil
	if row := f.row(key); len(row.Lock) == 0 {
		f.Fatal("the key is not locked")
	}
}
