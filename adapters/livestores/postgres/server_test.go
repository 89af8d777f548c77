package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/isotone/isotone/internal/check/pgserver"
	"github.com/isotone/isotone/internal/check/ports"
)

// server is a Postgres of one test. It listens on a port of 127.0.0.1, where app needs a password, and at a
// Unix socket in its directory, where tester may do everything.
type server struct {
	*pgserver.Server
	t    *testing.T
	addr string
}

// startPostgres starts a server with a database shop, or skips the test.
func startPostgres(t *testing.T) *server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	made, err := pgserver.New(ctx)
	if err != nil {
		pgserver.Unavailable(t, err)
	}
	s := &server{Server: made, t: t}
	t.Cleanup(s.Remove)
	access := "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(s.Data(), "pg_hba.conf"), []byte(access), 0o644); err != nil {
		t.Fatal(err)
	}
	addrs, err := ports.Addrs(1)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = addrs[0]
	s.start()
	return s
}

// start starts the process and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.addr)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ready := func(context.Context) error { return s.try("SELECT 1") }
	if err := s.Start(ctx, ready, "listen_addresses=127.0.0.1", "port="+port); err != nil {
		s.t.Fatal(err)
	}
}

// try runs statements as a superuser.
func (s *server) try(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, port, _ := net.SplitHostPort(s.addr)
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%s user=tester dbname=postgres", s.Dir(), port))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Exec(ctx, sql).Close()
}

func (s *server) run(statements ...string) {
	s.t.Helper()
	if err := s.try(strings.Join(statements, ";")); err != nil {
		s.t.Fatal(err)
	}
}
