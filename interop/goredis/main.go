// Command goredis demands of a cluster, through go-redis, what interop/run.sh demands through the
// client of every language: timestamps that ascend, IDs that are exact and distinct, pipelines,
// transactions, typed errors, and all of that as a cluster client. Its arguments are the addresses
// of the nodes, the leader first. It prints what it saw, or fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
)

// seen is what was received so far.
type seen struct {
	last isotone.Timestamp
	ids  map[int64]bool
}

// ascending demands a timestamp larger than all before.
func (s *seen) ascending(cmd *redis.Cmd) error {
	text, err := cmd.Text()
	if err != nil {
		return err
	}
	var ts isotone.Timestamp
	if err := ts.UnmarshalBinary([]byte(text)); err != nil {
		return err
	}
	if ts.Compare(s.last) <= 0 {
		return fmt.Errorf("%v after %v", ts, s.last)
	}
	s.last = ts
	return nil
}

// distinct demands an ID that nobody had before.
func (s *seen) distinct(id int64, err error) error {
	switch {
	case err != nil:
		return err
	case s.ids[id], id <= 1<<53:
		return fmt.Errorf("the ID %d, of %d", id, len(s.ids))
	}
	s.ids[id] = true
	return nil
}

// list is distinct for an array.
func (s *seen) list(ids []int64, err error) error {
	for _, id := range ids {
		err = errors.Join(err, s.distinct(id, nil))
	}
	return err
}

// refused demands an error that begins with a word.
func refused(err error, word string) error {
	if err == nil || !strings.HasPrefix(err.Error(), word+" ") {
		return fmt.Errorf("%v: want an error %s", err, word)
	}
	return nil
}

// one is what a plain and a cluster client have in common.
func one(ctx context.Context, c redis.UniversalClient, s *seen) error {
	var all []error
	for i := range 100 {
		all = append(all, s.ascending(c.Do(ctx, "TS")), s.ascending(c.Do(ctx, "TS", i+1, "LEASE")))
	}
	all = append(all, s.distinct(c.Do(ctx, "SNOWFLAKE").Int64()), s.list(c.Do(ctx, "SNOWFLAKE", 1000).Int64Slice()),
		s.distinct(c.Do(ctx, "SNOWFLAKE", "AS", "STRING").Int64()))
	for _, pipe := range []redis.Pipeliner{c.Pipeline(), c.TxPipeline()} {
		var timestamps, ids []*redis.Cmd
		for range 100 {
			timestamps, ids = append(timestamps, pipe.Do(ctx, "TS", 3)), append(ids, pipe.Do(ctx, "SNOWFLAKE", 3))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			all = append(all, fmt.Errorf("%T: %w", pipe, err))
		}
		for i := range timestamps {
			all = append(all, s.ascending(timestamps[i]), s.list(ids[i].Int64Slice()))
		}
	}
	return errors.Join(append(all, refused(c.Do(ctx, "TS", 0).Err(), "ERR"), refused(c.Do(ctx, "NOSUCH", "x").Err(), "ERR"))...)
}

func run(ctx context.Context, addrs []string) error {
	s := &seen{ids: map[int64]bool{}}
	for _, protocol := range []int{2, 3} {
		leader := redis.NewClient(&redis.Options{Addr: addrs[0], Protocol: protocol})
		follower := redis.NewClient(&redis.Options{Addr: addrs[1], Protocol: protocol})
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs[2:], Protocol: protocol})
		watched := leader.Watch(ctx, func(tx *redis.Tx) error {
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Do(ctx, "TS").Err() })
			return err
		}, "a")
		_, tx := follower.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Do(ctx, "TS").Err() })
		err := errors.Join(one(ctx, leader, s), one(ctx, cluster, s), watched,
			refused(follower.Do(ctx, "TS").Err(), "MOVED"), refused(tx, "MOVED"),
			s.list(follower.Do(ctx, "SNOWFLAKE", 100).Int64Slice()))
		if err != nil {
			return fmt.Errorf("RESP%d: %w", protocol, err)
		}
		if err := errors.Join(leader.Close(), follower.Close(), cluster.Close()); err != nil {
			return err
		}
	}
	fmt.Printf("go-redis: %d IDs\n", len(s.ids))
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("goredis: want the addresses of three nodes, the leader first")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
