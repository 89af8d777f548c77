package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// schemaSizeMax is the largest length of the name of a schema in Postgres; longer ones are cut off.
const schemaSizeMax = 63

// createLock is the advisory lock that Create holds: two that create the same tables at once fail.
const createLock = 0x69736f746f6e65 // "isotone"

// ErrReplica means that the server is a replica, which may lag.
var ErrReplica = errors.New("the server is a replica: connect to the primary (target_session_attrs=read-write)")

// Options configures a [Store].
type Options struct {
	// Schema is the schema of the tables, which should have no other ones: 1 to 63 bytes, none of which
	// is 0 or '@'.
	Schema string
}

// Store is a txn.Fenced in Postgres. Its methods may be called concurrently.
type Store struct {
	pool       *pgxpool.Pool
	sql        statements
	replicated replicated
}

// New returns the store in a schema; it requests nothing. Call Create before the first use of the
// store. The pool must stay open as long as the store is used, and must have been made with [OnNotice].
//
// Errors: isotone.ErrInvalidArgument.
func New(pool *pgxpool.Pool, opts Options) (*Store, error) {
	if pool == nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "pgstore: the pool is nil")
	}
	valid := len(opts.Schema) >= 1 && len(opts.Schema) <= schemaSizeMax
	for _, c := range []byte(opts.Schema) {
		valid = valid && c != 0 && c != '@'
	}
	if !valid {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "pgstore: Schema = %q: want 1 to %d bytes without 0 and '@'", opts.Schema, schemaSizeMax)
	}
	return &Store{pool: pool, sql: newStatements(opts.Schema)}, nil
}

// Create creates the schema and its tables, unless they exist. It may be called any number of times, and
// needs the right to create a schema only if there is none. A schema that exists must have tables of
// this version of the package.
//
// Errors: isotone.ErrInvalidArgument if the tables have another format, or commits of the session are not
// durable, as [ErrNotDurable] says; [ErrWarningsUnseen]; those of pgx.
func (s *Store) Create(ctx context.Context) error {
	err := s.run(ctx, func(conn *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var durable bool
			if err := tx.QueryRow(ctx, "SELECT "+durableSQL).Scan(&durable); err != nil {
				return err
			}
			if !durable {
				return isotone.Errorf(isotone.CodeInvalidArgument, "%v", ErrNotDurable)
			}
			return s.create(ctx, tx)
		})
	})
	return wrap("create", err)
}

func (s *Store) create(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(createLock)); err != nil {
		return err
	}
	var schema, tables bool
	const exist = "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($2) IS NOT NULL"
	if err := tx.QueryRow(ctx, exist, s.sql.schema, s.sql.fenceTable).Scan(&schema, &tables); err != nil {
		return err
	}
	// CREATE SCHEMA IF NOT EXISTS needs the right to create one even if there is one.
	if !schema {
		if _, err := tx.Exec(ctx, s.sql.createSchema); err != nil {
			return err
		}
	}
	if !tables {
		if _, err := tx.Exec(ctx, s.sql.create); err != nil {
			return err
		}
	}
	var found int
	if err := tx.QueryRow(ctx, s.sql.format).Scan(&found); err != nil {
		return err
	}
	if found != format {
		return isotone.Errorf(isotone.CodeInvalidArgument, "the tables have format %d: want %d", found, format)
	}
	return nil
}

// wrap names the operation in an error.
func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgstore: %s: %w", name, err)
}

