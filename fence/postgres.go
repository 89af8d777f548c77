package fence

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"regexp"

	"github.com/isotone/isotone"
)

// PostgresSchema creates the table and the functions of fences, in the schema isotone. To run it again changes nothing.
//
//go:embed postgres.sql
var PostgresSchema string

// The statements by which other drivers and languages do what [PostgresFence] does. Parameters are the name of the fence and a stamp as 32 hexadecimal digits. The stamp
// of PostgresSeal is the smallest that is accepted from then on. [PostgresError] reads their errors.
const (
	PostgresRaise = "SELECT isotone.fence_raise($1, $2)"
	PostgresCheck = "SELECT isotone.fence_check($1, $2)"
	PostgresSeal  = "SELECT isotone.fence_seal($1, $2)"
)

// PostgresFence is a fence in a Postgres database; see [Postgres].
type PostgresFence struct {
	db   *sql.DB
	name string
}

// Postgres returns the fence of a name of 1 to 255 bytes, for Raise or for Check, not both. [PostgresSchema] has to have been run. The methods may be called at any level of isolation.
// At REPEATABLE READ and above they may fail with a serialization error (SQLSTATE 40001): run the transaction again.
//
// Raise and Check belong at the top level of the transaction. Whoever catches their error by a savepoint, and commits, has written all the same; and a rollback to a savepoint from
// before the call takes the fence away from what was accepted.
func Postgres(db *sql.DB, name string) *PostgresFence { return &PostgresFence{db: db, name: name} }

// Raise accepts what the transaction writes if token is not below the fence, and raises the fence to it when the transaction commits. After an error the transaction cannot
// commit, but for savepoints. It locks the fence until the transaction ends, so it is best called shortly before that; a process that is paused in between has
// the next holder wait for idle_in_transaction_session_timeout.
func (f *PostgresFence) Raise(ctx context.Context, tx *sql.Tx, token isotone.Timestamp) error {
	return f.run(ctx, tx, PostgresRaise, token)
}

// Check accepts what the transaction writes if stamp is not below the fence. After an error the transaction cannot commit, but for savepoints. Seal waits until the transaction
// has ended, also if it is that of the same goroutine, and later transactions wait for Seal: set idle_in_transaction_session_timeout. If the database has no such fence, the error matches [ErrNoFence].
func (f *PostgresFence) Check(ctx context.Context, tx *sql.Tx, stamp isotone.Timestamp) error {
	return f.run(ctx, tx, PostgresCheck, stamp)
}

// Seal implements [Sealer], in a transaction of its own.
func (f *PostgresFence) Seal(ctx context.Context, through isotone.Timestamp) error {
	to, err := above(f.name, through)
	if err != nil {
		return err
	}
	return f.run(ctx, f.db, PostgresSeal, to)
}

// execer is a transaction or a database.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (f *PostgresFence) run(ctx context.Context, db execer, query string, stamp isotone.Timestamp) error {
	_, err := db.ExecContext(ctx, query, f.name, stamp.String())
	return PostgresError(err, f.name)
}

// fencedText finds fence and stamp in the message of isotone.fence_refuse.
var fencedText = regexp.MustCompile(`is at ([0-9a-f]{32}), and the write is stamped ([0-9a-f]{32})`)

// PostgresError returns the error of a statement as an error of this package: it matches [ErrFenced] or [ErrNoFence] if the error has that
// SQLSTATE, as the errors of pgx and lib/pq tell. Others, and nil, are returned as they are, with the name.
func PostgresError(err error, name string) error {
	if err == nil {
		return nil
	}
	var of interface{ SQLState() string }
	if errors.As(err, &of) {
		switch of.SQLState() {
		case "ISF01":
			e := &Error{Name: name}
			if all := fencedText.FindAllStringSubmatch(err.Error(), -1); all != nil {
				last := all[len(all)-1] // the name comes before
				e.Fence, _ = isotone.ParseTimestamp(last[1])
				e.Stamp, _ = isotone.ParseTimestamp(last[2])
			}
			return e
		case "ISF02":
			return fmt.Errorf("%q: %w", name, ErrNoFence)
		}
	}
	return fmt.Errorf("fence %q: %w", name, err)
}
