package txn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

func TestError_SaysWhatItIsAbout(t *testing.T) {
	cause := errors.New("the cause")
	for want, e := range map[string]*txn.Error{
		"conflict: written by a transaction that committed at 7": {Code: txn.CodeConflict},
		"locked by transaction 7":                                {Code: txn.CodeLocked},
		"rolled back by another client":                          {Code: txn.CodeAborted},
		"too old: the safe point is 7":                           {Code: txn.CodeTooOld},
		"outcome unknown of the commit at 7":                     {Code: txn.CodeUnknown},
		"a store failed":                                         {Code: txn.CodeStore},
		"no timestamp from the oracle":                           {Code: txn.CodeOracle},
		"has ended":                                              {Code: txn.CodeDone},
	} {
		e.Space, e.Key, e.Start, e.Other, e.Err = "bank", []byte("k\x00"), 5, 7, cause
		for _, part := range []string{want, `key "k\x00" of "bank"`, "transaction 5", "the cause"} {
			if !strings.Contains(e.Error(), part) {
				t.Errorf("%q lacks %q", e, part)
			}
		}
		wrapped := fmt.Errorf("work: %w", e)
		if !errors.Is(wrapped, cause) || !errors.Is(wrapped, &txn.Error{Code: e.Code}) || errors.Is(wrapped, &txn.Error{}) {
			t.Errorf("%v does not match what it is", wrapped)
		}
	}
	if txn.IsRetryable(cause) || txn.IsRetryable(nil) {
		t.Error("an error of somebody else is retryable")
	}
}

// A DB that lacks a store cannot tell what a lock means, and says why.
func TestGet_NamesTheStoreThatIsMissing(t *testing.T) {
	f := newFixture(t, nil)
	f.db = f.open(func(o *txn.Options) { o.Stores = map[string]txn.Store{"other": memory.New(), "s": f.store} })
	tx := f.begin()
	if err := tx.Set("other", []byte("a"), nil); err != nil {
		t.Fatal(err)
	}
	f.put(tx, "b", "new")
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if isCommit(c) {
			return drop
		}
		return nil
	}
	if err := tx.Commit(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.store.onWrite = nil
	f.want("b", "new")
	f.crashIn("other")
	f.db = f.open(nil)
	_, _, err := f.begin().Get(f.ctx, "s", []byte("b"))
	f.wantError(err, txn.ErrStore)
	if !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), `"other"`) {
		t.Error(err)
	}
}

// crashIn leaves a lock of b whose primary is in that store.
func (f *fixture) crashIn(space string) {
	f.Helper()
	tx := f.begin()
	if err := tx.Set(space, []byte("a"), nil); err != nil {
		f.Fatal(err)
	}
	f.put(tx, "b", "newer")
	f.store.onWrite = func(_ string, c txn.Change) func() (bool, error) {
		if len(c.Lock) == 0 {
			return drop
		}
		return nil
	}
	if err := tx.Commit(f.ctx); err != nil {
		f.Fatal(err)
	}
	f.store.onWrite = nil
}
