package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
	"github.com/isotone/isotone/txn/pgstore"
	"github.com/isotone/isotone/txn/redisstore"
)

// The names of the two stores.
const (
	placeRedis    = "redis"
	placePostgres = "postgres"
)

// removeTimeout bounds removing what the run has left in Redis and Postgres.
const removeTimeout = time.Minute

// openStores opens the stores of s. Each run has its own, and close removes them.
func openStores(ctx context.Context, s settings) (_ stores, close func() error, err error) {
	if s.memory {
		return stores{placeRedis: memory.New(), placePostgres: memory.New()}, func() error { return nil }, nil
	}
	name := "bank-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	red, closeRedis, err := openRedis(ctx, s.redis, name)
	if err != nil {
		return nil, nil, err
	}
	post, closePostgres, err := openPostgres(ctx, s.postgres, name)
	if err != nil {
		return nil, nil, errors.Join(err, closeRedis())
	}
	close = func() error { return errors.Join(closeRedis(), closePostgres()) }
	return stores{placeRedis: red, placePostgres: post}, close, nil
}

func openRedis(ctx context.Context, address, name string) (txn.Store, func() error, error) {
	if !strings.Contains(address, "://") {
		address = "redis://" + address
	}
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, fmt.Errorf("--redis: %w", err)
	}
	opts.ContextTimeoutEnabled = true
	client := redis.NewClient(opts)
	store, err := redisstore.Open(ctx, client, redisstore.Options{Name: name})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--redis: %w", err), client.Close())
	}
	return store, func() error {
		store.Close()
		return errors.Join(removeKeys(client, "{"+name+"/*"), client.Close())
	}, nil
}

func removeKeys(client *redis.Client, pattern string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	keys := client.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func openPostgres(ctx context.Context, url, name string) (_ txn.Store, _ func() error, err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, fmt.Errorf("--postgres: %w", err)
	}
	config.ConnConfig.OnNotice = pgstore.OnNotice
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("--postgres: %w", err)
	}
	store, err := pgstore.New(pool, pgstore.Options{Schema: name})
	if err == nil {
		err = store.Create(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("--postgres: %w", err)
	}
	return store, func() error {
		defer pool.Close()
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		_, err := pool.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{name}.Sanitize()+" CASCADE")
		return err
	}, nil
}
