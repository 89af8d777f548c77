package pgstore

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// format is the version of the tables. Create refuses another one.
const format = 1

const schemaSQL = `CREATE SCHEMA @`

const createSQL = `
CREATE TABLE IF NOT EXISTS @.rows (
	key bytea PRIMARY KEY,
	revision bigint NOT NULL,
	lock bytea
);
CREATE TABLE IF NOT EXISTS @.versions (
	key bytea,
	commit bigint,
	deleted boolean NOT NULL,
	value bytea NOT NULL,
	PRIMARY KEY (key, commit)
);
CREATE TABLE IF NOT EXISTS @.records (
	key bytea,
	start bigint,
	commit bigint NOT NULL,
	PRIMARY KEY (key, start)
);
CREATE TABLE IF NOT EXISTS @.points (
	id boolean PRIMARY KEY CHECK (id),
	format integer NOT NULL,
	safe bigint NOT NULL,
	resolved bigint NOT NULL
);
INSERT INTO @.points VALUES (true, 1, 0, 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS @.fence (
	id boolean PRIMARY KEY CHECK (id),
	sealed bigint NOT NULL
);
INSERT INTO @.fence VALUES (true, 0) ON CONFLICT DO NOTHING;
`

// durableSQL says whether a commit of the session is as durable as the server can make it. stateSQL selects
// that, the start of the server, and the snapshot of the statement: all transactions below xmin have ended in
// it, and none from xmax on. Both are 0 if there are no synchronous replicas to wait for.
const (
	durableSQL = `(current_setting('synchronous_commit') <> 'off'
	AND (current_setting('synchronous_commit') <> 'local' OR current_setting('synchronous_standby_names') = ''))`
	stateSQL = durableSQL + `, pg_postmaster_start_time(),
	CASE WHEN current_setting('synchronous_standby_names') = '' THEN 0 ELSE txid_snapshot_xmin(txid_current_snapshot()) END,
	CASE WHEN current_setting('synchronous_standby_names') = '' THEN 0 ELSE txid_snapshot_xmax(txid_current_snapshot()) END`
	// outcomeSQL is stateSQL, the transaction if it has written anything, and the number of rows of w.
	outcomeSQL = stateSQL + `, coalesce(txid_current_if_assigned(), 0), count(*) FROM w`
)

// barrierSQL writes a record to the log that means nothing. So its commit waits for the replicas.
const barrierSQL = `SELECT ` + stateSQL + `, txid_current(), (pg_logical_emit_message(true, 'isotone', '') IS NOT NULL)::integer`

// endsSQL selects the ends of what the row r has, and visibleSQL joins its newest version at or before $2.
const (
	endsSQL = `
	(SELECT commit FROM @.versions WHERE key = r.key ORDER BY commit DESC LIMIT 1) AS newest,
	(SELECT commit FROM @.versions WHERE key = r.key ORDER BY commit LIMIT 1) AS oldest_version,
	(SELECT start FROM @.records WHERE key = r.key ORDER BY start LIMIT 1) AS oldest_record`

	visibleSQL = `
LEFT JOIN LATERAL (
	SELECT commit, deleted, value FROM @.versions WHERE key = r.key AND commit <= $2 ORDER BY commit DESC LIMIT 1
) v ON true`
)

// readSQL has the parameters key, at and start.
const readSQL = `
SELECT p.safe, p.resolved, pg_is_in_recovery(), ` + stateSQL + `,
	r.revision, r.lock, v.commit, v.deleted, v.value, c.commit,` + endsSQL + `
FROM @.points p
LEFT JOIN @.rows r ON r.key = $1` + visibleSQL + `
LEFT JOIN @.records c ON c.key = r.key AND c.start = $3`

// The parameters of a scan are from, at, the number of rows, the number of bytes after which no row is
// added, and perhaps to. found is the number of rows before the bytes are looked at. The sizes of large
// values are known without reading them.
const (
	scanHeadSQL = `
SELECT p.safe, p.resolved, pg_is_in_recovery(), ` + stateSQL + `,
	s.key, s.revision, s.lock, s.commit, s.deleted, s.value, s.newest, s.oldest_version, s.oldest_record, s.found
FROM @.points p
LEFT JOIN (
	SELECT sized.*, sum(size) OVER (ORDER BY key) - size AS before, count(*) OVER () AS found
	FROM (
		SELECT r.key, r.revision, r.lock, v.commit, v.deleted, v.value,` + endsSQL + `,
			coalesce(octet_length(r.lock), 0) + coalesce(octet_length(v.value), 0) AS size
		FROM (SELECT key, revision, lock FROM @.rows WHERE key >= $1`

	scanTailSQL = ` ORDER BY key LIMIT $3) r` + visibleSQL + `
	) sized
) s ON s.before <= $4
ORDER BY s.key`

	scanSQL   = scanHeadSQL + scanTailSQL
	scanToSQL = scanHeadSQL + ` AND key < $5` + scanTailSQL
)

