package storm

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/fence"
)

// store has lists of accepted writes, of locks and of groups.
type store interface {
	// name is redis or postgres.
	name() string
	// writeLock appends a token to the list of a lock, and writeGroup a stamp to that of a group, if the fence lets it through.
	writeLock(ctx context.Context, lock string, token isotone.Timestamp) error
	writeGroup(ctx context.Context, group string, stamp isotone.Timestamp) error
	// seal raises the fence of a group.
	seal(ctx context.Context, group string, through isotone.Timestamp) error
	// ofLock returns the list of a lock in the order in which the writes were accepted, ofGroup that of a group in any order.
	ofLock(ctx context.Context, lock string) ([]isotone.Timestamp, error)
	ofGroup(ctx context.Context, group string) ([]isotone.Timestamp, error)
	// countGroup returns how many writes of a group have a stamp at or below through.
	countGroup(ctx context.Context, group string, through isotone.Timestamp) (int, error)
}

// Servers says where the stores are.
type Servers struct {
	// Redis is an address, Postgres a database, as a connection string of pgx. [Prepare] has been called for it.
	Redis, Postgres string
	// Unfenced has writes go around the fences: the storm has to notice that.
	Unfenced bool
}

// idleTimeout ends a transaction whose process was stopped or killed, for which others wait; it is a setting of the server.
const idleTimeout = "idle_in_transaction_session_timeout=500"

// Settings are those that the server of Postgres is to have.
var Settings = []string{idleTimeout}

// Prepare creates what the storm needs in the database.
func Prepare(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, fence.PostgresSchema+`
		CREATE TABLE writes (list text, n bigserial, stamp text COLLATE "C");
		CREATE INDEX ON writes (list, stamp)`)
	return err
}

// open returns both stores, and how to close them.
func (s Servers) open() (stores []store, closing func(), err error) {
	db, err := sql.Open("pgx", s.Postgres)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	client := redis.NewClient(&redis.Options{Addr: s.Redis, MaxRetries: -1, ContextTimeoutEnabled: true})
	closing = func() {
		_ = client.Close()
		_ = db.Close()
	}
	return []store{&redisStore{client, s.Unfenced}, &postgresStore{db, s.Unfenced}}, closing, nil
}

// storeTimeout bounds a call of a store.
const storeTimeout = 5 * time.Second

func parse(texts []string) (stamps []isotone.Timestamp, err error) {
	stamps = make([]isotone.Timestamp, len(texts))
	for i, text := range texts {
		if stamps[i], err = isotone.ParseTimestamp(text); err != nil {
			return nil, err
		}
	}
	return stamps, nil
}

// redisStore has the writes of a lock in a list, and those of a group in a sorted set, all with the score 0: Redis then sorts them by their bytes.
type redisStore struct {
	db       *redis.Client
	unfenced bool
}

func (s *redisStore) name() string { return "redis" }

func (s *redisStore) writeLock(ctx context.Context, lock string, token isotone.Timestamp) error {
	if s.unfenced {
		return s.db.RPush(ctx, lock, token.String()).Err()
	}
	_, err := fence.Redis(s.db, lock).Raise(ctx, token, fence.RedisCommand{"RPUSH", lock, token.String()})
	return err
}

func (s *redisStore) writeGroup(ctx context.Context, group string, stamp isotone.Timestamp) error {
	if s.unfenced {
		return s.db.ZAdd(ctx, group, redis.Z{Member: stamp.String()}).Err()
	}
	_, err := fence.Redis(s.db, group).Check(ctx, stamp, fence.RedisCommand{"ZADD", group, "0", stamp.String()})
	return err
}

func (s *redisStore) seal(ctx context.Context, group string, through isotone.Timestamp) error {
	return fence.Redis(s.db, group).Seal(ctx, through)
}

func (s *redisStore) ofLock(ctx context.Context, lock string) ([]isotone.Timestamp, error) {
	texts, err := s.db.LRange(ctx, lock, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	return parse(texts)
}

func (s *redisStore) ofGroup(ctx context.Context, group string) ([]isotone.Timestamp, error) {
	texts, err := s.db.ZRange(ctx, group, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	return parse(texts)
}

func (s *redisStore) countGroup(ctx context.Context, group string, through isotone.Timestamp) (int, error) {
	n, err := s.db.ZLexCount(ctx, group, "-", "["+through.String()).Result()
	return int(n), err
}

// postgresStore has all writes in a table. Numbers are drawn under the lock of the fence, so those of a lock are in the order in which its writes were accepted.
type postgresStore struct {
	db       *sql.DB
	unfenced bool
}

func (s *postgresStore) name() string { return "postgres" }

func (s *postgresStore) writeLock(ctx context.Context, lock string, token isotone.Timestamp) error {
	return s.write(ctx, lock, token, fence.Postgres(s.db, lock).Raise)
}

func (s *postgresStore) writeGroup(ctx context.Context, group string, stamp isotone.Timestamp) error {
	return s.write(ctx, group, stamp, fence.Postgres(s.db, group).Check)
}

func (s *postgresStore) write(ctx context.Context, list string, stamp isotone.Timestamp, allow func(context.Context, *sql.Tx, isotone.Timestamp) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if !s.unfenced {
		if err := allow(ctx, tx, stamp); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO writes VALUES ($1, DEFAULT, $2)`, list, stamp.String()); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *postgresStore) seal(ctx context.Context, group string, through isotone.Timestamp) error {
	return fence.Postgres(s.db, group).Seal(ctx, through)
}

func (s *postgresStore) ofLock(ctx context.Context, lock string) ([]isotone.Timestamp, error) {
	var all sql.NullString
	err := s.db.QueryRowContext(ctx, `SELECT string_agg(stamp, ' ' ORDER BY n) FROM writes WHERE list = $1`, lock).Scan(&all)
	if err != nil {
		return nil, err
	}
	return parse(strings.Fields(all.String))
}

func (s *postgresStore) ofGroup(ctx context.Context, group string) ([]isotone.Timestamp, error) {
	return s.ofLock(ctx, group)
}

func (s *postgresStore) countGroup(ctx context.Context, group string, through isotone.Timestamp) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM writes WHERE list = $1 AND stamp <= $2`, group, through.String()).Scan(&n)
	return n, err
}

// sealer is the fence of a group in all stores.
type sealer struct {
	stores []store
	group  string
	sealed func()
}

// Seal implements [fence.Sealer].
func (s sealer) Seal(ctx context.Context, through isotone.Timestamp) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var errs []error
	for _, store := range s.stores {
		errs = append(errs, store.seal(ctx, s.group, through))
	}
	err := errors.Join(errs...)
	if err == nil {
		s.sealed()
	}
	return err
}
