package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/fence"
	"github.com/isotone/isotone/internal/check/pgserver"
)

// postgres is a server that the first test that needs it starts, for all of them. Each test has a database of its own.
var postgres struct {
	once      sync.Once
	err       error
	databases atomic.Int64
	*pgserver.Server
}

func TestMain(m *testing.M) {
	code := m.Run()
	if postgres.Server != nil {
		postgres.Remove()
	}
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/isotone/isotone/internal/check/child.callAll")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func startPostgres() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if postgres.Server, err = pgserver.New(ctx); err != nil {
		return err
	}
	db, err := sql.Open("pgx", postgresURL("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	return postgres.Start(ctx, db.PingContext, "listen_addresses=")
}

func postgresURL(database string) string {
	return "host=" + postgres.Dir() + " user=tester dbname=" + database + " connect_timeout=10"
}

// openPostgres returns a database with the schema. It skips the test if there is no Postgres.
func openPostgres(t *testing.T) *sql.DB {
	t.Helper()
	postgres.once.Do(func() { postgres.err = startPostgres() })
	if postgres.err != nil {
		pgserver.Unavailable(t, postgres.err)
	}
	admin, err := sql.Open("pgx", postgresURL("postgres"))
	must(t, err)
	defer admin.Close()
	name := fmt.Sprint("fence", postgres.databases.Add(1))
	_, err = admin.ExecContext(t.Context(), `CREATE DATABASE `+name)
	must(t, err)
	db, err := sql.Open("pgx", postgresURL(name))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), fence.PostgresSchema+`CREATE TABLE words (list text, n bigserial, word text)`)
	must(t, err)
	return db
}

// pgStore appends words to a table. If the database cannot serialize a transaction, it runs again.
type pgStore struct {
	db    *sql.DB
	level sql.IsolationLevel
	name  string
	*fence.PostgresFence
}

func newPGStore(t *testing.T, db *sql.DB, level sql.IsolationLevel) *pgStore {
	return &pgStore{db, level, t.Name(), fence.Postgres(db, t.Name())}
}

func (s *pgStore) raise(ctx context.Context, token isotone.Timestamp, word string) error {
	return s.write(ctx, word, func(tx *sql.Tx) error { return s.Raise(ctx, tx, token) })
}

func (s *pgStore) check(ctx context.Context, stamp isotone.Timestamp, word string) error {
	return s.write(ctx, word, func(tx *sql.Tx) error { return s.Check(ctx, tx, stamp) })
}

func (s *pgStore) write(ctx context.Context, word string, allow func(*sql.Tx) error) error {
	for {
		err := s.try(ctx, word, allow)
		var of *pgconn.PgError
		if !errors.As(err, &of) || of.Code != "40001" {
			return err
		}
	}
}

func (s *pgStore) try(ctx context.Context, word string, allow func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := allow(tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO words VALUES ($1, DEFAULT, $2)`, s.name, word); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *pgStore) words(ctx context.Context) (words []string, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT word FROM words WHERE list = $1 ORDER BY n`, s.name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		words = append(words, "")
		if err := rows.Scan(&words[len(words)-1]); err != nil {
			return nil, err
		}
	}
	return words, rows.Err()
}

func TestPostgres_IsAFence(t *testing.T) {
	db := openPostgres(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			testStore(t, func(t *testing.T) store { return newPGStore(t, db, level) })
		})
	}
}

// A transaction may have taken its snapshot before the fence was raised.
func TestPostgres_SnapshotBeforeTheFence(t *testing.T) {
	db := openPostgres(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for what, allow := range map[string]func(f *fence.PostgresFence, tx *sql.Tx) error{
			"raise": func(f *fence.PostgresFence, tx *sql.Tx) error { return f.Raise(t.Context(), tx, at(2)) },
			"check": func(f *fence.PostgresFence, tx *sql.Tx) error { return f.Check(t.Context(), tx, at(2)) },
		} {
			for _, begun := range []bool{false, true} {
				f := fence.Postgres(db, fmt.Sprint(t.Name(), level, what, begun))
				if begun {
					must(t, f.Seal(t.Context(), at(0)))
				}
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				must(t, err)
				_, err = tx.ExecContext(t.Context(), `SELECT count(*) FROM words`)
				must(t, err)
				must(t, f.Seal(t.Context(), at(3)))
				if err := allow(f, tx); err == nil {
					t.Errorf("%v, %s, begun %v: a write below the fence is accepted, as its snapshot is older", level, what, begun)
				}
				must(t, tx.Rollback())
			}
		}
	}
}

