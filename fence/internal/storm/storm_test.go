//go:build linux

package storm_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/isotone/isotone/fence/internal/storm"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/evidence"
	"github.com/isotone/isotone/internal/check/pgserver"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

const (
	// stormDefault is the length of a storm without FENCE_MINUTES, and overtimeMax how much longer it may take until each kind of write was fenced.
	stormDefault, overtimeMax = 6 * time.Second, 2 * time.Minute
	// fencedPerHour is how many writes have to be fenced in an hour: else the storm was none.
	fencedPerHour = 1000
)

// TestMain runs the tests, or is a worker of a storm.
func TestMain(m *testing.M) {
	text := os.Getenv(storm.WorkerVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var w storm.Worker
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		err = storm.Work(context.Background(), w, os.Stdout)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestFenceStorm: no store accepts a stale write, or one at or below a told frontier, while holders, writers and leaders are paused and killed. The environment sets FENCE_MINUTES.
func TestFenceStorm(t *testing.T) {
	length := trial.Length(t, "FENCE_MINUTES", stormDefault)
	enough := max(1, int(fencedPerHour*length.Hours()))
	r := run(t, storm.Options{For: length, ForMax: length + overtimeMax, Enough: func(r *storm.Result) bool {
		return r.FencedWrites() >= enough && hasAll(r.Fenced, storm.Kinds)
	}})
	if r.Wrong() > 0 || len(r.Violations) > 0 {
		t.Error("the fences have let late writes through, or there was no progress")
	}
	if r.FencedWrites() < enough || !hasAll(r.Fenced, storm.Kinds) {
		t.Errorf("%d writes were fenced, want %d and some of each of %q: the storm has tested nothing", r.FencedWrites(), enough, storm.Kinds)
	}
	trial.Record(t, evidence.Storm{
		Command: "make fence-storm", Took: r.Elapsed(), Faults: fmt.Sprintf("%d faults", r.Faults()),
		Operations: uint64(r.AcceptedWrites() + r.FencedWrites()), Answered: uint64(r.AcceptedWrites()), Violations: uint64(r.Wrong()), Note: fmt.Sprintf("%d writes fenced", r.FencedWrites()),
	})
}

// TestFenceStorm_FindsLateWritesWithoutFences: the same storm is noticed by both checks in both stores if writes go around the fences.
func TestFenceStorm_FindsLateWritesWithoutFences(t *testing.T) {
	stores := []string{"redis", "postgres"}
	found := func(r *storm.Result) bool { return hasAll(r.Stale, stores) && hasAll(r.Late, stores) }
	r := run(t, storm.Options{Servers: storm.Servers{Unfenced: true}, For: stormDefault, ForMax: stormDefault + overtimeMax, Enough: found})
	if !found(r) {
		t.Errorf("stale writes %v, late writes %v: want some in each of %q", r.Stale, r.Late, stores)
	}
}

func hasAll(counts map[string]int, kinds []string) bool {
	for _, kind := range kinds {
		if counts[kind] == 0 {
			return false
		}
	}
	return true
}

// run runs a storm with servers of its own, and prints the result.
func run(t *testing.T, o storm.Options) *storm.Result {
	t.Helper()
	o.Dir = t.TempDir()
	o.Servers.Redis, o.Servers.Postgres = startRedis(t, o.Dir), startPostgres(t)
	var err error
	if o.Node, err = cluster.Build(t.Context(), o.Dir); err != nil {
		t.Fatal(err)
	}
	if o.Worker, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	r, err := storm.Run(t.Context(), o)
	if err != nil {
		t.Error(err)
	}
	if r == nil {
		t.FailNow()
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%s", r, text)
	return r
}

// startRedis starts a redis-server, which ends with the test. It skips the test if there is none.
func startRedis(t *testing.T, dir string) (addr string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		const missing = "redis-server is not installed (Debian: redis-server)"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	port, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	server, err := child.Run("redis-server", filepath.Join(dir, "redis.log"), cluster.Inherited(),
		[]string{program, "--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--dir", dir, "--save", ""})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Signal(os.Kill)
		<-server.Ended()
	})
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	await.Done(t, await.Timeout, func() (bool, string) {
		err := db.Ping(t.Context()).Err()
		return err == nil, fmt.Sprint(err, server.Log())
	})
	return addr
}

// startPostgres starts a Postgres, which ends with the test. It skips the test if there is none.
func startPostgres(t *testing.T) (url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	server, err := pgserver.New(ctx)
	if err != nil {
		pgserver.Unavailable(t, err)
	}
	t.Cleanup(server.Remove)
	url = "host=" + server.Dir() + " user=tester dbname=postgres connect_timeout=10"
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := server.Start(ctx, db.PingContext, append([]string{"listen_addresses="}, storm.Settings...)...); err != nil {
		t.Fatal(err)
	}
	if err := storm.Prepare(ctx, db); err != nil {
		t.Fatal(err)
	}
	return url
}
