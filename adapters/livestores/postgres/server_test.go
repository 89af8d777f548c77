package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// server is a Postgres of one test. It listens on a port of 127.0.0.1, where app needs a password, and at a
// Unix socket in its directory, where tester may do everything.
type server struct {
	t    *testing.T
	dir  string
	bin  string
	addr string
	cmd  *exec.Cmd
	uid  string // the user to run as, "" for that of the test
	gid  string
}

// startPostgres starts a server with a database shop, or skips the test.
func startPostgres(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, bin: findServer()}
	if s.bin == "" {
		t.Skip("Postgres is not installed: no initdb in PATH or in /usr/lib/postgresql")
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "livepg"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	s.beUnprivileged()
	if out, err := s.command("initdb", "-D", s.data(), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	access := "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(access), 0o644); err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	s.addr = net.JoinHostPort("127.0.0.1", port)
	t.Cleanup(s.stop)
	s.start()
	return s
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

// beUnprivileged has the server run as another user than root, as which it does not start.
func (s *server) beUnprivileged() {
	if os.Getuid() != 0 {
		return
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		s.t.Skip("Postgres does not run as root, and there is no setpriv to run it as another user")
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			s.t.Skip("Postgres does not run as root, and there is no user postgres or nobody")
		}
	}
	s.uid, s.gid = account.Uid, account.Gid
	uid, err1 := strconv.Atoi(s.uid)
	gid, err2 := strconv.Atoi(s.gid)
	if err := errors.Join(err1, err2, os.Chown(s.dir, uid, gid)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(s.bin, name)}, args...)
	if s.uid != "" {
		args = append([]string{"setpriv", "--reuid=" + s.uid, "--regid=" + s.gid, "--clear-groups"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.dir
	return cmd
}

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// start starts the process and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	var log bytes.Buffer
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=127.0.0.1", "-c", "port="+port, "-c", "fsync=off")
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = s.try("SELECT 1"); err == nil {
			return
		}
	}
	s.stop()
	s.t.Fatalf("postgres: %v\n%s", err, log.Bytes())
}

// stop kills all processes of the server.
func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(os.Interrupt) // ends connections, and then itself
	timer := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	timer.Stop()
	s.cmd = nil
}

// try runs statements as a superuser.
func (s *server) try(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, port, _ := net.SplitHostPort(s.addr)
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%s user=tester dbname=postgres", s.dir, port))
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
