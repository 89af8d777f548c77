package txn_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// row reads a row as the store has it.
func (f *fixture) row(key string) txn.Row {
	f.Helper()
	row, _, err := f.store.Store.Read(f.ctx, []byte(key), 1<<62, 0)
	if err != nil {
		f.Fatal(err)
	}
	return row
}

func (f *fixture) collect(keep time.Duration) txn.Collected {
	f.Helper()
	got, err := f.db.Collect(f.ctx, keep)
	if err != nil {
		f.Fatal(err)
	}
	return got
}

func TestCollect_KeepsWhatSnapshotsNeed(t *testing.T) {
	f := newFixture(t, nil)
	f.set("a", "1", "gone", "1")
	f.set("a", "2", "gone", "")
	safe := f.set("a", "3")
	f.oracle.pass(time.Second)
	old := f.begin()
	f.set("a", "4")
	f.oracle.pass(time.Second)
	got := f.collect(1500 * time.Millisecond) // between 3 and old
	if got.Safe <= safe || got.Safe >= old.Start() {
		t.Fatalf("the safe point %v is not between %v and %v", got.Safe, safe, old.Start())
	}
	if row := f.row("a"); row.OldestVersion != safe {
		t.Errorf("the oldest version is %v, want %v", row.OldestVersion, safe)
	}
	if row := f.row("gone"); row.Revision != 0 {
		t.Errorf("the row of a deleted key is still there: %+v", row)
	}
	if got := f.get(old, "a"); got != "3" {
		t.Errorf("a snapshot after the safe point has %q", got)
	}
	f.want("a", "4", "gone", "none")
	if again := f.collect(1500 * time.Millisecond); again.Rows != 0 {
		t.Errorf("the second time %d rows had garbage", again.Rows)
	}
}

func TestCollect_EndsOlderTransactions(t *testing.T) {
	f := newFixture(t, nil)
	f.set("a", "1")
	reader, scanner, writer := f.begin(), f.begin(), f.begin()
	f.get(writer, "a")
	f.put(writer, "a", "2", "b", "2")
	got := f.collect(0)
	_, _, readErr := reader.Get(f.ctx, "s", []byte("a"))
	_, _, scanErr := scanner.Scan(f.ctx, "s", nil, nil, 10)
	for _, err := range []error{readErr, scanErr, writer.Commit(f.ctx)} {
		if e := f.wantError(err, txn.ErrTooOld); e.Other != got.Safe || !txn.IsRetryable(err) {
			t.Errorf("%+v, want the safe point %v", e, got.Safe)
		}
	}
	f.want("a", "1", "b", "none")
}

func TestCollect_ResolvesLocks(t *testing.T) {
	f := newFixture(t, nil)
	f.crash(func(key string, c txn.Change) bool { return key == "b" && isCommit(c) })
	if got := f.collect(0); got.Locks != 1 || len(f.locks()) != 0 {
		t.Errorf("%+v, locks %q", got, f.locks())
	}
	f.want("a", "new", "b", "new")
	f.crash(func(key string, c txn.Change) bool { return isCommit(c) })
	f.collect(0) // does not wait until they expire
	if len(f.locks()) != 0 {
		t.Errorf("locks %q", f.locks())
	}
}

// A transaction that is committing when its locks are resolved loses.
func TestCollect_StopsACommit(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "new", "b", "new")
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if isCommit(c) {
			f.store.onWrite = nil
			f.collect(0)
		}
		return nil
	}
	// Its mark may be collected as well, so it cannot tell any more.
	f.wantError(tx.Commit(f.ctx), txn.ErrUnknown)
	f.want("a", "none", "b", "none")
	if row := f.row("a"); row.Revision != 0 {
		t.Errorf("something is left: %+v", row)
	}
}

func TestCollect_ReportsFailures(t *testing.T) {
	f := newFixture(t, nil)
	f.set("a", "1")
	f.set("a", "2")
	f.store.onWrite = func(string, txn.Change) func() (bool, error) { return drop }
	_, err := f.db.Collect(f.ctx, 0)
	if f.wantError(err, txn.ErrStore); !errors.Is(err, errLost) {
		t.Error(err)
	}
	f.store.onWrite = func(string, txn.Change) func() (bool, error) { return deny }
	if got := f.collect(0); got.Skipped != 1 || got.Rows != 0 {
		t.Errorf("%+v", got)
	}
	f.oracle.err = isotone.ErrNoLeader
	_, err = f.db.Collect(f.ctx, 0)
	f.wantError(err, txn.ErrOracle)
	if _, err = f.db.Collect(f.ctx, -1); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error(err)
	}
}

