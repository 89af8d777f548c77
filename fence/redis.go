package fence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
)

// RedisScript is the source of the script, for clients in other languages; its head says what it takes and returns.
//
//go:embed redis.lua
var RedisScript string

var redisScript = redis.NewScript(RedisScript)

// redisArgumentsMax bounds the arguments of all commands of one write: Lua puts those of a command on its stack.
const redisArgumentsMax = 4000

// RedisFence is a fence in Redis: a string of 32 hexadecimal digits at the key NAME:fence. See [Redis].
type RedisFence struct {
	db   redis.Scripter
	name string
}

// Redis returns the fence of a name. On a cluster, the name needs a hash tag, and all keys that are written have the same: Redis("{orders}") goes with
// the keys {orders}:1 and {orders}:2.
//
// A fence is as durable as Redis is. It needs appendonly yes and appendfsync always to survive a crash of the server, a maxmemory-policy that evicts no key without
// a TTL, and no TTL of its own; a failover may lose acknowledged writes and fences alike (WAIT makes that rarer). After such a loss Check refuses everything, and Raise begins anew.
//
// The client of Redis repeats a command after a network error, so a write may be done twice, or be done and then answered with [ErrFenced], as somebody has
// raised the fence in between. Give it MaxRetries -1 where that matters. db must not be a pipeline.
func Redis(db redis.Scripter, name string) *RedisFence { return &RedisFence{db: db, name: name} }

// RedisCommand is a command of one or more arguments, of which the second is its key, a string or []byte, and not that of a fence: {"SET", "{orders}:1", "paid"}. On a
// cluster, commands with another form, such as BITOP, are refused, and those with several keys fail if one has another hash tag.
type RedisCommand []any

// Raise runs the commands in one atomic step if token is not below the fence, and raises the fence to it. Without commands it only raises the fence. It returns the reply of
// each command: nil, an int64 (exact up to 2^53), a string or a []any.
//
// If a command fails, the fence stays raised, and Redis keeps what the commands before it have written. After an error other than [ErrFenced] they may have run or not.
func (f *RedisFence) Raise(ctx context.Context, token isotone.Timestamp, commands ...RedisCommand) ([]any, error) {
	return f.run(ctx, "raise", token, commands)
}

// Check runs the commands in one atomic step if stamp is not below the fence; it is like [RedisFence.Raise], but leaves the fence as it is. If Redis has
// no such fence, the error matches [ErrNoFence].
func (f *RedisFence) Check(ctx context.Context, stamp isotone.Timestamp, commands ...RedisCommand) ([]any, error) {
	return f.run(ctx, "check", stamp, commands)
}

// Seal implements [Sealer].
func (f *RedisFence) Seal(ctx context.Context, through isotone.Timestamp) error {
	to, err := above(f.name, through)
	if err == nil {
		_, err = f.run(ctx, "seal", to, nil)
	}
	return err
}

func (f *RedisFence) run(ctx context.Context, mode string, stamp isotone.Timestamp, commands []RedisCommand) ([]any, error) {
	keys, args, err := f.encode(mode, stamp, commands)
	if err != nil {
		return nil, fmt.Errorf("fence %q: %w", f.name, err)
	}
	reply, err := redisScript.Run(ctx, f.db, keys, args...).Slice()
	if err != nil {
		return nil, fmt.Errorf("fence %q: %w", f.name, err)
	}
	if len(reply) == 2 && reply[0] == "fenced" {
		at, err := isotone.ParseTimestamp(fmt.Sprint(reply[1]))
		if err != nil {
			return nil, fmt.Errorf("fence %q: %w", f.name, err)
		}
		return nil, &Error{Name: f.name, Stamp: stamp, Fence: at}
	}
	if len(reply) == 1 && reply[0] == "none" {
		return nil, fmt.Errorf("%q: %w", f.name, ErrNoFence)
	}
	if len(reply) != 1+len(commands) || reply[0] != "ok" {
		return nil, fmt.Errorf("fence %q: Redis answers %.100q", f.name, fmt.Sprint(reply...))
	}
	return reply[1:], nil
}

// encode returns the keys and arguments of the script.
func (f *RedisFence) encode(mode string, stamp isotone.Timestamp, commands []RedisCommand) (keys []string, args []any, err error) {
	if _, ok := f.db.(redis.Pipeliner); ok {
		return nil, nil, errors.New("a fence needs the answer at once, which a pipeline does not give")
	}
	keys, args = []string{f.name + ":fence"}, []any{mode, stamp.String()}
	for _, c := range commands {
		if len(c) == 0 {
			return nil, nil, errors.New("a command is empty")
		}
		if len(c) > 1 {
			key, ok := c[1].(string)
			if b, isBytes := c[1].([]byte); isBytes {
				key, ok = string(b), true
			}
			switch {
			case !ok:
				return nil, nil, fmt.Errorf("the key of a command is a string or []byte, not a %T", c[1])
			case key == keys[0]:
				return nil, nil, fmt.Errorf("the key %q is that of the fence", key)
			}
			keys = append(keys, key)
		}
		args = append(append(args, len(c)), c...)
	}
	if len(args) > redisArgumentsMax {
		return nil, nil, fmt.Errorf("%d arguments, of at most %d", len(args), redisArgumentsMax)
	}
	return keys, args, nil
}