func TestPostgres_RefusalAbortsTheTransaction(t *testing.T) {
	db := openPostgres(t)
	s := newPGStore(t, db, sql.LevelReadCommitted)
	must(t, s.raise(t.Context(), at(2), "a"))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO words VALUES ($1, DEFAULT, 'late')`, s.name)
	must(t, err)
	refused(t, s.Raise(t.Context(), tx, at(1)), at(1), at(2))
	if err := tx.Commit(); err == nil {
		t.Error("a transaction commits whose write was refused")
	}
	hasWords(t, s, "a")
}

// A seal waits for the transactions that were let in: what they write is there when it returns, and those after it are refused.
func TestPostgres_SealWaitsForWriters(t *testing.T) {
	db := openPostgres(t)
	s := newPGStore(t, db, sql.LevelReadCommitted)
	must(t, s.Seal(t.Context(), at(0)))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, s.Check(t.Context(), tx, at(2)))
	sealed := make(chan error, 1)
	go func() { sealed <- s.Seal(t.Context(), at(2)) }()
	for waits := 0; waits == 0; {
		must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).Scan(&waits))
		select {
		case err := <-sealed:
			t.Fatalf("a seal does not wait for a transaction that was let in: %v", err)
		default:
		}
	}
	_, err = tx.ExecContext(t.Context(), `INSERT INTO words VALUES ($1, DEFAULT, 'a')`, s.name)
	must(t, err)
	must(t, tx.Commit())
	must(t, <-sealed)
	hasWords(t, s, "a")
	if err := s.check(t.Context(), at(2), "b"); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("after the seal: %v", err)
	}
}

func TestPostgres_FencesAreDurable(t *testing.T) {
	db := openPostgres(t)
	f := fence.Postgres(db, t.Name())
	for _, query := range []string{fence.PostgresRaise, fence.PostgresSeal} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), `SET LOCAL synchronous_commit = off`)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), query, t.Name(), at(1).String())
		must(t, fence.PostgresError(err, t.Name()))
		var is string
		must(t, tx.QueryRowContext(t.Context(), `SHOW synchronous_commit`).Scan(&is))
		must(t, tx.Commit())
		if is == "off" {
			t.Errorf("%s: a crash of the server may lose the fence", query)
		}
	}
	must(t, f.Seal(t.Context(), at(2)))
}

// Processes run the schema when they start, and others use it that may not write the table.
func TestPostgres_SchemaForAll(t *testing.T) {
	db := openPostgres(t)
	ctx := t.Context()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := db.ExecContext(ctx, fence.PostgresSchema); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	conn, err := db.Conn(ctx)
	must(t, err)
	defer conn.Close()
	must(t, fence.Postgres(db, t.Name()).Seal(ctx, at(3)))
	writer := fmt.Sprint("writer", postgres.databases.Load()) // roles are those of all databases
	for _, query := range []string{
		`CREATE ROLE ` + writer, `GRANT USAGE ON SCHEMA isotone TO ` + writer, `CREATE SCHEMA evil`, `GRANT USAGE ON SCHEMA evil TO ` + writer,
		`CREATE FUNCTION evil.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1'`,
		`CREATE FUNCTION evil.decode(text, text) RETURNS bytea LANGUAGE sql AS $$ SELECT '\xffffffffffffffffffffffffffffffff'::bytea $$`,
		`SET ROLE ` + writer, `SET search_path = evil, pg_catalog`,
	} {
		_, err := conn.ExecContext(ctx, query)
		must(t, err)
	}
	_, err = conn.ExecContext(ctx, fence.PostgresCheck, t.Name(), at(4).String())
	must(t, err)
	_, err = conn.ExecContext(ctx, fence.PostgresCheck, t.Name(), at(2).String())
	refused(t, fence.PostgresError(err, t.Name()), at(2), isotone.Timestamp{Time: 3, Index: at(3).Index + 1})
	if _, err := conn.ExecContext(ctx, `DELETE FROM isotone.fences`); err == nil {
		t.Error("whoever may write may lower a fence")
	}
	_, err = conn.ExecContext(ctx, `RESET ROLE`)
	must(t, err)
	_, err = conn.ExecContext(ctx, `RESET search_path`)
	must(t, err)
}

func TestPostgres_NamesOfAllKinds(t *testing.T) {
	db := openPostgres(t)
	name := "is at " + at(7).String() + ", and the write is stamped " + at(8).String() + " 'ä\" %s"
	s := &pgStore{db, sql.LevelReadCommitted, name, fence.Postgres(db, name)}
	must(t, s.raise(t.Context(), at(2), "a"))
	refused(t, s.raise(t.Context(), at(1), "b"), at(1), at(2))
	for _, query := range []string{`CREATE TABLE named (n text COLLATE "POSIX")`, `INSERT INTO named VALUES ('in a column')`, `SELECT isotone.fence_seal(n, '` + at(1).String() + `') FROM named`,
		`SELECT isotone.fence_check(n, '` + at(2).String() + `') FROM named`, `SELECT isotone.fence_raise(n, '` + at(2).String() + `') FROM named`} {
		_, err := db.ExecContext(t.Context(), query)
		must(t, err)
	}
	_, err := db.ExecContext(t.Context(), `SELECT isotone.fence_raise(n, '`+at(1).String()+`') FROM named`)
	refused(t, fence.PostgresError(err, "in a column"), at(1), at(2))
}

func TestPostgres_BadInput(t *testing.T) {
	db := openPostgres(t)
	_, err := db.ExecContext(t.Context(), fence.PostgresSchema) // again
	must(t, err)
	for _, query := range []string{fence.PostgresRaise, fence.PostgresSeal} {
		for _, args := range [][]any{{"", at(1).String()}, {strings.Repeat("x", 256), at(1).String()}, {"x", "12"}, {"x", "z"}, {"x", nil}, {nil, at(1).String()}} {
			if _, err := db.ExecContext(t.Context(), query, args...); err == nil {
				t.Errorf("%s with %v is accepted", query, args)
			}
		}
	}
	must(t, fence.Postgres(db, t.Name()).Seal(t.Context(), at(0)))
	for _, stamp := range []any{"12", "z", "ff", nil} { // "ff" would be above each fence
		if _, err := db.ExecContext(t.Context(), fence.PostgresCheck, t.Name(), stamp); err == nil {
			t.Errorf("check of %v is accepted", stamp)
		}
	}
	if fence.PostgresError(nil, "x") != nil {
		t.Error("an error of no error")
	}
}
