package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// scanBytesMax bounds the values and locks in one answer to a scan, together with the largest row.
const scanBytesMax = 4 << 20

// head is what every answer to a read begins with.
type head struct {
	safe, resolved int64
	replica        bool
	state
}

func (h *head) targets() []any {
	return append([]any{&h.safe, &h.resolved, &h.replica}, h.state.targets()...)
}

func (h *head) points() txn.Points {
	return txn.Points{Safe: isotone.Timestamp64(h.safe), Resolved: isotone.Timestamp64(h.resolved)}
}

// read runs a statement that reads, and waits until what it has seen is durable.
func (s *Store) read(ctx context.Context, h *head, f func(*pgxpool.Conn) error) error {
	if err := s.run(ctx, f); err != nil {
		return err
	}
	if h.replica {
		return ErrReplica
	}
	return s.await(ctx, &h.state)
}

// readRow is read of one row.
func (s *Store) readRow(ctx context.Context, h *head, targets []any, sql string, args ...any) error {
	return s.read(ctx, h, func(conn *pgxpool.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(targets...) })
}

// columns is a row as the statements select it. Nil is NULL: there is no such thing.
type columns struct {
	revision                            *int64
	lock                                []byte
	commit                              *int64
	deleted                             *bool
	value                               []byte
	newest, oldestVersion, oldestRecord *int64
}

func (c *columns) row() txn.Row {
	row := txn.Row{
		Revision: uint64(number(c.revision)), Lock: c.lock, Newest: timestamp(c.newest),
		OldestVersion: timestamp(c.oldestVersion), OldestRecord: timestamp(c.oldestRecord),
	}
	if c.commit != nil {
		row.Version = txn.Version{Commit: timestamp(c.commit), Deleted: *c.deleted, Value: c.value}
	}
	return row
}

func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func timestamp(n *int64) isotone.Timestamp64 { return isotone.Timestamp64(number(n)) }

// Read implements txn.Store.
func (s *Store) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	var (
		h      head
		c      columns
		record *int64
	)
	targets := append(h.targets(), &c.revision, &c.lock, &c.commit, &c.deleted, &c.value, &record,
		&c.newest, &c.oldestVersion, &c.oldestRecord)
	if err := s.readRow(ctx, &h, targets, s.sql.read, key, int64(at), int64(start)); err != nil {
		return txn.Row{}, txn.Points{}, wrap("read", err)
	}
	row := c.row()
	if record != nil {
		row.Record = txn.Record{Start: start, Commit: timestamp(record)}
	}
	return row, h.points(), nil
}

// Scan implements txn.Store.
func (s *Store) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (txn.Page, error) {
	sql := s.sql.scan
	args := []any{orEmpty(r.From), int64(at), r.Limit, int64(scanBytesMax)}
	if len(r.To) > 0 {
		sql = s.sql.scanTo
		args = append(args, r.To)
	}
	var (
		h    head
		page txn.Page
	)
	err := s.read(ctx, &h, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err == nil {
			page, err = readPage(rows, &h, r.Limit)
		}
		return err
	})
	if err != nil {
		return txn.Page{}, wrap("scan", err)
	}
	return page, nil
}

// readPage reads the answer to a scan. Without a row in the range, it is one whose key is NULL.
func readPage(rows pgx.Rows, h *head, limit int) (txn.Page, error) {
	defer rows.Close()
	var (
		page  txn.Page
		found *int64
	)
	for rows.Next() {
		var key []byte
		var c columns
		targets := append(h.targets(), &key, &c.revision, &c.lock, &c.commit, &c.deleted, &c.value,
			&c.newest, &c.oldestVersion, &c.oldestRecord, &found)
		if err := rows.Scan(targets...); err != nil {
			return txn.Page{}, err
		}
		if key != nil {
			page.Entries = append(page.Entries, txn.Entry{Key: key, Row: c.row()})
		}
	}
	if err := rows.Err(); err != nil {
		return txn.Page{}, err
	}
	if !rows.CommandTag().Select() || rows.CommandTag().RowsAffected() == 0 {
		return txn.Page{}, isotone.Errorf(isotone.CodeInternal, "the table points is empty")
	}
	n := len(page.Entries)
	page.More = n == limit || int64(n) < number(found)
	page.Points = h.points()
	return page, nil
}
