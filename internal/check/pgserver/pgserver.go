// Package pgserver finds the Postgres of this machine, and runs one for tests. It knows no client of Postgres: tests say when
// a server is ready. Tests of other Go modules use it, too.
package pgserver

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
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

const (
	// readyPoll is the pause between two questions whether a server is ready.
	readyPoll = 20 * time.Millisecond
	// stopTimeout is how long a server has to end before it is killed.
	stopTimeout = 20 * time.Second
)

// ErrUnavailable is matched by the errors of [New] when this machine has no Postgres, or none that this user
// may start.
var ErrUnavailable = errors.New("there is no Postgres for tests here")

// Unavailable skips a test because of an error that matches [ErrUnavailable]; with CI=true in the
// environment, and because of any other error, the test fails.
func Unavailable(t interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if errors.Is(err, ErrUnavailable) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	t.Fatal(err)
}

// Server is a Postgres with the superuser tester and the database postgres. Its methods are not safe for
// concurrent use.
type Server struct {
	dir    string
	bin    string
	prefix []string // before each command
	cmd    *exec.Cmd
}

// New makes a data directory. [Server.Remove] deletes it.
func New(ctx context.Context) (*Server, error) {
	s := &Server{bin: Find()}
	if s.bin == "" {
		return nil, fmt.Errorf("%w: there is no initdb in PATH or in /usr/lib/postgresql (Debian: postgresql)", ErrUnavailable)
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "pgserver"); err != nil {
		return nil, err
	}
	if err = s.beUnprivileged(); err == nil {
		var out []byte
		out, err = s.command(ctx, "initdb", "-D", s.Data(), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("initdb: %w\n%s", err, out)
		}
	}
	if err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// Find returns the directory with initdb and postgres, or "".
func Find() string {
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
func (s *Server) beUnprivileged() error {
	if os.Getuid() != 0 {
		return nil
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		return fmt.Errorf("%w: it does not run as root, and there is no setpriv to run it as another user (Debian: util-linux)", ErrUnavailable)
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("%w: it does not run as root, and there is no user postgres or nobody", ErrUnavailable)
		}
	}
	uid, err1 := strconv.Atoi(account.Uid)
	gid, err2 := strconv.Atoi(account.Gid)
	// What child.Start asks the kernel for is void once the user changes.
	s.prefix = []string{"setpriv", "--reuid=" + account.Uid, "--regid=" + account.Gid, "--clear-groups", "--pdeathsig=KILL"}
	return errors.Join(err1, err2, os.Chown(s.dir, uid, gid))
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	words := append(append(append([]string(nil), s.prefix...), filepath.Join(s.bin, name)), args...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = s.dir
	return cmd
}

// Dir returns the directory that has the server's Unix socket.
func (s *Server) Dir() string { return s.dir }

// Data returns the data directory, for files of settings.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Start starts the processes with settings, such as "port=5433", and waits until ready returns nil, or ctx
// ends. On Linux the processes end with this one, however that ends.
func (s *Server) Start(ctx context.Context, ready func(context.Context) error, settings ...string) error {
	args := []string{"-D", s.Data(), "-k", s.dir, "-c", "fsync=off"}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	var log bytes.Buffer
	s.cmd = s.command(context.Background(), "postgres", args...)
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := child.Start(s.cmd); err != nil {
		s.cmd = nil
		return err
	}
	if err := await(ctx, ready); err != nil {
		s.Stop()
		return fmt.Errorf("postgres: %w\n%s", err, log.Bytes())
	}
	return nil
}

func await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := ready(ctx)
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

// Stop ends all connections, and then the processes. It does nothing if there are none.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(stopTimeout, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	timer.Stop()
	s.cmd = nil
}

// Remove stops the server and deletes its data.
func (s *Server) Remove() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
}
