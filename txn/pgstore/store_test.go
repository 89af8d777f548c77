package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/storecheck"
	"github.com/isotone/isotone/txn/pgstore"
	"github.com/isotone/isotone/txn/storetest"
)

// schemas makes the names of schemas unique in the server. They need quoting.
var schemas atomic.Int64

func newSchema() string { return fmt.Sprintf(`Store "%d"`, schemas.Add(1)) }

func create(t *testing.T, pool *pgxpool.Pool, schema string) *pgstore.Store {
	t.Helper()
	store, err := pgstore.New(pool, pgstore.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore_KeepsContract(t *testing.T) {
	pool := postgres.pool(t)
	storetest.Run(t, func(t *testing.T) txn.Store { return create(t, pool, newSchema()) })
}

func TestStore_KeepsContractWithoutPreparedStatements(t *testing.T) {
	config := postgres.pool(t).Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	storetest.Run(t, func(t *testing.T) txn.Store { return create(t, pool, newSchema()) })
}

func TestWrite_CountsEachSuccessOnce(t *testing.T) {
	schema := newSchema()
	first := create(t, postgres.pool(t), schema)
	second := create(t, postgres.pool(t), schema)
	storecheck.Counts(t, []txn.Store{first, second}, 4, 40)
}

func TestNew_RefusesBadOptions(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "host=/nowhere user=nobody")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, schema := range []string{"", strings.Repeat("s", 64), "a\x00b", "a@b"} {
		if _, err := pgstore.New(pool, pgstore.Options{Schema: schema}); !errors.Is(err, isotone.ErrInvalidArgument) {
			t.Errorf("schema %q: %v", schema, err)
		}
	}
	if _, err := pgstore.New(nil, pgstore.Options{Schema: "s"}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("no pool: %v", err)
	}
}

func TestCreate_MayRunAtOnceAndAgain(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	store, err := pgstore.New(pool, pgstore.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := store.Create(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := store.Raise(t.Context(), txn.Points{Safe: 5}); err != nil {
		t.Fatal(err)
	}
	if points, err := create(t, pool, schema).Points(t.Context()); err != nil || points.Safe != 5 {
		t.Errorf("after another Create: %v, %v", points, err)
	}
}

func TestCreate_NeedsOnlyItsSchema(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	role := "role of " + schema
	quoted := pgx.Identifier{role}.Sanitize()
	for _, sql := range []string{
		"CREATE ROLE " + quoted + " LOGIN",
		"CREATE SCHEMA " + pgx.Identifier{schema}.Sanitize() + " AUTHORIZATION " + quoted,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	config := pool.Config()
	config.ConnConfig.User = role
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	create(t, limited, schema)
	create(t, limited, schema)
	// What reads need when there are synchronous replicas.
	if _, err := limited.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'isotone', ''), pg_postmaster_start_time()"); err != nil {
		t.Error(err)
	}
	other, err := pgstore.New(limited, pgstore.Options{Schema: newSchema()})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Create(t.Context()); err == nil {
		t.Error("a role without the right to do so has created a schema")
	}
}

func TestCreate_RefusesOtherFormat(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	store := create(t, pool, schema)
	if _, err := pool.Exec(t.Context(), "UPDATE "+pgx.Identifier{schema, "points"}.Sanitize()+" SET format = 99"); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context()); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("tables of format 99: %v", err)
	}
}

func TestCreate_RefusesCommitsThatAreLost(t *testing.T) {
	config := postgres.pool(t).Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := pgstore.New(pool, pgstore.Options{Schema: newSchema()})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context()); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Errorf("synchronous_commit=off: %v", err)
	}
}

func TestStore_FailsWithoutTables(t *testing.T) {
	store, err := pgstore.New(postgres.pool(t), pgstore.Options{Schema: newSchema()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Read(t.Context(), []byte("k"), 1, 1); err == nil {
		t.Error("a read without tables succeeded")
	}
}

// TestWrite_RemovesAllOrNothing has writers add and remove what a row has, and readers that must never
// see half of it.
func TestWrite_RemovesAllOrNothing(t *testing.T) {
	store := create(t, postgres.pool(t), newSchema())
	const rounds = 60
	key := []byte("k")
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		defer done.Store(true)
		for i := range uint64(rounds) {
			full := txn.Change{Next: 2*i + 1, Put: txn.Version{Commit: 5}, Record: txn.Record{Start: 4, Commit: 5}}
			empty := txn.Change{If: full.Next, Next: full.Next + 1, DropVersions: 6, DropRecords: 6}
			for _, c := range []txn.Change{full, empty} {
				if ok, err := store.Write(t.Context(), key, c); !ok || err != nil {
					t.Errorf("write %+v: %v, %v", c, ok, err)
					return
				}
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				row, _, err := store.Read(t.Context(), key, 9, 4)
				full := row.Revision != 0
				if err != nil || full != (row.Newest == 5) || full != (row.Record.Start == 4) {
					t.Errorf("half of a row: %+v, %v", row, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestStore_EndsCallsWhenTheServerHangs(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	store := create(t, pool, schema)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"rows", "points", "fence"} {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE "+pgx.Identifier{schema, table}.Sanitize()+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
	}
	storecheck.EndsCalls(t, store)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestStore_FailsWhenConnectionsEnd(t *testing.T) {
	pool := postgres.pool(t)
	schema := newSchema()
	store := create(t, pool, schema)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows := pgx.Identifier{schema, "rows"}.Sanitize()
	if _, err := tx.Exec(ctx, "LOCK TABLE "+rows+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := store.Write(ctx, []byte("k"), txn.Change{Next: 1, Lock: []byte("l")})
		failed <- err
	}()
	for ended := false; !ended; {
		const waiting = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = $1::regclass AND NOT granted"
		if err := tx.QueryRow(ctx, waiting, rows).Scan(&ended); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
	}
	if err := <-failed; err == nil {
		t.Error("a write whose connection was ended succeeded")
	}
}

func TestStore_FailsOnAReplica(t *testing.T) {
	var s server
	t.Cleanup(s.stop)
	pool := s.pool(t)
	schema := newSchema()
	create(t, pool, schema)
	pool.Close()
	if err := s.restartAsReplica(t.Context()); err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.New(s.pool(t), pgstore.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	_, _, readErr := store.Read(t.Context(), []byte("k"), 1, 1)
	_, scanErr := store.Scan(t.Context(), txn.Range{Limit: 1}, 1)
	_, pointsErr := store.Points(t.Context())
	for name, err := range map[string]error{"Read": readErr, "Scan": scanErr, "Points": pointsErr} {
		if !errors.Is(err, pgstore.ErrReplica) {
			t.Errorf("%s at a replica: %v", name, err)
		}
	}
	if done, err := store.Write(t.Context(), []byte("k"), txn.Change{If: 5, Next: 6, Lock: []byte("l")}); done || err == nil {
		t.Errorf("Write at a replica: %v, %v", done, err)
	}
}

func TestScan_BoundsBytes(t *testing.T) {
	store := create(t, postgres.pool(t), newSchema())
	value := make([]byte, txn.ValueSizeMax)
	for i := range 8 {
		c := txn.Change{Next: 1, Put: txn.Version{Commit: 1, Value: value}}
		if ok, err := store.Write(t.Context(), fmt.Append(nil, i), c); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	page, err := store.Scan(t.Context(), txn.Range{Limit: 100}, 1)
	if err != nil || !page.More || len(page.Entries) != 5 {
		t.Errorf("a page of %d rows of 1 MiB, more=%v, %v; want 5 of 8", len(page.Entries), page.More, err)
	}
}
