package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/pgserver"
)

// asParent has this binary start a server, print its directory, and wait for the end of its input.
const asParent = "ISOTONE_TEST_AS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) == "" {
		os.Exit(m.Run())
	}
	if err := runParent(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func runParent() error {
	ctx, cancel := context.WithTimeout(context.Background(), await.Timeout)
	defer cancel()
	s, err := pgserver.New(ctx)
	if err != nil {
		return err
	}
	defer s.Remove()
	if err := s.Start(ctx, func(context.Context) error { return dial(s.Dir()) }, "listen_addresses="); err != nil {
		return err
	}
	fmt.Println(s.Dir())
	_, err = os.Stdin.Read(make([]byte, 1))
	return err
}

// dial asks whether a server in a directory takes connections.
func dial(dir string) error {
	conn, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestServer_EndsWithItsKilledParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), asParent+"=1")
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err == nil {
		err = dial(dir)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if err != nil && strings.HasPrefix(line, pgserver.ErrUnavailable.Error()) {
		pgserver.Unavailable(t, pgserver.ErrUnavailable)
	}
	if err != nil {
		t.Fatalf("the server does not run: %q, %v", line, err)
	}
	defer os.RemoveAll(dir)
	await.Until(t, "the server ends with the process that started it", func() bool { return dial(dir) != nil })
}
