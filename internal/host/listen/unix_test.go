package listen_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/listen"
)

// TestUnix_ForItsOwnerOnly at a path of any length, also where an earlier process has left a socket.
func TestUnix_ForItsOwnerOnly(t *testing.T) {
	dirs := []string{t.TempDir()}
	if runtime.GOOS == "linux" {
		long := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
		if err := os.MkdirAll(long, 0o700); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, long)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, "operator.sock")
		for _, crashed := range []bool{true, false} {
			l, err := listen.Unix(path)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = io.WriteString(c, "hello")
					_ = c.Close()
				}
			}()
			c, err := listen.DialUnix(context.Background(), path)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(c); string(b) != "hello" {
				t.Errorf("%q, %v", b, err)
			}
			_ = c.Close()
			if crashed { // or ends late
				defer func() {
					next, err := listen.Unix(path)
					if err != nil {
						t.Fatal(err)
					}
					_ = l.Close()
					if _, err := os.Stat(path); err != nil {
						t.Errorf("an older listener removes the socket of a newer one: %v", err)
					}
					_ = next.Close()
				}()
				continue
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if c, err := listen.DialUnix(context.Background(), path); err == nil {
			t.Errorf("somebody answers at %v", c.RemoteAddr())
			_ = c.Close()
		}
	}
	if _, err := listen.Unix(filepath.Join(t.TempDir(), "missing", "s")); err == nil {
		t.Error("a directory that does not exist")
	}
}
