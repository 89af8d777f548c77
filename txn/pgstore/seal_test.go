package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/pgstore"
)

var _ txn.Fenced = (*pgstore.Store)(nil)

// commitAt is a commit with a timestamp, of the row that has the revision 1.
func commitAt(ts isotone.Timestamp64) txn.Change {
	return txn.Change{If: 1, Next: 2, Put: txn.Version{Commit: ts}, Record: txn.Record{Start: 1, Commit: ts}}
}

// lockRow makes the row k, with the revision 1.
func lockRow(t *testing.T, store *pgstore.Store) {
	t.Helper()
	if ok, err := store.Write(t.Context(), []byte("k"), txn.Change{Next: 1, Lock: []byte("l")}); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// commit has a store commit, in a goroutine.
func commit(t *testing.T, store *pgstore.Store, ts isotone.Timestamp64) <-chan error {
	return write(t, store, commitAt(ts))
}

// write has a store change the row k, in a goroutine.
func write(t *testing.T, store *pgstore.Store, c txn.Change) <-chan error {
	answer := make(chan error, 1)
	go func() {
		done, err := store.Write(t.Context(), []byte("k"), c)
		if err == nil && !done {
			err = errors.New("the row has another revision")
		}
		answer <- err
	}()
	return answer
}

// waits reports whether somebody waits for a lock of a kind: "relation" or "transactionid".
func waits(t *testing.T, tx pgx.Tx, kind string) bool {
	t.Helper()
	var n int
	if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = $1 AND NOT granted", kind).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func run(t *testing.T, tx pgx.Tx, sql string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// A commit that was let in is there when a seal returns, and others go on beside it until then.
func TestSeal_WaitsForCommitsUnderWay(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	store := create(t, pool, schema)
	lockRow(t, store)
	tx := begin(t, pool)
	run(t, tx, "SELECT FROM "+pgx.Identifier{schema, "rows"}.Sanitize()+" FOR UPDATE")
	committed := commit(t, store, 5)
	await.Until(t, "the commit waits for its row", func() bool { return waits(t, tx, "transactionid") })
	beside := txn.Change{Next: 1, Put: txn.Version{Commit: 6}, Record: txn.Record{Start: 2, Commit: 6}}
	if ok, err := store.Write(t.Context(), []byte("other"), beside); !ok || err != nil {
		t.Errorf("a commit beside another one that waits: %v, %v", ok, err)
	}
	sealed := make(chan error, 1)
	go func() { sealed <- store.Seal(t.Context(), 5) }()
	await.Until(t, "the seal waits", func() bool {
		select {
		case err := <-sealed:
			t.Fatalf("a seal does not wait for a commit that was let in: %v", err)
		default:
		}
		return waits(t, tx, "relation")
	})
	run(t, tx, "COMMIT")
	if err := errors.Join(await.Receive(t, "the commit", committed), await.Receive(t, "the seal", sealed)); err != nil {
		t.Error(err)
	}
}

// A commit may begin before a seal, and have to wait for it. At no level of isolation does it compare what it saw before.
func TestWrite_WaitsForASeal(t *testing.T) {
	removing := commitAt(5)
	removing.DropVersions = 3
	for name, tt := range map[string]struct {
		level  string
		change txn.Change
	}{
		"read committed":             {"read committed", commitAt(5)},
		"repeatable read":            {"repeatable read", commitAt(5)},
		"serializable":               {"serializable", commitAt(5)},
		"a commit that also removes": {"read committed", removing},
	} {
		t.Run(name, func(t *testing.T) {
			config := postgres.pool(t).Config()
			config.ConnConfig.RuntimeParams["default_transaction_isolation"] = tt.level
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			schema := newSchema()
			store := create(t, pool, schema)
			lockRow(t, store)
			fence := pgx.Identifier{schema, "fence"}.Sanitize()
			tx := begin(t, pool)
			run(t, tx, "LOCK TABLE "+fence+" IN EXCLUSIVE MODE") // as a seal does
			run(t, tx, "UPDATE "+fence+" SET sealed = 5")
			committed := write(t, store, tt.change)
			await.Until(t, "the commit waits for the seal", func() bool {
				select {
				case err := <-committed:
					t.Fatalf("a commit does not wait for a seal under way: %v", err)
				default:
				}
				return waits(t, tx, "relation")
			})
			run(t, tx, "COMMIT")
			if err := await.Receive(t, "the commit", committed); !errors.Is(err, isotone.ErrFenced) {
				t.Errorf("a commit below a seal that it had to wait for: %v", err)
			}
		})
	}
}

// A commit that was applied, and whose answer was lost, must not be told that it was refused.
func TestWrite_ComparesTheRevisionFirst(t *testing.T) {
	store := create(t, postgres.pool(t), newSchema())
	lockRow(t, store)
	if err := await.Receive(t, "the commit", commit(t, store, 5)); err != nil {
		t.Fatal(err)
	}
	if err := store.Seal(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if ok, err := store.Write(t.Context(), []byte("k"), commitAt(5)); ok || err != nil {
		t.Errorf("the same commit again: %v, %v; want a refusal for the revision", ok, err)
	}
}

// A schema may be older than the fence.
func TestCreate_AddsTheFence(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	create(t, pool, schema)
	if _, err := pool.Exec(t.Context(), "DROP TABLE "+pgx.Identifier{schema, "fence"}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	store := create(t, pool, schema)
	lockRow(t, store)
	if err := store.Seal(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	create(t, pool, schema)
	if _, err := store.Write(t.Context(), []byte("k"), commitAt(5)); !errors.Is(err, isotone.ErrFenced) {
		t.Errorf("a sealed commit: %v", err)
	}
}

// A fence that was lost lets nothing pass.
func TestWrite_FailsWithoutTheFence(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	store := create(t, pool, schema)
	lockRow(t, store)
	if _, err := pool.Exec(t.Context(), "DELETE FROM "+pgx.Identifier{schema, "fence"}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	if ok, err := store.Write(t.Context(), []byte("k"), commitAt(5)); ok || err == nil || errors.Is(err, isotone.ErrFenced) {
		t.Errorf("a commit at a store that has lost its fence: %v, %v", ok, err)
	}
	if err := store.Seal(t.Context(), 5); err == nil {
		t.Error("a fence that is lost was raised")
	}
}

// A replica does not have the seal, whose wait was given up, so a refusal has to wait.
func TestWrite_RefusalWaitsForTheReplica(t *testing.T) {
	p := newPair(t)
	store := p.create()
	lockRow(t, store)
	p.replica.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	err := store.Seal(ctx, 5)
	cancel()
	if err == nil {
		t.Fatal("a seal was acknowledged, and no replica has it")
	}
	// The server shows the seal some time after the request to cancel its wait.
	p.await(p.primary, "SELECT sealed = 5 FROM pair.fence")
	ctx, cancel = context.WithTimeout(t.Context(), short)
	ok, err := store.Write(ctx, []byte("k"), commitAt(5))
	cancel()
	if ok || err == nil || errors.Is(err, isotone.ErrFenced) {
		t.Errorf("a commit below a seal that may be lost: %v, %v; want no answer", ok, err)
	}
	p.startReplica()
	if _, err := store.Write(t.Context(), []byte("k"), commitAt(5)); !errors.Is(err, isotone.ErrFenced) {
		t.Errorf("the same with a replica: %v", err)
	}
}
