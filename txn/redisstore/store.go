package redisstore

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

const (
	// nameSizeMax is the largest length of a name. It is part of every key.
	nameSizeMax = 64
	// PartsMax is the largest [Options].Parts: each scan asks all parts.
	PartsMax = 64
)

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("the store is closed")

// Options configures a [Store].
type Options struct {
	// Name is the name of the store: 1 to 64 letters, digits and "-_.:". Stores with different names
	// in one Redis have nothing in common.
	Name string
	// Parts is the number of parts that the rows are divided into, from 1 to [PartsMax]; 0 means 1. A
	// part is in one slot of a cluster, and so on one of its masters. With one part, the store does not
	// grow beyond one master. More cost a second request for each read, and as many requests for each
	// scan. It cannot be changed later.
	Parts int
}

func (o *Options) validate() error {
	valid := len(o.Name) >= 1 && len(o.Name) <= nameSizeMax
	for _, c := range []byte(o.Name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		valid = valid && (letter || c == '-' || c == '_' || c == '.' || c == ':')
	}
	switch {
	case !valid:
		return isotone.Errorf(isotone.CodeInvalidArgument, `redisstore: Name = %q: want 1 to %d letters, digits and "-_.:"`, o.Name, nameSizeMax)
	case o.Parts < 0 || o.Parts > PartsMax:
		return isotone.Errorf(isotone.CodeInvalidArgument, "redisstore: Parts = %d: want 1 to %d", o.Parts, PartsMax)
	}
	return nil
}

// Store is a txn.Fenced in Redis. Its methods may be called concurrently.
type Store struct {
	client redis.UniversalClient
	parts  []part

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // requests that may be under way
}

// part is the keys of a part; see the comment of the package.
type part struct{ none, row, stamps, keys, points, count string }

func newPart(name string, n int) part {
	tag := "{" + name + "/" + strconv.Itoa(n) + "}"
	return part{none: tag + "none", row: tag + "row:", stamps: tag + "stamps:", keys: tag + "keys", points: tag + "points", count: tag + "parts"}
}

// Open returns the store with the name, which need not exist. The client must be a *redis.Client or a
// *redis.ClusterClient, with timeouts for reads and writes; set ContextTimeoutEnabled in its options,
// so that requests end with their contexts. It must stay open as long as the store.
//
// Errors: isotone.ErrInvalidArgument if the options or the client cannot be used, the store exists
// with another number of parts, or the server evicts keys; those of go-redis.
func Open(ctx context.Context, client redis.UniversalClient, opts Options) (*Store, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if err := checkClient(client); err != nil {
		return nil, err
	}
	s := &Store{client: client}
	for n := range max(opts.Parts, 1) {
		s.parts = append(s.parts, newPart(opts.Name, n))
	}
	if err := checkServers(ctx, client); err != nil {
		return nil, err
	}
	return s, s.register(ctx)
}

// register compares the number of parts with the one that the store was made with.
func (s *Store) register(ctx context.Context) error {
	p := s.parts[0]
	want := strconv.Itoa(len(s.parts))
	answer, err := s.do(ctx, call{name: "open", script: openScript, keys: []string{p.none, p.count}, args: []any{want}})
	if err != nil {
		return err
	}
	if answer != want {
		return isotone.Errorf(isotone.CodeInvalidArgument, "redisstore: Parts = %s: the store exists with %v", want, answer)
	}
	return nil
}

// Close waits until no request is under way any more, which takes up to the timeouts of the client.
// From its call on, all methods fail with [ErrClosed]. It does not close the client.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
}

// part returns the part of a row. The hash is FNV-1a of 32 bits; to change it would lose rows.
func (s *Store) part(key []byte) part {
	h := fnv.New32a()
	_, _ = h.Write(key)
	return s.parts[h.Sum32()%uint32(len(s.parts))]
}

// withPoints returns keys, and that of the points if they are in the same part.
func (s *Store) withPoints(keys ...string) []string {
	if len(s.parts) == 1 {
		keys = append(keys, s.parts[0].points)
	}
	return keys
}

// Read implements txn.Store.
func (s *Store) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	p := s.part(key)
	answer, err := s.do(ctx, call{
		name: "read", script: readScript,
		keys: s.withPoints(p.none, p.row+string(key), p.stamps+string(key)),
		args: []any{encode(at), encodeUnless0(start)},
	})
	if err != nil {
		return txn.Row{}, txn.Points{}, err
	}
	var d decoder
	list := d.list(answer, 2)
	points, row := d.points(list[0]), d.row(list[1], start)
	if err = d.err(); err == nil && len(s.parts) > 1 {
		points, err = s.Points(ctx)
	}
	if err != nil {
		return txn.Row{}, txn.Points{}, err
	}
	return row, points, nil
}

// Write implements txn.Store.
func (s *Store) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	p := s.part(key)
	var value, commit string
	if c.Put.Commit != 0 {
		value = encodeValue(c.Put)
	}
	if c.Record.Start != 0 {
		commit = encode(c.Record.Commit)
	}
	answer, err := s.do(ctx, call{
		name: "write", script: writeScript, once: true,
		keys: []string{p.none, p.row + string(key), p.stamps + string(key), p.keys, p.points},
		args: []any{
			string(key), encodeUnless0(c.If), encode(c.Next), string(c.Lock),
			stamp(stampVersion, c.Put.Commit), value,
			stamp(stampRecord, c.Record.Start), commit,
			stamp(stampVersion, c.DropVersions), stamp(stampRecord, c.DropRecords), encodeUnless0(c.Record.Commit),
		},
	})
	if err != nil {
		return false, err
	}
	done, ok := answer.(int64)
	d := decoder{bad: !ok}
	if done == 2 {
		return false, isotone.Errorf(isotone.CodeFenced, "redisstore: write: the commit timestamp %v comes too late: it is sealed", c.Record.Commit)
	}
	return done == 1, d.err()
}

// Points implements txn.Store.
func (s *Store) Points(ctx context.Context) (txn.Points, error) {
	p := s.parts[0]
	answer, err := s.do(ctx, call{name: "points", script: pointsScript, keys: []string{p.none, p.points}})
	if err != nil {
		return txn.Points{}, err
	}
	var d decoder
	points := d.points(answer)
	return points, d.err()
}

// Raise implements txn.Store.
func (s *Store) Raise(ctx context.Context, p txn.Points) error {
	_, err := s.do(ctx, call{
		name: "raise", script: raiseScript, once: true,
		keys: []string{s.parts[0].points}, args: []any{"safe", encode(p.Safe), "resolved", encode(p.Resolved)},
	})
	return err
}

// Seal implements txn.Fenced. Each part has a fence, so that a write compares it in its own step.
func (s *Store) Seal(ctx context.Context, through isotone.Timestamp64) error {
	for _, p := range s.parts {
		if _, err := s.do(ctx, call{name: "seal", script: raiseScript, once: true, keys: []string{p.points}, args: []any{"sealed", encode(through)}}); err != nil {
			return err
		}
	}
	return nil
}
