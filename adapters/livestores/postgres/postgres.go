// Package postgres loads live documents from PostgreSQL with the driver pgx.
//
// A query returns one row, whose column is the document. It runs in a read-only transaction, with a
// statement timeout, and inside a query that has the server measure and compare the document before it sends
// it.
//
// Sources: PostgreSQL's documentation of libpq's connection URIs, of the frontend/backend protocol, and
// of error codes (appendix A).
package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/live/store"
)

const (
	// closeTimeout bounds the end of the connection: less than a node waits for this process.
	closeTimeout = 250 * time.Millisecond
	// messageBytesMax bounds a message of the server in addition to the document.
	messageBytesMax = 64 << 10
)

// Loader is a document of Postgres. Its methods are called by one goroutine.
type Loader struct {
	cfg  *pgconn.Config
	url  *store.URL
	conn *pgconn.PgConn // nil: not connected
	// hash is that of the document of the last good load, nil: there is none.
	hash []byte
	// sizeMax is that of the load that has connected.
	sizeMax int
}

// Open returns the loader for a URL. It connects to nothing. Like libpq it takes what the URL does not say
// from the environment: PGPASSFILE, PGSSLMODE and more.
func Open(u *store.URL) (store.Loader, error) {
	cfg, err := pgconn.ParseConfig(u.Driver)
	if err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "%v", err)
	}
	l := &Loader{cfg: cfg, url: u}
	hosts := []string{cfg.Host}
	for _, fallback := range cfg.Fallbacks {
		hosts = append(hosts, fallback.Host)
	}
	// The dialer resolves names, because it looks at each address.
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.DialFunc = live.NewDialer(hosts...).DialContext
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(l.sizeMax + messageBytesMax)
		return f
	}
	cfg.OnNotice, cfg.OnNotification = nil, nil
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "isotone"
	}
	return l, nil
}

// Load runs the query. See [store.Loader].
func (l *Loader) Load(ctx context.Context, sizeMax int) (document []byte, changed bool, err error) {
	kept := l.conn != nil
	document, changed, err = l.try(ctx, sizeMax)
	if kept && l.conn == nil && ctx.Err() == nil {
		// The connection of the last load was dead, for example after a server restart.
		document, changed, err = l.try(ctx, sizeMax)
	}
	if err != nil {
		return nil, false, failure(ctx, err)
	}
	if changed { // not before: what a load that fails has read is not known to the caller
		hash := sha256.Sum256(document)
		l.hash = hash[:]
	}
	return document, changed, nil
}

// try loads once. It closes a connection that became unusable.
func (l *Loader) try(ctx context.Context, sizeMax int) (document []byte, changed bool, err error) {
	if l.conn == nil {
		l.sizeMax = sizeMax
		if l.conn, err = pgconn.ConnectConfig(ctx, l.cfg); err != nil {
			l.conn = nil
			return nil, false, err
		}
	}
	document, changed, err = l.query(ctx, sizeMax)
	if err == nil {
		err = l.conn.Exec(ctx, "ROLLBACK").Close()
	} else if !l.conn.IsClosed() {
		_ = l.conn.Exec(ctx, "ROLLBACK").Close() // else the connection is closed now
	}
	if l.conn.IsClosed() || l.conn.TxStatus() != 'I' {
		l.Close()
	}
	return document, changed, err
}

// query runs the query in a transaction, which it does not end.
func (l *Loader) query(ctx context.Context, sizeMax int) (document []byte, changed bool, err error) {
	timeout := int64(0)
	if end, ok := ctx.Deadline(); ok {
		timeout = max(1, time.Until(end).Milliseconds())
	}
	// Settings of the transaction, not of the session, which a pooler may share.
	begin := fmt.Sprintf("BEGIN READ ONLY; SET LOCAL statement_timeout = %d", timeout)
	if err := l.conn.Exec(ctx, begin).Close(); err != nil {
		return nil, false, err
	}
	// First the query alone, so that an error in it has its own place and not that in the text around it.
	described, err := l.conn.Prepare(ctx, "", l.url.Query, nil)
	if err != nil {
		return nil, false, err
	}
	if len(described.Fields) != 1 || len(described.ParamOIDs) != 0 {
		return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "the query has %d columns and %d parameters; want one column, and no parameters",
			len(described.Fields), len(described.ParamOIDs))
	}
	limit := binary.BigEndian.AppendUint32(nil, uint32(sizeMax))
	rows := l.conn.ExecParams(ctx, fmt.Sprintf(around, l.url.Query), [][]byte{limit, l.hash},
		[]uint32{oidInt4, oidBytea}, []int16{1, 1}, []int16{1, 1, 1}).Read()
	if rows.Err != nil {
		return nil, false, rows.Err
	}
	return take(rows.Rows, sizeMax)
}

