package fence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/fence"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/ports"
)

// redisStore appends words to a Redis list.
type redisStore struct {
	db   *redis.Client
	name string
	*fence.RedisFence
}

func newRedisStore(t *testing.T, db *redis.Client) *redisStore {
	name := "{" + strings.ReplaceAll(t.Name(), " ", "-") + "}"
	return &redisStore{db, name, fence.Redis(db, name)}
}

func (s *redisStore) raise(ctx context.Context, token isotone.Timestamp, word string) error {
	_, err := s.Raise(ctx, token, fence.RedisCommand{"RPUSH", s.name, word})
	return err
}

func (s *redisStore) check(ctx context.Context, stamp isotone.Timestamp, word string) error {
	_, err := s.Check(ctx, stamp, fence.RedisCommand{"RPUSH", s.name, word})
	return err
}

func (s *redisStore) words(ctx context.Context) ([]string, error) {
	return s.db.LRange(ctx, s.name, 0, -1).Result()
}

// unavailable skips a test for which something is not installed; with CI=true in the environment it fails.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// startRedis starts a redis-server, which ends with the test.
func startRedis(t *testing.T, args ...string) *redis.Client {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		unavailable(t, "redis-server is not installed (Debian: redis-server)")
	}
	port, err := ports.Free(2)
	must(t, err)
	cmd := exec.Command(program, append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--cluster-port", fmt.Sprint(port + 1)}, args...)...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	log, ended := bufio.NewReader(out), make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	var said strings.Builder
	for err == nil && !strings.Contains(said.String(), "Ready to accept connections") {
		var line string
		line, err = log.ReadString('\n')
		said.WriteString(line)
	}
	go func() {
		_, _ = io.Copy(io.Discard, log)
		_ = cmd.Wait()
		close(ended)
	}()
	if err != nil {
		t.Fatalf("redis-server has ended: %v\n%s", err, said.String())
	}
	db := redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestRedis_IsAFence(t *testing.T) {
	db := startRedis(t)
	testStore(t, func(t *testing.T) store { return newRedisStore(t, db) })
}

// A cluster runs a script only if all its keys are in one slot, and only where that is.
func TestRedis_OnACluster(t *testing.T) {
	db := startRedis(t, "--cluster-enabled", "yes")
	must(t, db.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	await.Until(t, "the node knows that it has all slots", func() bool { return db.Do(t.Context(), "EXISTS", "any").Err() == nil })
	testStore(t, func(t *testing.T) store { return newRedisStore(t, db) })
	f := fence.Redis(db, "{a}")
	if _, err := f.Raise(t.Context(), at(1), fence.RedisCommand{"SET", "{b}", "1"}); err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("keys in two slots: %v", err)
	}
}

// Lua compares strings by the locale of the server, and in that of the Czech Republic digits come after letters. The locale is made here; where localedef lacks its
// sources, which nothing else needs, there is no such server to test. .ci/run installs them where it may.
func TestRedis_WhateverTheLocale(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("localedef", "-i", "cs_CZ", "-f", "UTF-8", filepath.Join(dir, "cs_CZ.UTF-8")).CombinedOutput(); err != nil {
		t.Skipf("localedef cannot make a Czech locale, under which Redis would sort in another way (Debian: locales): %v %s", err, out)
	}
	t.Setenv("LOCPATH", dir)
	t.Setenv("LC_ALL", "cs_CZ.UTF-8")
	db := startRedis(t)
	if n, err := db.Eval(t.Context(), "return '1' < 'a' and 1 or 0", nil).Int(); err != nil || n != 0 {
		unavailable(t, "redis-server has not taken the locale: %d, %v", n, err)
	}
	testStore(t, func(t *testing.T) store { return newRedisStore(t, db) })
}

func TestRedis_ReturnsReplies(t *testing.T) {
	db := startRedis(t)
	ctx, f := t.Context(), fence.Redis(db, "{x}")
	got, err := f.Raise(ctx, at(1), fence.RedisCommand{"SET", []byte("{x}"), "1"}, fence.RedisCommand{"GET", "{x}:no"}, fence.RedisCommand{"INCRBY", "{x}", 41}, fence.RedisCommand{"MGET", "{x}", "{x}:no"},
		fence.RedisCommand{"PING"})
	must(t, err)
	if want := "[OK <nil> 42 [42 <nil>] PONG]"; fmt.Sprint(got) != want {
		t.Errorf("replies %v, want %s", got, want)
	}
	if got, err = f.Raise(ctx, at(3)); err != nil || len(got) != 0 {
		t.Errorf("without commands: %v, %v", got, err)
	}
	_, err = f.Raise(ctx, at(2), fence.RedisCommand{"SET", "{x}", "2"})
	refused(t, err, at(2), at(3))
	if db.Get(ctx, "{x}").Val() != "42" {
		t.Errorf("a refused write has changed the data to %v", db.Get(ctx, "{x}"))
	}
}

func TestRedis_BadInput(t *testing.T) {
	db := startRedis(t)
	ctx, f := t.Context(), fence.Redis(db, "{x}")
	long := append(fence.RedisCommand{"RPUSH", "{x}"}, make([]any, 5000)...)
	for want, c := range map[string]fence.RedisCommand{
		"empty": {}, "arguments, of at most": long, "Unknown Redis command": {"NOSUCH", "{x}"}, "not a int": {"SET", 1, 2}, "is that of the fence": {"DEL", "{x}:fence"},
	} {
		if _, err := f.Raise(ctx, at(1), c); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, fence.ErrFenced) {
			t.Errorf("%d arguments: %v, want %q", len(c), err, want)
		}
	}
	if _, err := fence.Redis(db.Pipeline(), "{x}").Raise(ctx, at(1)); err == nil || !strings.Contains(err.Error(), "pipeline") {
		t.Errorf("a pipeline: %v", err)
	}
	for _, args := range [][]any{{"raise", "ff"}, {"raise", strings.Repeat("F", 32)}, {"seal", strings.Repeat("z", 32)}, {"check", ""}, {"RAISE", at(9).String()}, {"SEAL", at(9).String()}, {}} {
		if err := db.Eval(ctx, fence.RedisScript, []string{"{z}:fence"}, args...).Err(); err == nil || db.Exists(ctx, "{z}:fence").Val() != 0 {
			t.Errorf("the script accepts %q: %v", args, err)
		}
	}
	must(t, db.Set(ctx, "{y}:fence", "12", 0).Err())
	for name, f := range map[string]func() error{
		"raise": func() error { _, err := fence.Redis(db, "{y}").Raise(ctx, at(1)); return err },
		"check": func() error { _, err := fence.Redis(db, "{y}").Check(ctx, at(1)); return err },
		"seal":  func() error { return fence.Redis(db, "{y}").Seal(ctx, at(1)) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "is not a fence") {
			t.Errorf("%s over a value that is no fence: %v", name, err)
		}
	}
}
