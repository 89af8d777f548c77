package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

func TestTx_SeesItsSnapshotAndItsOwnWrites(t *testing.T) {
	f := newFixture(t, nil)
	f.set("a", "1", "b", "2")
	tx := f.begin()
	f.put(tx, "a", "own", "b", "", "c", "new")
	other := f.set("a", "3", "d", "4")
	for key, want := range map[string]string{"a": "own", "b": "none", "c": "new", "d": "none"} {
		if got := f.get(tx, key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	if other <= tx.Start() {
		t.Errorf("a transaction that committed later has %v, not above %v", other, tx.Start())
	}
	tx.Rollback()
	f.want("a", "3", "b", "2", "c", "none", "d", "4")
}

func TestTx_CopiesWhatItIsGiven(t *testing.T) {
	f := newFixture(t, nil)
	value := []byte("value")
	tx := f.begin()
	if err := tx.Set("s", []byte("k"), value); err != nil {
		t.Fatal(err)
	}
	clear(value)
	got, _, _ := tx.Get(f.ctx, "s", []byte("k"))
	clear(got)
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.want("k", "value")
}

func TestTx_RefusesBadArguments(t *testing.T) {
	f := newFixture(t, func(o *txn.Options) { o.KeysMax, o.BytesMax = 3, 20 })
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2", "c", "3")
	f.put(tx, "a", "another value") // no new key
	long := make([]byte, txn.KeySizeMax+1)
	get := func(space string, key []byte) error {
		_, _, err := tx.Get(f.ctx, space, key)
		return err
	}
	scan := func(from []byte, limit int) error {
		_, _, err := tx.Scan(f.ctx, "s", from, nil, limit)
		return err
	}
	for name, err := range map[string]error{
		"unknown space": get("other", []byte("k")), "no key": get("s", nil), "long key": get("s", long),
		"long value": tx.Set("s", []byte("a"), make([]byte, txn.ValueSizeMax+1)),
		"keys":       tx.Set("s", []byte("d"), nil), "bytes": tx.Set("s", []byte("b"), make([]byte, 10)),
		"delete in an unknown space": tx.Delete("other", []byte("a")),
		"limit of 0":                 scan(nil, 0), "large limit": scan(nil, txn.ScanRowsMax+1), "long range": scan(append(long, 0), 1),
	} {
		if !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.want("a", "another value", "b", "2", "c", "3", "d", "none")
}

func TestTx_EndsOnce(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1")
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	tx.Rollback()
	_, _, getErr := tx.Get(f.ctx, "s", []byte("a"))
	_, _, scanErr := tx.Scan(f.ctx, "s", nil, nil, 1)
	for _, err := range []error{tx.Commit(f.ctx), getErr, scanErr, tx.Set("s", []byte("a"), nil)} {
		f.wantError(err, txn.ErrDone)
	}
	f.want("a", "1")
}

func TestTx_CommitsNothingWithoutATimestamp(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.oracle.err = errors.New("down")
	f.get(tx, "a")
	if err := tx.Commit(f.ctx); err != nil || tx.CommitTimestamp() != 0 {
		t.Errorf("%v, committed at %v", err, tx.CommitTimestamp())
	}
}

func TestTx_ScanMergesItsWrites(t *testing.T) {
	f := newFixture(t, nil)
	var pairs []string
	for i := range 20 {
		pairs = append(pairs, fmt.Sprintf("k%02d", i), "v")
	}
	f.set(pairs...)
	f.set("k05", "")
	tx := f.begin()
	f.put(tx, "k03", "", "k04", "own", "k045", "new", "k99", "last", "a", "first")
	f.set("k10", "", "k11", "later")
	for _, limit := range []int{1, 2, 7, 100} {
		var got []string
		for from := []byte("k02"); from != nil; {
			list, next, err := tx.Scan(f.ctx, "s", from, []byte("k12"), limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) > limit || next != nil && bytes.Compare(next, from) <= 0 {
				t.Fatalf("%d pairs, limit %d, next %q after %q", len(list), limit, next, from)
			}
			for _, p := range list {
				got = append(got, string(p.Key)+string(p.Value))
			}
			from = next
		}
		want := []string{"k02v", "k04own", "k045new", "k06v", "k07v", "k08v", "k09v", "k10v", "k11v"}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d:\n got %q\nwant %q", limit, got, want)
		}
	}
	var all []string
	for p, err := range tx.All(f.ctx, "s", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(p.Key))
		if string(p.Key) == "k04" {
			break
		}
	}
	if !slices.Equal(all, []string{"a", "k00", "k01", "k02", "k04"}) {
		t.Errorf("All yielded %q", all)
	}
}

func TestTx_ScanOfAnEmptyRangeIsEmpty(t *testing.T) {
	f := newFixture(t, nil)
	f.set("a", "1")
	for _, r := range [][2]string{{"b", "b"}, {"b", "a"}, {"b", ""}} {
		list, next, err := f.begin().Scan(f.ctx, "s", []byte(r[0]), []byte(r[1]), 5)
		if len(list) != 0 || next != nil || err != nil {
			t.Errorf("%q: %v %v %v", r, list, next, err)
		}
	}
}

func TestCommit_ReportsConflicts(t *testing.T) {
	f := newFixture(t, nil)
	f.set("k", "0")
	tx := f.begin()
	f.get(tx, "k")
	f.put(tx, "a", "1", "k", "1")
	commit := f.set("k", "2")
	e := f.wantError(tx.Commit(f.ctx), txn.ErrConflict)
	if e.Space != "s" || string(e.Key) != "k" || e.Start != tx.Start() || e.Other != commit {
		t.Errorf("the error says %+v", e)
	}
	for _, part := range []string{`"k"`, commit.String(), tx.Start().String()} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %s", e, part)
		}
	}
	if !txn.IsRetryable(e) || len(f.locks()) != 0 {
		t.Errorf("retryable: %v, locks left: %q", txn.IsRetryable(e), f.locks())
	}
	f.want("a", "none", "k", "2")
}

