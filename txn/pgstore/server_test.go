package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/pgserver"
	"github.com/isotone/isotone/txn/pgstore"
)

// TestMain ends the server that tests have started.
func TestMain(m *testing.M) {
	code := m.Run()
	postgres.stop()
	removePair()
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/isotone/isotone/internal/check/child.callAll")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is a Postgres that the first test that needs it starts, for all of them. It listens at a
// Unix socket in its directory.
type server struct {
	once sync.Once
	err  error
	*pgserver.Server
}

var postgres server

// pool returns a pool, which is closed at the end of the test. It skips the test if there is no Postgres.
func (s *server) pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	s.once.Do(func() { s.err = s.launch() })
	if s.err != nil {
		pgserver.Unavailable(t, s.err)
	}
	config, err := pgxpool.ParseConfig(s.url())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.OnNotice = pgstore.OnNotice
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *server) url() string {
	return "host=" + s.Dir() + " user=tester dbname=postgres pool_max_conns=16 connect_timeout=10"
}

func (s *server) launch() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.Server, err = pgserver.New(ctx); err != nil {
		return err
	}
	return s.start(ctx)
}

// start starts the process and waits until it serves.
func (s *server) start(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, s.url())
	if err != nil {
		return err
	}
	defer pool.Close()
	return s.Start(ctx, pool.Ping, "listen_addresses=")
}

func (s *server) stop() {
	if s.Server != nil {
		s.Remove()
	}
}

// restartAsReplica restarts the server as a replica of one that does not answer.
func (s *server) restartAsReplica(ctx context.Context) error {
	s.Stop()
	if err := os.WriteFile(filepath.Join(s.Data(), "standby.signal"), nil, 0o644); err != nil {
		return err
	}
	return s.start(ctx)
}