// resurrect returns what a key has that was deleted, after a prewrite of it arrived much later than
// its transaction committed: the row had been created, deleted and collected meanwhile, so that the
// condition of the write is met again, and the record of the commit is still there.
func resurrect(t *testing.T) string {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1", "b", "1")
	var late txn.Change
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "b" && late.Next == 0 {
			late = c
			return drop
		}
		return nil
	}
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.set("b", "")
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if key == "a" {
			return deny // the row of the primary is busy when garbage is collected
		}
		return nil
	}
	f.collect(0)
	f.store.onWrite = nil
	if f.row("b").Revision != 0 || f.row("a").OldestRecord == 0 {
		t.Fatalf("b is there, or the record of a is not: %+v", f.row("a"))
	}
	if done, err := f.store.Write(f.ctx, []byte("b"), late); !done || err != nil {
		t.Fatal(done, err)
	}
	got := f.get(f.begin(), "b")
	f.collect(0)
	if len(f.locks()) != 0 {
		t.Errorf("locks %q", f.locks())
	}
	f.set("b", "next")
	return got
}

func TestCollect_IgnoresLocksThatComeTooLate(t *testing.T) {
	if got := resurrect(t); got != "none" {
		t.Errorf("a deleted key has %q", got)
	}
}

// resolvedMeanwhile returns what a snapshot has for a key that was locked, by a transaction that had
// committed, when its row was read. Before the points were read, the lock was resolved.
func resolvedMeanwhile(t *testing.T) string {
	f := newFixture(t, nil)
	f.set("a", "old", "b", "old")
	f.crash(func(key string, c txn.Change) bool { return key == "b" && isCommit(c) })
	f.oracle.pass(time.Second)
	tx := f.begin()
	f.store.between = func() {
		f.store.between = nil
		f.collect(500 * time.Millisecond)
	}
	return f.get(tx, "b")
}

func TestCollect_DoesNotMistakeResolvedLocksForLateOnes(t *testing.T) {
	if got := resolvedMeanwhile(t); got != "new" {
		t.Errorf("the snapshot has %q", got)
	}
}

func TestCollect_WorksThroughManyRows(t *testing.T) {
	f := newFixture(t, func(o *txn.Options) { o.KeysMax = 2000 })
	var pairs, deletes []string
	for i := range 1000 {
		key := string([]byte{byte(i >> 8), byte(i), 'k'})
		pairs = append(pairs, key, "v")
		if i%2 == 0 {
			deletes = append(deletes, key, "")
		}
	}
	f.set(pairs...)
	f.set(deletes...)
	got := f.collect(0)
	n := 0
	for _, err := range f.begin().All(f.ctx, "s", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	page, err := f.store.Scan(f.ctx, txn.Range{Limit: 1000}, 0)
	if err != nil || len(page.Entries) != 500 || n != 500 || got.Rows < 500 {
		t.Errorf("%d rows and %d keys are left, %+v, %v", len(page.Entries), n, got, err)
	}
}

func TestHooks_TellWhatHappens(t *testing.T) {
	var ended []txn.Ended
	var spans []string
	f := newFixture(t, func(o *txn.Options) {
		o.Hooks = spanHooks(&spans)
		o.Hooks.Ended = func(e txn.Ended) { ended = append(ended, e) }
	})
	f.set("a", "1", "b", "2")
	tx := f.begin()
	f.put(tx, "a", "2")
	f.set("a", "3")
	err := tx.Commit(f.ctx)
	f.begin().Rollback()
	if len(ended) != 4 || ended[0].Keys != 2 || ended[0].Commit == 0 || ended[2].Err != err || ended[2].Commit != 0 || ended[3].Err != nil {
		t.Errorf("%+v", ended)
	}
	want := []string{"commit", "prewrite", "prewrite.", "timestamp", "timestamp.", "primary", "primary.", "secondaries", "secondaries.", "commit."}
	if !slices.Equal(spans[:len(want)], want) {
		t.Errorf("spans %q", spans)
	}
}