func TestCommit_ReportsBlindConflicts(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "k", "1")
	f.set("k", "2")
	f.wantError(tx.Commit(f.ctx), txn.ErrConflict)
}

// Snapshot isolation allows this, and so does the package; docs say so.
func TestCommit_AllowsWriteSkew(t *testing.T) {
	f := newFixture(t, nil)
	f.set("x", "1", "y", "1")
	a, b := f.begin(), f.begin()
	f.get(a, "y")
	f.put(a, "x", "0")
	f.get(b, "x")
	f.put(b, "y", "0")
	if err := errors.Join(a.Commit(f.ctx), b.Commit(f.ctx)); err != nil {
		t.Error(err)
	}
}

// A transaction that writes back what it has read depends on it.
func TestCommit_PreventsWriteSkewBySettingWhatWasRead(t *testing.T) {
	f := newFixture(t, nil)
	f.set("x", "1", "y", "1")
	a, b := f.begin(), f.begin()
	f.put(a, "y", f.get(a, "y"), "x", "0")
	f.put(b, "x", f.get(b, "x"), "y", "0")
	if err := a.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.wantError(b.Commit(f.ctx), txn.ErrConflict)
}

func TestRun_RepeatsUntilItCommits(t *testing.T) {
	var retried []int
	f := newFixture(t, func(o *txn.Options) {
		o.Hooks.Retried = func(attempt int, err error) { retried = append(retried, attempt) }
	})
	calls := 0
	work := func(tx *txn.Tx) error {
		calls++
		f.put(tx, "k", fmt.Sprint(calls))
		if calls < 3 {
			f.set("k", "other")
		}
		return nil
	}
	if err := f.db.Run(f.ctx, work); err != nil {
		t.Fatal(err)
	}
	f.want("k", "3")
	calls = -10
	f.wantError(f.db.Run(f.ctx, work), txn.ErrConflict)
	if calls != -7 || !slices.Equal(retried, []int{1, 2, 1, 2}) {
		t.Errorf("%d attempts, retried %v", calls+10, retried)
	}
}

func TestRun_ReturnsTheErrorOfTheWork(t *testing.T) {
	f := newFixture(t, nil)
	mine := errors.New("mine")
	calls := 0
	err := f.db.Run(f.ctx, func(tx *txn.Tx) error {
		calls++
		f.put(tx, "k", "1")
		return mine
	})
	if err != mine || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	f.want("k", "none")
}

func TestRun_StopsWithItsContext(t *testing.T) {
	f := newFixture(t, func(o *txn.Options) { o.RunAttempts = 1000 })
	ctx, cancel := context.WithCancel(f.ctx)
	calls := 0
	err := f.db.Run(ctx, func(tx *txn.Tx) error {
		if calls++; calls == 5 {
			cancel()
		}
		return &txn.Error{Code: txn.CodeConflict}
	})
	f.wantError(err, txn.ErrConflict)
	if calls != 5 {
		t.Errorf("%d calls", calls)
	}
}

func TestView_CannotWrite(t *testing.T) {
	f := newFixture(t, nil)
	err := f.db.View(f.ctx, func(tx *txn.Tx) error { return tx.Set("s", []byte("k"), nil) })
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestDB_CloseEndsIt(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2")
	f.db.Close()
	_, err := f.db.Begin(f.ctx)
	f.wantError(err, txn.ErrDone)
	if err := tx.Commit(f.ctx); err != nil || len(f.locks()) != 0 {
		t.Errorf("%v, locks %q", err, f.locks())
	}
}

func TestNew_ListsAllFaults(t *testing.T) {
	_, err := txn.New(newOracle(), txn.Options{LockTTL: time.Millisecond, Parallel: -1, Stores: map[string]txn.Store{"": nil}})
	for _, part := range []string{"LockTTL", "Parallel", "names of 1 to 64", "is nil"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if _, err := txn.New(nil, txn.Options{}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("without an oracle: %v", err)
	}
}

func TestBegin_ReportsTheOracle(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1")
	f.oracle.err = isotone.ErrNoLeader
	_, err := f.db.Begin(f.ctx)
	f.wantError(err, txn.ErrOracle)
	err = tx.Commit(f.ctx)
	f.wantError(err, txn.ErrOracle)
	if !errors.Is(err, isotone.ErrNoLeader) || len(f.locks()) != 0 {
		t.Errorf("%v, locks %q", err, f.locks())
	}
}

func TestCommit_RefusesAnOracleThatGoesBack(t *testing.T) {
	f := newFixture(t, nil)
	tx := f.begin()
	f.put(tx, "a", "1")
	f.oracle.last -= 10
	f.wantError(tx.Commit(f.ctx), txn.ErrOracle)
	f.oracle.last += 10
	f.want("a", "none")
}