// The parameters of a write are key, next, lock, the commit timestamp of a version or 0, deleted, value,
// start and commit timestamp of a record or 0, and the revision to compare. lateSQL says whether the record is at or below
// the fence; it does not look there for a record that commits nothing. The first column says whether that is why
// the write was not applied: the row has the revision.
const (
	lateSQL = `($8::bigint > 0 AND $8 <= (SELECT sealed FROM @.fence))`

	addSQL = `,
v AS (
	INSERT INTO @.versions (key, commit, deleted, value)
	SELECT key, $4::bigint, $5::boolean, $6::bytea FROM w WHERE $4::bigint > 0
	ON CONFLICT (key, commit) DO UPDATE SET deleted = excluded.deleted, value = excluded.value
),
c AS (
	INSERT INTO @.records (key, start, commit)
	SELECT key, $7::bigint, $8::bigint FROM w WHERE $7::bigint > 0
	ON CONFLICT (key, start) DO UPDATE SET commit = excluded.commit
)
SELECT ` + lateSQL + ` AND $9::bigint = coalesce((SELECT revision FROM @.rows WHERE key = $1), 0), ` + outcomeSQL

	insertSQL = `
WITH w AS (
	INSERT INTO @.rows (key, revision, lock) SELECT $1::bytea, $2::bigint, $3::bytea WHERE ` + durableSQL + ` AND NOT ` + lateSQL + `
	ON CONFLICT (key) DO NOTHING RETURNING key
)` + addSQL

	updateSQL = `
WITH w AS (
	UPDATE @.rows SET revision = $2, lock = $3 WHERE key = $1 AND revision = $9 AND ` + durableSQL + ` AND NOT ` + lateSQL + ` RETURNING key
)` + addSQL
)

// What a write removes, in the transaction of the above, if that had an effect. The parameters are
// key, next and, except for the last, the timestamp before which to drop.
const (
	ownSQL = ` AND EXISTS (SELECT FROM @.rows WHERE key = $1 AND revision = $2)`

	dropVersionsSQL = `DELETE FROM @.versions WHERE key = $1 AND commit < $3` + ownSQL
	dropRecordsSQL  = `DELETE FROM @.records WHERE key = $1 AND start < $3` + ownSQL
	dropRowSQL      = `
DELETE FROM @.rows WHERE key = $1 AND revision = $2 AND lock IS NULL
	AND NOT EXISTS (SELECT FROM @.versions WHERE key = $1)
	AND NOT EXISTS (SELECT FROM @.records WHERE key = $1)`
)

const (
	pointsSQL = `SELECT safe, resolved, pg_is_in_recovery(), ` + stateSQL + ` FROM @.points`
	raiseSQL  = `
WITH w AS (
	UPDATE @.points SET safe = greatest(safe, $1), resolved = greatest(resolved, $2) WHERE ` + durableSQL + ` RETURNING id
)
SELECT ` + outcomeSQL
	formatSQL = `SELECT format FROM @.points`
)

// Writes of a commit hold the one lock together, and a seal has the other one alone. LOCK takes no snapshot, so that of the statement
// after it is of a time when it has the lock. Reads and backups go on.
const (
	passSQL  = `LOCK TABLE @.fence IN ROW SHARE MODE`
	closeSQL = `LOCK TABLE @.fence IN EXCLUSIVE MODE`
	sealSQL  = `
WITH w AS (
	UPDATE @.fence SET sealed = greatest(sealed, $1) WHERE ` + durableSQL + ` RETURNING id
)
SELECT ` + outcomeSQL
)

// statements are the statements for one schema.
type statements struct {
	schema, fenceTable, createSchema, create, format, read, scan, scanTo, insert, update, dropVersions, dropRecords, dropRow, points, raise, pass, close, seal string
}

func newStatements(schema string) statements {
	quoted := pgx.Identifier{schema}.Sanitize()
	in := func(sql string) string { return strings.ReplaceAll(sql, "@", quoted) }
	return statements{
		schema: quoted, fenceTable: in("@.fence"), createSchema: in(schemaSQL), create: in(createSQL), format: in(formatSQL), read: in(readSQL), scan: in(scanSQL), scanTo: in(scanToSQL),
		insert: in(insertSQL), update: in(updateSQL),
		dropVersions: in(dropVersionsSQL), dropRecords: in(dropRecordsSQL), dropRow: in(dropRowSQL),
		points: in(pointsSQL), raise: in(raiseSQL),
		pass: in(passSQL), close: in(closeSQL), seal: in(sealSQL),
	}
}
