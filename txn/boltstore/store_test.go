package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/boltstore"
	"github.com/isotone/isotone/txn/internal/storecheck"
	"github.com/isotone/isotone/txn/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openFile(t *testing.T, path string, opts *bbolt.Options) *bbolt.DB {
	t.Helper()
	file, err := bbolt.Open(path, 0o600, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func newFile(t *testing.T) *bbolt.DB {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "file"), nil)
}

func open(t *testing.T, file *bbolt.DB, name string) *boltstore.Store {
	t.Helper()
	store, err := boltstore.Open(file, boltstore.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestStore_KeepsContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) txn.Store { return open(t, newFile(t), "s") })
}

func TestStore_KeepsContractBesideOthers(t *testing.T) {
	file := newFile(t)
	n := 0
	storetest.Run(t, func(t *testing.T) txn.Store {
		n++
		return open(t, file, fmt.Sprint("s", n))
	})
}

func TestWrite_CountsEachSuccessOnce(t *testing.T) {
	file := newFile(t)
	storecheck.Counts(t, []txn.Store{open(t, file, "s"), open(t, file, "s")}, 4, 20)
}

func TestOpen_RefusesBadOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("n", 256)} {
		if _, err := boltstore.Open(file, boltstore.Options{Name: name}); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	good := boltstore.Options{Name: "s"}
	for _, opts := range []*bbolt.Options{{NoSync: true}, {ReadOnly: true}} {
		file := openFile(t, path, opts)
		if _, err := boltstore.Open(file, good); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("NoSync=%v, ReadOnly=%v: %v", opts.NoSync, opts.ReadOnly, err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := boltstore.Open(nil, good); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("no file: %v", err)
	}
}

func TestOpen_RefusesOtherFormat(t *testing.T) {
	file := newFile(t)
	store := open(t, file, "s")
	store.Close()
	err := file.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("s")).Put([]byte("format"), []byte{99}) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := boltstore.Open(file, boltstore.Options{Name: "s"}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("a store of format 99: %v", err)
	}
}

func TestStore_SurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file := openFile(t, path, nil)
	store := open(t, file, "s")
	change := txn.Change{Next: 7, Lock: []byte("lock"), Put: txn.Version{Commit: 3, Value: []byte("value")}}
	if ok, err := store.Write(t.Context(), []byte("k"), change); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := store.Raise(t.Context(), txn.Points{Safe: 2, Resolved: 1}); err != nil {
		t.Fatal(err)
	}
	store.Close()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	store = open(t, openFile(t, path, nil), "s")
	row, points, err := store.Read(t.Context(), []byte("k"), 3, 0)
	if err != nil || row.Revision != 7 || string(row.Lock) != "lock" || string(row.Version.Value) != "value" || points.Safe != 2 {
		t.Errorf("after reopening: %+v, %+v, %v", row, points, err)
	}
}

func TestStore_CloseEndsIt(t *testing.T) {
	store := open(t, newFile(t), "s")
	store.Close()
	store.Close()
	_, _, readErr := store.Read(t.Context(), []byte("k"), 1, 1)
	_, writeErr := store.Write(t.Context(), []byte("k"), txn.Change{Next: 1, Lock: []byte("l")})
	for name, err := range map[string]error{"Read": readErr, "Write": writeErr} {
		if !errors.Is(err, boltstore.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

// TestWrite_EndsWithItsContext has another transaction of bbolt hold up the writer.
func TestWrite_EndsWithItsContext(t *testing.T) {
	file := newFile(t)
	store := open(t, file, "s")
	if err := store.Raise(t.Context(), txn.Points{}); err != nil { // the writer runs now
		t.Fatal(err)
	}
	tx, err := file.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	// The writer takes the first write and waits; it does not take the second.
	for _, key := range []string{"taken", "waiting"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := store.Write(ctx, []byte(key), txn.Change{Next: 1, Lock: []byte("l")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write %q: %v", key, err)
		}
		cancel()
	}
	if _, _, err := store.Read(t.Context(), []byte("taken"), 1, 1); err != nil {
		t.Errorf("a read while a write waits: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := store.Raise(t.Context(), txn.Points{}); err != nil { // comes after what the writer has taken
		t.Fatal(err)
	}
	for key, want := range map[string]uint64{"taken": 1, "waiting": 0} {
		if row, _, err := store.Read(t.Context(), []byte(key), 1, 1); err != nil || row.Revision != want {
			t.Errorf("row %q has revision %d, %v; want %d", key, row.Revision, err, want)
		}
	}
}
