package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script. Redis knows it by the SHA-1 of its source, once it has run it.
type script struct{ source, hash string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, hash: hex.EncodeToString(sum[:])}
}

// call is one run of a script.
type call struct {
	name   string // for errors
	script *script
	once   bool // it must not be repeated
	keys   []string
	args   []any
}

// once is a command that go-redis sends at most once.
type once struct{ *redis.Cmd }

// NoRetry is how go-redis asks whether it may repeat a command.
func (once) NoRetry() bool { return true }

// do runs a script and returns its answer. It returns soon after ctx is done, though go-redis only
// heeds deadlines while it waits for an answer: the request is then left to a goroutine, until the
// client's timeouts end it. Close waits for it. The arguments must not be shared with the caller.
func (s *Store) do(ctx context.Context, c call) (any, error) {
	type result struct {
		answer any
		err    error
	}
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("redisstore: %s: %w", c.name, err)
	}
	done := make(chan result, 1)
	go func() {
		defer s.wg.Done()
		answer, err := s.send(ctx, &c, "evalsha", c.script.hash)
		if redis.HasErrorPrefix(err, "NOSCRIPT") { // then it has not run
			answer, err = s.send(ctx, &c, "eval", c.script.source)
		}
		done <- result{answer, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	if r.err != nil {
		return nil, fmt.Errorf("redisstore: %s: %w", c.name, expired(ctx, r.err))
	}
	return r.answer, nil
}

// expired returns err, or if ctx is past its deadline an error that matches context.DeadlineExceeded as
// well: a connection has the same deadline, and may notice it first.
func expired(ctx context.Context, err error) error {
	if d, ok := ctx.Deadline(); !ok || time.Now().Before(d) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

// begin counts a call that Close has to wait for.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.wg.Add(1)
	return nil
}

func (s *Store) send(ctx context.Context, c *call, command, script string) (any, error) {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, command, script, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	if c.once {
		_ = s.client.Process(ctx, once{cmd})
	} else {
		_ = s.client.Process(ctx, cmd)
	}
	return cmd.Result()
}
