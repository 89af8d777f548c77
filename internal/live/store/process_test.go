package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/live/store"
)

func TestMain(m *testing.M) {
	if strings.HasPrefix(filepath.Base(os.Args[0]), store.Program) {
		beProgram()
		return
	}
	goleak.VerifyTestMain(m)
}

// beProgram is what the test binary is under the name of the program: a loader that does what the
// user of the URL says.
func beProgram() {
	if os.Getenv("STORE_TEST_GARBLED") != "" {
		fmt.Println("hello")
		return
	}
	err := store.Serve(context.Background(), os.Stdin, os.Stdout, func(u *store.URL) (store.Loader, error) { return &actor{u.Query, 0}, nil })
	if err != nil {
		os.Exit(1)
	}
}

type actor struct {
	does  string
	loads int
}

func (a *actor) Load(ctx context.Context, _ int) ([]byte, bool, error) {
	a.loads++
	switch a.does {
	case "hang":
		<-time.After(time.Hour)
	case "wait":
		<-ctx.Done()
		return nil, false, ctx.Err()
	case "die":
		os.Exit(3)
	case "once":
		if a.loads == 3 {
			os.Exit(3)
		}
		return []byte(fmt.Sprint(os.Getpid())), a.loads == 1, nil
	}
	return nil, false, isotone.Errorf(isotone.CodeForbidden, "not %s", a.does)
}

func (*actor) Close() {}

// process returns a process whose program is this test. It is closed at the end.
func process(t *testing.T, does string) *store.Process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs links to programs")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, store.Program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	p := &store.Process{URL: "postgres://app@db/shop#" + does}
	t.Cleanup(p.Close)
	return p
}

// load loads once, within a time.
func load(t *testing.T, p *store.Process, within time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	b, err := p.Load(ctx, 1000)
	return string(b), err
}

func TestProcess_KeepsTheProcessAndTheDocument(t *testing.T) {
	p := process(t, "once")
	first, err := load(t, p, time.Minute)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := load(t, p, time.Minute); again != first || err != nil {
		t.Errorf("%q and then %q, %v", first, again, err)
	}
	if _, err := load(t, p, time.Minute); !errors.Is(err, isotone.ErrInternal) || !strings.Contains(err.Error(), "isotone-live ended") {
		t.Errorf("of a process that ends: %v", err)
	}
	if other, err := load(t, p, time.Minute); other == "" || other == first || err != nil {
		t.Errorf("after the end: %q, %v", other, err)
	}
}

func TestProcess_ErrorsHaveTheirCodes(t *testing.T) {
	p := process(t, "that")
	for range 2 {
		if _, err := load(t, p, time.Minute); !errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), "not that") {
			t.Error(err)
		}
	}
}

func TestProcess_TimeEndsTheLoadOrElseTheProcess(t *testing.T) {
	for _, c := range []struct {
		does   string
		within time.Duration
		want   error
	}{
		{"wait", 5 * time.Second, isotone.ErrDeadlineExceeded},
		{"hang", time.Second, context.DeadlineExceeded},
	} {
		p := process(t, c.does)
		began := time.Now()
		if _, err := load(t, p, c.within); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.does, err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: took %v", c.does, took)
		}
	}
}

func TestProcess_AnotherProgramIsAnError(t *testing.T) {
	t.Setenv("STORE_TEST_GARBLED", "1")
	if _, err := load(t, process(t, "x"), time.Minute); !errors.Is(err, isotone.ErrInternal) || !strings.Contains(err.Error(), "another program") {
		t.Error(err)
	}
}

func TestProcess_SaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := &store.Process{URL: "postgres://app@db/shop#SELECT 1"}
	if _, err := load(t, p, time.Minute); !errors.Is(err, isotone.ErrNotFound) || !strings.Contains(err.Error(), "make install-live") {
		t.Error(err)
	}
}