const (
	oidInt4  = 23
	oidBytea = 17
	// around is what the query becomes a part of: the size of the document, whether it is another one, and then
	// the document, unless it is too large. The line ends are for a comment at the end of the query.
	around = `SELECT octet_length(b), h IS DISTINCT FROM $2, CASE WHEN octet_length(b) <= $1 AND h IS DISTINCT FROM $2 THEN b END
FROM (SELECT b, sha256(b) AS h FROM (SELECT convert_to(doc::text, 'UTF8') AS b FROM (
%s
) AS q(doc) LIMIT 2) AS r OFFSET 0) AS s`
)

// take returns the document of a result.
func take(rows [][][]byte, sizeMax int) (document []byte, changed bool, err error) {
	switch {
	case len(rows) == 0:
		return nil, false, isotone.Errorf(isotone.CodeNotFound, "the query returns no row")
	case len(rows) > 1:
		return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "the query returns more than one row")
	case len(rows[0]) != 3 || len(rows[0][0]) != 4 && rows[0][0] != nil || len(rows[0][1]) != 1:
		return nil, false, isotone.Errorf(isotone.CodeInternal, "the answer is not one of Postgres")
	}
	size, different, document := rows[0][0], rows[0][1][0] != 0, rows[0][2]
	switch {
	case size == nil:
		return nil, false, isotone.Errorf(isotone.CodeNotFound, "the query returns null")
	case int64(binary.BigEndian.Uint32(size)) > int64(sizeMax):
		return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "more than %d bytes", sizeMax)
	case !different:
		return nil, false, nil
	}
	return document, true, nil
}

// Close ends the connection.
func (l *Loader) Close() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = l.conn.Close(ctx) // nothing was written
	l.conn = nil
}

// failure returns the error of a load.
func failure(ctx context.Context, err error) error {
	var refused *live.RefusedError
	var coded *isotone.Error
	var server *pgconn.PgError
	var large *pgproto3.ExceededMaxBodyLenErr
	var network *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &server):
		return isotone.Errorf(codeOf(server.Code), "the server says: %s (SQLSTATE %s)", server.Message, server.Code)
	case errors.As(err, &large):
		return isotone.Errorf(isotone.CodeInternal, "the server announces %d bytes, more than it may", large.ActualBodyLen)
	case ctx.Err() != nil, pgconn.Timeout(err):
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time")
	case errors.As(err, &network):
		return isotone.Errorf(isotone.CodeInternal, "%v", network)
	}
	return isotone.Errorf(isotone.CodeInternal, "%v", err)
}

// codeOf returns the code for a SQLSTATE.
func codeOf(state string) isotone.Code {
	class := state[:min(2, len(state))]
	switch {
	case class == "28": // invalid authorization
		return isotone.CodeUnauthorized
	case state == "42501": // insufficient privilege
		return isotone.CodeForbidden
	case state == "3D000", state == "42P01", state == "3F000": // no such database, table, schema
		return isotone.CodeNotFound
	case state == "57014": // cancelled, by the statement timeout
		return isotone.CodeDeadlineExceeded
	case class == "53", state == "57P03": // no resources; starting up
		return isotone.CodeOverloaded
	case strings.Contains("0A 21 22 25 42", class): // what the query asks for, a writing one included
		return isotone.CodeInvalidArgument
	}
	return isotone.CodeInternal
}
