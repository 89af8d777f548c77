package fence

import (
	"context"
	_ "embed"
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
// A fence is as durable as Redis is. It needs appendonly yes and appendfsync always to survive a crash of the server, and a failover may lose
// acknowledged writes and fences alike (WAIT makes that rarer).
func Redis(db redis.Scripter, name string) *RedisFence { return &RedisFence{db: db, name: name} }

// RedisCommand is a command of one or more arguments, of which the second is its key: {"SET", "{orders}:1", "paid"}.
type RedisCommand []any

// Raise runs the commands in one atomic step if token is not below the fence, and raises the fence to it. Without commands it only raises the fence. It returns the reply of
// each command: nil, an int64, a string or a []any.
//
// If a command fails, Redis keeps what those before it have written. After an error other than [ErrFenced] the commands may have run or not; the client of Redis repeats
// them by itself after network errors, unless its MaxRetries is -1. So they should give the same if they run twice.
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
	_, err := f.run(ctx, "seal", above(through), nil)
	return err
}

func (f *RedisFence) run(ctx context.Context, mode string, stamp isotone.Timestamp, commands []RedisCommand) ([]any, error) {
	keys, args := []string{f.name + ":fence"}, []any{mode, stamp.String()}
	for _, c := range commands {
		if len(c) == 0 {
			return nil, fmt.Errorf("fence %q: a command is empty", f.name)
		}
		if len(c) > 1 {
			keys = append(keys, fmt.Sprint(c[1]))
		}
		args = append(append(args, len(c)), c...)
	}
	if len(args) > redisArgumentsMax {
		return nil, fmt.Errorf("fence %q: %d arguments, of at most %d", f.name, len(args), redisArgumentsMax)
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
