package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
)

// TestMain ends the server that tests have started.
func TestMain(m *testing.M) {
	code := m.Run()
	postgres.stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is a Postgres that the first test that needs it starts, for all of them. It listens at a
// Unix socket in its directory.
type server struct {
	once sync.Once
	skip string // why it cannot be started
	err  error
	dir  string
	bin  string
	as   func(context.Context, string, ...string) *exec.Cmd
	cmd  *exec.Cmd
}

var postgres server

// pool returns a pool, which is closed at the end of the test. It skips the test if there is no Postgres.
func (s *server) pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	s.once.Do(func() { s.skip, s.err = s.launch() })
	if s.skip != "" {
		t.Skip(s.skip)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	pool, err := pgxpool.New(t.Context(), s.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *server) url() string {
	return "host=" + s.dir + " user=tester dbname=postgres pool_max_conns=16 connect_timeout=10"
}

func (s *server) launch() (skip string, err error) {
	if s.bin = findServer(); s.bin == "" {
		return "Postgres is not installed: no initdb in PATH or in /usr/lib/postgresql", nil
	}
	if s.dir, err = os.MkdirTemp("", "pgstore"); err != nil {
		return "", err
	}
	if s.as, skip, err = s.unprivileged(); skip != "" || err != nil {
		return skip, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	initdb := s.as(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return "", s.start(ctx)
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// start starts the process and waits until it serves.
func (s *server) start(ctx context.Context) error {
	var log bytes.Buffer
	s.cmd = s.as(context.Background(), filepath.Join(s.bin, "postgres"), "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off")
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		s.shutDown()
		return fmt.Errorf("postgres: %w\n%s", err, log.Bytes())
	}
	return nil
}

// findServer returns the directory with initdb and postgres, or "".
func findServer() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// unprivileged returns what makes commands of a user other than root, as which Postgres does not start.
func (s *server) unprivileged() (as func(context.Context, string, ...string) *exec.Cmd, skip string, err error) {
	if os.Getuid() != 0 {
		return exec.CommandContext, "", nil
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		return nil, "Postgres does not run as root, and there is no setpriv to run it as another user", nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return nil, "Postgres does not run as root, and there is no user postgres or nobody", nil
		}
	}
	uid, err1 := strconv.Atoi(account.Uid)
	gid, err2 := strconv.Atoi(account.Gid)
	if err := errors.Join(err1, err2, os.Chown(s.dir, uid, gid)); err != nil {
		return nil, "", err
	}
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		prefix := []string{"--reuid=" + account.Uid, "--regid=" + account.Gid, "--clear-groups", name}
		cmd := exec.CommandContext(ctx, "setpriv", append(prefix, args...)...)
		cmd.Dir = s.dir
		return cmd
	}, "", nil
}

func (s *server) await(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, s.url())
	if err != nil {
		return err
	}
	defer pool.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := pool.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (s *server) stop() {
	s.shutDown()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// shutDown ends all connections, and then the processes of the server.
func (s *server) shutDown() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	timer.Stop()
	s.cmd = nil
}

// restartAsReplica restarts the server as a replica of one that does not answer.
func (s *server) restartAsReplica(ctx context.Context) error {
	s.shutDown()
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644); err != nil {
		return err
	}
	return s.start(ctx)
}
