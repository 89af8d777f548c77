package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/ports"
)

// TestMain ends the servers that tests have started.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range []*server{&plain, &cluster} {
		s.stop()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is a redis-server that the first test that needs it starts, for all of them.
type server struct {
	clustered bool
	empty     bool // of a cluster, without slots
	durable   bool // what was answered survives a restart
	master    *server

	once sync.Once
	err  error
	addr string
	bus  string // the port for other nodes of the cluster
	dir  string
	args []string
	cmd  *exec.Cmd
}

var (
	plain   server
	cluster = server{clustered: true}
)

// start starts the server, unless it runs. It skips the test if there is no redis-server.
func (s *server) start(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed (Debian: redis-server)")
		}
		t.Skip("redis-server is not installed")
	}
	s.once.Do(func() { s.err = s.launch() })
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *server) launch() (err error) {
	if s.dir, err = os.MkdirTemp("", "redisstore"); err != nil {
		return err
	}
	first, err := ports.Free(2)
	if err != nil {
		return err
	}
	s.addr, s.bus = fmt.Sprint("127.0.0.1:", first), fmt.Sprint(first+1)
	s.args = []string{"--port", fmt.Sprint(first), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--logfile", s.log(), "--repl-diskless-sync-delay", "0"}
	if s.clustered {
		s.args = append(s.args, "--cluster-enabled", "yes", "--cluster-port", s.bus)
	}
	if s.durable {
		s.args = append(s.args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if s.master != nil {
		host, port, err := net.SplitHostPort(s.master.addr)
		if err != nil {
			return err
		}
		s.args = append(s.args, "--replicaof", host+" "+port)
	}
	return s.run()
}

func (s *server) log() string { return filepath.Join(s.dir, "log") }

// run starts the process and waits until it serves.
func (s *server) run() error {
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.await(ctx, client); err != nil {
		text, _ := os.ReadFile(s.log())
		return fmt.Errorf("redis-server: %w\n%s", err, bytes.TrimSpace(text))
	}
	return nil
}

func (s *server) await(ctx context.Context, client *redis.Client) error {
	if err := poll(ctx, func() error { return client.Ping(ctx).Err() }); err != nil || !s.clustered || s.empty {
		return err
	}
	if err := client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		return err
	}
	return poll(ctx, func() error { return client.Get(ctx, "any").Err() })
}

// poll calls f until it returns nil or redis.Nil.
func poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || errors.Is(err, redis.Nil) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// kill kills the process.
func (s *server) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

func (s *server) stop() {
	s.kill()
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
