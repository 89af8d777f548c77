package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/fence"
)

// A worker writes the result of a job under the token that came with the lock of the job.
func ExampleRedis() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	token := isotone.Timestamp{Time: 1790000000000000000} // of the grant
	job := fence.Redis(rdb, "{jobs/nightly}")
	_, err := job.Raise(context.Background(), token, fence.RedisCommand{"SET", "{jobs/nightly}:result", "done"})
	switch {
	case errors.Is(err, fence.ErrFenced):
		fmt.Println("somebody else has the lock now; this result is dropped")
	case err != nil:
		fmt.Println("nobody knows whether it is stored; it may be written again:", err)
	}
}

// Writers of a group write under timestamps in any order, until these are sealed.
func ExampleRedisFence_Check() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	orders := fence.Redis(rdb, "{orders}")
	if err := orders.Seal(ctx, isotone.Timestamp{Time: 1790000000000000000}); err != nil { // the group begins
		return
	}
	_, err := orders.Check(ctx, isotone.Timestamp{Time: 1790000000000000007}, fence.RedisCommand{"HSET", "{orders}:17", "state", "paid"})
	if err != nil {
		return
	}
	if err := orders.Seal(ctx, isotone.Timestamp{Time: 1790000000000000009}); err == nil {
		fmt.Println("whoever reads now reads all that was ever written at or below …009")
	}
}

// The same in the transaction that writes.
func ExamplePostgres() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://localhost/jobs")
	if err != nil {
		return
	}
	defer db.Close()
	token := isotone.Timestamp{Time: 1790000000000000000} // of the grant
	job := fence.Postgres(db, "jobs/nightly")             // after fence.PostgresSchema has been run once
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "UPDATE jobs SET result = 'done' WHERE name = 'nightly'"); err != nil {
		return
	}
	err = job.Raise(ctx, tx, token)
	if err == nil {
		err = tx.Commit()
	}
	switch {
	case errors.Is(err, fence.ErrFenced):
		fmt.Println("somebody else has the lock now; the transaction is rolled back")
	case err != nil:
		fmt.Println(err)
	}
}