// Write implements txn.Store.
func (s *Store) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	w := write{sql: s.sql.insert, args: []any{
		key, int64(c.Next), orNull(c.Lock),
		int64(c.Put.Commit), c.Put.Deleted, orEmpty(c.Put.Value),
		int64(c.Record.Start), int64(c.Record.Commit), int64(c.If),
	}}
	if c.If != 0 {
		w.sql = s.sql.update
	}
	adds := len(c.Lock) > 0 || c.Put.Commit != 0 || c.Record.Start != 0
	removes := !adds || c.DropVersions != 0 || c.DropRecords != 0
	commits := c.Record.Commit != 0 && !mutant.On(mutant.PgFenceUnlocked)
	err := s.commit(ctx, &w.outcome, func(conn *pgxpool.Conn) error {
		if removes || commits {
			var batch pgx.Batch
			batch.Queue(w.sql, w.args...).QueryRow(w.scan)
			if removes {
				s.remove(&batch, key, c)
			}
			if commits {
				return withLock(ctx, conn, s.sql.pass, &batch)
			}
			// pgx sends a batch at once, as one transaction. That commits after the last statement, and Close reports whether it did.
			return conn.SendBatch(ctx, &batch).Close()
		}
		return w.scan(conn.QueryRow(ctx, w.sql, w.args...))
	})
	if err == nil && w.late {
		// The seal may not be durable yet.
		if err = s.await(ctx, &w.state); err == nil {
			err = isotone.Errorf(isotone.CodeFenced, "the commit timestamp %v comes too late: it is sealed", c.Record.Commit)
		}
	}
	return w.rows == 1 && err == nil, wrap("write", err)
}

// write is the statement of a write, and what it says.
type write struct {
	sql  string
	args []any
	outcome
	late bool // it has a commit at or below the fence
}

func (w *write) scan(row pgx.Row) error { return row.Scan(append([]any{&w.late}, w.targets()...)...) }

// remove adds what removes versions, records, and the row if nothing is left of it.
func (s *Store) remove(batch *pgx.Batch, key []byte, c txn.Change) {
	if c.DropVersions != 0 {
		batch.Queue(s.sql.dropVersions, key, int64(c.Next), int64(c.DropVersions))
	}
	if c.DropRecords != 0 {
		batch.Queue(s.sql.dropRecords, key, int64(c.Next), int64(c.DropRecords))
	}
	batch.Queue(s.sql.dropRow, key, int64(c.Next))
}

// withLock runs statements in a transaction that takes a lock before, all of which is sent at once. LOCK needs the BEGIN.
func withLock(ctx context.Context, conn *pgxpool.Conn, lock string, statements *pgx.Batch) error {
	var batch pgx.Batch
	batch.Queue("BEGIN")
	batch.Queue(lock)
	batch.QueuedQueries = append(batch.QueuedQueries, statements.QueuedQueries...)
	batch.Queue("COMMIT")
	return conn.SendBatch(ctx, &batch).Close()
}

// Points implements txn.Store.
func (s *Store) Points(ctx context.Context) (txn.Points, error) {
	var h head
	if err := s.readRow(ctx, &h, h.targets(), s.sql.points); err != nil {
		return txn.Points{}, wrap("points", err)
	}
	return h.points(), nil
}

// Raise implements txn.Store.
func (s *Store) Raise(ctx context.Context, p txn.Points) error {
	var o outcome
	err := s.commit(ctx, &o, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, s.sql.raise, int64(p.Safe), int64(p.Resolved)).Scan(o.targets()...)
	})
	if err == nil && o.rows != 1 {
		err = isotone.Errorf(isotone.CodeInternal, "the table points has %d rows: want 1", o.rows)
	}
	return wrap("raise", err)
}

// Seal implements txn.Fenced. It waits for the writes of commits that are under way, and holds up later ones.
func (s *Store) Seal(ctx context.Context, through isotone.Timestamp64) error {
	var o outcome
	err := s.commit(ctx, &o, func(conn *pgxpool.Conn) error {
		var batch pgx.Batch
		batch.Queue(s.sql.seal, int64(through)).QueryRow(func(row pgx.Row) error { return row.Scan(o.targets()...) })
		return withLock(ctx, conn, s.sql.close, &batch)
	})
	if err == nil && o.rows != 1 {
		err = isotone.Errorf(isotone.CodeInternal, "the table fence has %d rows: want 1", o.rows)
	}
	return wrap("seal", err)
}

// orNull returns nil, which is NULL, for no bytes.
func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// orEmpty returns bytes that are not NULL.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
